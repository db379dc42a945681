// The entries of opsmith_compute.h: kernels compiled by NVRTC, and launched.
#include <opsmith_compute.h>

#include <algorithm>
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
constexpr std::array<const char*, 3> kOptions{"--std=c++17", "--device-as-default-execution-space", "-w"};

// The target that NVRTC compiles for: "sm_90", which that device loads as it is, or "compute_90", which the
// driver translates for a device that is newer than NVRTC. Throws Failure for a device that NVRTC has given
// up.
std::string target_of(int major, int minor) {
  const int wanted = 10 * major + minor;
  int count = 0;
  nvrtc().GetNumSupportedArchs(&count);
  std::vector<int> known(static_cast<size_t>(count));
  nvrtc().GetSupportedArchs(known.data());
  int newest = 0;
  for (const int each : known) {
    if (each == wanted) {
      return "sm_" + std::to_string(wanted);
    }
    newest = each < wanted ? std::max(newest, each) : newest;
  }
  if (newest == 0) {
    throw Failure(OPSMITH_FAILED, "NVRTC " + nvrtc_version() + " makes no code for sm_" +
                                      std::to_string(wanted) +
                                      ": name the libnvrtc.so of an older one in OPSMITH_NVRTC_LIBRARY");
  }
  return "compute_" + std::to_string(newest);
}

// `source` for target_of() a device: machine code, or PTX.
std::string compile(const std::string& source, const std::string& target) {
  nvrtcProgram program = nullptr;
  if (nvrtc().CreateProgram(&program, source.c_str(), "kernel.cu", 0, nullptr, nullptr) != 0) {
    throw Failure(OPSMITH_FAILED, "NVRTC cannot read a kernel's source");
  }
  const std::string architecture = "--gpu-architecture=" + target;
  const std::array<const char*, 4> options{architecture.c_str(), kOptions[0], kOptions[1], kOptions[2]};
  const int error = nvrtc().CompileProgram(program, options.size(), options.data());
  size_t size = 0;
  std::string text;
  if (error != 0) {
    nvrtc().GetProgramLogSize(program, &size);
    text.resize(size);
    nvrtc().GetProgramLog(program, text.data());
  } else if (target.starts_with("sm_")) {
    nvrtc().GetCUBINSize(program, &size);
    text.resize(size);
    nvrtc().GetCUBIN(program, text.data());
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

void check_loaded(CUresult error, const std::string& target) {
  if (error == kInvalidImage || error == kNoBinaryForGpu || error == kInvalidPtx ||
      error == kUnsupportedPtxVersion) {
    throw Failure(OPSMITH_FAILED, "NVIDIA's driver, of CUDA " + driver_version() +
                                      ", does not load what NVRTC " + nvrtc_version() + " makes for " +
                                      target + ": " + text_of(error) +
                                      "; update the driver, or name the libnvrtc.so of an NVRTC that is no "
                                      "newer than it in OPSMITH_NVRTC_LIBRARY");
  }
  check(error, "load a kernel");
}

// Compiled, or found on disk: for this target, by this NVRTC with these options, for this driver.
CUmodule load(const Device& device, const std::string& source) {
  const std::string target = target_of(device.major, device.minor);
  std::string key = target + ", NVRTC " + nvrtc_version() + ", driver of CUDA " + driver_version();
  for (const char* const option : kOptions) {
    key = key + " " + option;
  }
  key += "\n" + source;
  CUmodule module = nullptr;
  const std::optional<std::string> found = driver_parts::cached_binary("cuda_driver", key);
  if (!found.has_value() || api().ModuleLoadData(&module, found->c_str()) != kSuccess) {
    const std::string binary = compile(source, target);
    check_loaded(api().ModuleLoadData(&module, binary.c_str()), target);
    driver_parts::cache_binary("cuda_driver", key, binary);
  }
  return module;
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
    const CUmodule module = load(use_device(device), source);
    CUfunction function = nullptr;
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

// `source` for a compute capability, without a device: what tests compile kernels with.
OPSMITH_EXPORTED opsmith_status opsmith_cuda_compile(const char* source, int major, int minor) {
  return entry([&] { compile(source, target_of(major, minor)); });
}
