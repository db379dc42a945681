// The entries of opsmith_compute.h: kernels compiled by NVRTC, and launched.
#include <opsmith_compute.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "../shared/binary_cache.h"
#include "device.h"
#include "errors.h"
#include "stream.h"

struct opsmith_compute_kernel_s {
  CUfunction function;
  std::string name;
};

namespace {

using namespace cuda;

constexpr const char* kDialect =
#include "dialect.cu"
    ;
constexpr size_t kMostArguments = 64;

// PTX of `source` for a device of compute capability `major`.`minor`.
std::string compile(const std::string& source, int major, int minor) {
  nvrtcProgram program = nullptr;
  if (nvrtc().CreateProgram(&program, source.c_str(), "kernel.cu", 0, nullptr, nullptr) != 0) {
    throw Failure(OPSMITH_FAILED, "NVRTC cannot read a kernel's source");
  }
  const std::string architecture =
      "--gpu-architecture=compute_" + std::to_string(major) + std::to_string(minor);
  const std::array<const char*, 4> options{architecture.c_str(), "--std=c++17",
                                           "--device-as-default-execution-space", "-w"};
  const int error = nvrtc().CompileProgram(program, options.size(), options.data());
  size_t size = 0;
  std::string text;
  if (error != 0) {
    nvrtc().GetProgramLogSize(program, &size);
    text.resize(size);
    nvrtc().GetProgramLog(program, text.data());
  } else {
    nvrtc().GetPTXSize(program, &size);
    text.resize(size);
    nvrtc().GetPTX(program, text.data());
  }
  nvrtc().DestroyProgram(&program);
  if (error != 0) {
    throw Failure(OPSMITH_FAILED, "NVRTC refuses the kernel:\n" + text);
  }
  return text;
}

std::string ptx_of(const Device& device, const std::string& source) {
  int major = 0;
  int minor = 0;
  nvrtc().Version(&major, &minor);
  const std::string key = "NVRTC " + std::to_string(major) + "." + std::to_string(minor) + " compute_" +
                          std::to_string(device.major) + std::to_string(device.minor) + "\n" + source;
  if (std::optional<std::string> found = driver_parts::cached_binary("cuda_driver", key)) {
    return *found;
  }
  std::string ptx = compile(source, device.major, device.minor);
  driver_parts::cache_binary("cuda_driver", key, ptx);
  return ptx;
}

}  // namespace

#define OPSMITH_EXPORTED extern "C" __attribute__((visibility("default")))

OPSMITH_EXPORTED opsmith_status opsmith_compute_device_limits(int device, opsmith_compute_limits* limits) {
  return entry([&] {
    const Device& found = use_device(device);
    *limits = {.group_items = static_cast<uint32_t>(found.group_items),
               .local_memory = static_cast<uint32_t>(found.local_memory),
               .units = static_cast<uint32_t>(found.multiprocessors),
               .is_cpu = 0,
               .has_double = 1};
  });
}

OPSMITH_EXPORTED const char* opsmith_compute_dialect(void) {
  return kDialect;
}

OPSMITH_EXPORTED opsmith_status opsmith_compute_compile(int device, const char* source, const char* name,
                                                        opsmith_compute_kernel* kernel) {
  return entry([&] {
    const std::string ptx = ptx_of(use_device(device), source);
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    check(api().ModuleLoadData(&module, ptx.c_str()), "load a kernel");
    check(api().ModuleGetFunction(&function, module, name), "find a kernel in its module");
    *kernel = new opsmith_compute_kernel_s{function, name};
  });
}

OPSMITH_EXPORTED opsmith_status opsmith_compute_launch(opsmith_compute_kernel kernel, opsmith_stream stream,
                                                       const size_t groups[3], const size_t items[3],
                                                       const opsmith_compute_argument* arguments, int count) {
  return entry([&] {
    // A buffer is passed as its address and an offset, which is 0.
    static unsigned long no_offset = 0;
    std::array<void*, 2 * kMostArguments> pointers;
    std::array<const void*, kMostArguments> addresses;
    if (static_cast<size_t>(count) > kMostArguments) {
      throw Failure(OPSMITH_INVALID_ARGUMENT, "a kernel has too many arguments");
    }
    size_t used = 0;
    for (int i = 0; i < count; ++i) {
      if (arguments[i].size != 0) {
        pointers[used++] = const_cast<void*>(arguments[i].value);
        continue;
      }
      addresses[static_cast<size_t>(i)] = arguments[i].value;
      pointers[used++] = &addresses[static_cast<size_t>(i)];
      pointers[used++] = &no_offset;
    }
    use_device(stream->device);
    const auto size = [](size_t value) { return static_cast<unsigned>(value); };
    check(api().LaunchKernel(kernel->function, size(groups[0]), size(groups[1]), size(groups[2]),
                             size(items[0]), size(items[1]), size(items[2]), 0, stream->stream,
                             pointers.data(), nullptr),
          ("launch `" + kernel->name + "`").c_str());
  });
}

OPSMITH_EXPORTED opsmith_status opsmith_compute_faults(opsmith_stream stream, const void** address) {
  return entry([&] { *address = stream->faults(); });
}

// PTX of `source` for a compute capability, without a device: what tests compile kernels with.
OPSMITH_EXPORTED opsmith_status opsmith_cuda_compile(const char* source, int major, int minor) {
  return entry([&] { compile(source, major, minor); });
}
