/* opsmith_triton.h: what a driver exports beside opsmith_get_driver() if Triton has a compiler backend for
 * its device, so that compiled kernels can be launched. The rules of opsmith_driver.h hold here too.
 */
#ifndef OPSMITH_TRITON_H
#define OPSMITH_TRITON_H

#include <opsmith_driver.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A compiled kernel of one device; lives as long as the process, and so does what it points to. */
typedef struct opsmith_triton_binary {
  const void* image; /* what the last stage of the compiler backend made */
  size_t size;
  const char* name; /* of the kernel in it */
  int32_t device;
  uint32_t threads;       /* of a program: num_warps times the target's warp_size */
  uint32_t shared_memory; /* bytes of a program */
  void* loaded;           /* the driver's own, NULL before the first launch, which comes alone */
} opsmith_triton_binary;

/* Where an argument lies in the block of a launch's arguments, which is laid out as a C struct. */
typedef struct opsmith_triton_argument {
  uint32_t offset;
  uint32_t size;
  int32_t is_pointer; /* it is a device address, or NULL */
} opsmith_triton_argument;

/* Queues `grid` programs of the kernel, along three axes; all are positive. `arguments` and `layout` are the
 * caller's again when it returns. */
opsmith_status opsmith_triton_launch(opsmith_triton_binary* binary, opsmith_stream stream,
                                     const uint32_t grid[3], const void* arguments,
                                     const opsmith_triton_argument* layout, uint32_t count);
#define OPSMITH_TRITON_LAUNCH_SYMBOL "opsmith_triton_launch"

#ifdef __cplusplus
}
#endif

#endif /* OPSMITH_TRITON_H */
