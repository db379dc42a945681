/* opsmith_compute.h: what a driver exports beside opsmith_get_driver() if its device compiles kernels from
 * source at run time, so that the library `compute` can serve it. Two drivers that come with opsmith do:
 * `opencl` and `cuda_driver`. The rules of opsmith_driver.h hold here too.
 *
 * Sources are written in the dialect that opsmith_compute_dialect() is the beginning of: OpenCL C, with
 * macros for what CUDA C spells otherwise.
 */
#ifndef OPSMITH_COMPUTE_H
#define OPSMITH_COMPUTE_H

#include <opsmith_driver.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A compiled kernel of one device; lives as long as the process. */
typedef struct opsmith_compute_kernel_s* opsmith_compute_kernel;

/* One argument of a launch: `size` bytes at `value`, or, where `size` is 0, the device address `value`
 * itself, for which the kernel has BUFFER(type, name) among its parameters. */
typedef struct opsmith_compute_argument {
  const void* value;
  size_t size;
} opsmith_compute_argument;

typedef struct opsmith_compute_limits {
  uint32_t group_items;  /* the most work-items of a group */
  uint32_t local_memory; /* bytes that a group's items can share */
  uint32_t units;        /* groups that run at a time */
  int is_cpu;            /* work-items of a group run one after the other, and vectors are the compiler's */
  int has_double;
} opsmith_compute_limits;

opsmith_status opsmith_compute_device_limits(int device, opsmith_compute_limits* limits);

/* Source text that every kernel's source is put behind. */
const char* opsmith_compute_dialect(void);

/* Compiles `source`, or finds it in the cache on disk, and gives its kernel `name`. Where the compiler
 * refuses, last_error() has its log. */
opsmith_status opsmith_compute_compile(int device, const char* source, const char* name,
                                       opsmith_compute_kernel* kernel);

/* Queues `groups` work-groups of `items` work-items, in three dimensions each. */
opsmith_status opsmith_compute_launch(opsmith_compute_kernel kernel, opsmith_stream stream,
                                      const size_t groups[3], const size_t items[3],
                                      const opsmith_compute_argument* arguments, int count);

/* Mistakes that only a kernel can see. It writes one of these to an int of its stream's; the stream's next
 * copy to the host or synchronisation fails with what it means, and the int is 0 again. */
enum {
  OPSMITH_COMPUTE_FAULT_INDEX = 1, /* an index is out of range */
  OPSMITH_COMPUTE_FAULT_TARGET = 2 /* a target of a loss is no class */
};

/* The device address of that int, for a kernel that is launched on the stream next. */
opsmith_status opsmith_compute_faults(opsmith_stream stream, const void** address);

#ifdef __cplusplus
}
#endif

#endif /* OPSMITH_COMPUTE_H */
