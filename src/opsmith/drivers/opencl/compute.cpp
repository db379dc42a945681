// The entries of opsmith_compute.h: kernels compiled from source, and launched.
#include <opsmith_compute.h>

#include <algorithm>
#include <mutex>
#include <string>

#include "errors.h"
#include "memory.h"
#include "platform.h"
#include "program.h"
#include "stream.h"

// A kernel's arguments are part of it in OpenCL: who sets them holds the lock until the launch is queued.
struct opsmith_compute_kernel_s {
  cl_kernel kernel;
  std::string name;
  std::mutex mutex;
};

namespace {

using namespace opencl;

// A buffer is passed as OpenCL's object and an offset in bytes.
constexpr const char* kDialect =
#include "dialect.cl"
    ;

void set_argument(cl_kernel kernel, cl_uint index, size_t size, const void* value) {
  check(api().SetKernelArg(kernel, index, size, value), "set a kernel's argument");
}

// Sets one argument of a launch, and says how many of the kernel's it was.
cl_uint set(cl_kernel kernel, cl_uint index, const opsmith_compute_argument& argument) {
  if (argument.size != 0) {
    set_argument(kernel, index, argument.size, argument.value);
    return 1;
  }
  Place place{};
  if (argument.value != nullptr) {
    place = place_of(argument.value);
  }
  const cl_ulong offset = place.offset;
  set_argument(kernel, index, sizeof(cl_mem), &place.buffer);
  set_argument(kernel, index + 1, sizeof(offset), &offset);
  return 2;
}

}  // namespace

#define OPSMITH_EXPORTED extern "C" __attribute__((visibility("default")))

OPSMITH_EXPORTED opsmith_status opsmith_compute_device_limits(int device, opsmith_compute_limits* limits) {
  return entry([&] {
    const DeviceFacts& facts = device_facts(device);
    *limits = {.group_items = static_cast<uint32_t>(std::min<size_t>(facts.group_items, UINT32_MAX)),
               .local_memory = static_cast<uint32_t>(std::min<cl_ulong>(facts.local_memory, UINT32_MAX)),
               .units = facts.units,
               .is_cpu = facts.is_cpu ? 1 : 0,
               .has_double = facts.has_double ? 1 : 0};
  });
}

OPSMITH_EXPORTED const char* opsmith_compute_dialect(void) {
  return kDialect;
}

OPSMITH_EXPORTED opsmith_status opsmith_compute_compile(int device, const char* source, const char* name,
                                                        opsmith_compute_kernel* kernel) {
  return entry([&] {
    const cl_program program = build_program(device, source);
    cl_int error = kSuccess;
    const cl_kernel made = api().CreateKernel(program, name, &error);
    check(error, "find a kernel in its program");
    *kernel = new opsmith_compute_kernel_s{made, name, {}};
  });
}

OPSMITH_EXPORTED opsmith_status opsmith_compute_launch(opsmith_compute_kernel kernel, opsmith_stream stream,
                                                       const size_t groups[3], const size_t items[3],
                                                       const opsmith_compute_argument* arguments, int count) {
  return entry([&] {
    const std::lock_guard lock(kernel->mutex);
    cl_uint index = 0;
    for (int i = 0; i < count; ++i) {
      index += set(kernel->kernel, index, arguments[i]);
    }
    const size_t global[3] = {groups[0] * items[0], groups[1] * items[1], groups[2] * items[2]};
    const cl_uint dimensions = global[2] > 1 ? 3 : global[1] > 1 ? 2 : 1;
    const std::string action = "launch `" + kernel->name + "`";
    stream->add(action.c_str(), [&](cl_command_queue queue, cl_event* event) {
      const cl_int error = api().EnqueueNDRangeKernel(queue, kernel->kernel, dimensions, nullptr, global,
                                                      items, 0, nullptr, event);
      if (error == kSuccess) {
        api().Flush(queue);
      }
      return error;
    });
  });
}

OPSMITH_EXPORTED opsmith_status opsmith_compute_faults(opsmith_stream stream, const void** address) {
  return entry([&] { *address = stream->faults(); });
}
