// See api.h.
#include "api.h"

#include <dlfcn.h>
#include <opsmith_vendor_library.h>

#include <initializer_list>
#include <string>

#include "errors.h"

namespace cuda {
namespace {

void* find(void* library, const char* name, const char* remedy) {
  void* const function = dlsym(library, name);
  if (function == nullptr) {
    throw Failure(OPSMITH_FAILED,
                  std::string("NVIDIA's library is too old, it lacks ") + name + ": " + remedy);
  }
  return function;
}

#define OPSMITH_CUDA_FIND(name, exported, parameters) \
  found.name = reinterpret_cast<int(*) parameters>(find(library, exported, remedy));

Api open_driver() {
  constexpr const char* remedy = "install NVIDIA's driver, and see that `nvidia-smi` lists the device";
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Failure(OPSMITH_FAILED, std::string("there is no NVIDIA driver here (libcuda.so.1): ") + remedy);
  }
  Api found;
  OPSMITH_CUDA_FUNCTIONS(OPSMITH_CUDA_FIND)
  const CUresult error = found.Init(0);
  if (error == kNoDevice) {
    throw Failure(OPSMITH_FAILED,
                  "NVIDIA's driver finds no device: see that `nvidia-smi` lists it, and that "
                  "CUDA_VISIBLE_DEVICES does not hide it");
  }
  if (error != kSuccess) {
    const char* text = nullptr;
    found.GetErrorString(error, &text);
    throw Failure(OPSMITH_FAILED, std::string("NVIDIA's driver cannot start: ") +
                                      (text != nullptr ? text : "an unknown error") + " (" +
                                      std::to_string(error) + "); " + remedy);
  }
  return found;
}

// A library of NVIDIA's wheels beside the torch that this process has loaded; empty where there is none.
std::string of_wheels(const std::string& name) {
  return opsmith::beside_torch("/../../nvidia/*/lib/" + name);
}

// The library that an environment variable names, or the first of `others` that opens. Throws Failure where
// none does.
void* open_named_library(const char* variable, std::initializer_list<std::string> others, const char* missing,
                         const char* remedy) {
  const std::string named = opsmith::library_named_by(variable);
  void* const library = opsmith::open_vendor_library(named, others);
  if (library == nullptr) {
    throw Failure(
        OPSMITH_FAILED,
        (named.empty() ? missing : variable + (" names no library that opens: " + named)) + "; " + remedy);
  }
  return library;
}

Nvrtc open_compiler() {
  constexpr const char* remedy =
      "pip install nvidia-cuda-nvrtc, which a CUDA build of torch brings, or name its libnvrtc.so in "
      "OPSMITH_NVRTC_LIBRARY";
  void* const library = open_named_library(
      "OPSMITH_NVRTC_LIBRARY", {of_wheels("libnvrtc.so.[0-9]*"), "libnvrtc.so.13", "libnvrtc.so.12"},
      "NVRTC, which compiles kernels, is missing", remedy);
  Nvrtc found;
  OPSMITH_NVRTC_FUNCTIONS(OPSMITH_CUDA_FIND)
  return found;
}

Nccl open_collectives() {
  constexpr const char* remedy =
      "pip install nvidia-nccl-cu13, or -cu12, which a CUDA build of torch brings, or name its "
      "libnccl.so.2 in OPSMITH_NCCL_LIBRARY; OPSMITH_COLLECTIVES=off has collectives go by the host";
  constexpr const char* kName = "libnccl.so.2";
  void* const library =
      open_named_library("OPSMITH_NCCL_LIBRARY", {of_wheels(kName), kName},
                         "NCCL, which carries collectives between GPUs, is missing", remedy);
  Nccl found;
  OPSMITH_NCCL_FUNCTIONS(OPSMITH_CUDA_FIND)
  found.GetErrorString =
      reinterpret_cast<const char* (*)(ncclResult)>(find(library, "ncclGetErrorString", remedy));
  found.GetLastError = reinterpret_cast<const char* (*)(ncclComm)>(find(library, "ncclGetLastError", remedy));
  return found;
}

Nvtx open_ranges() {
  constexpr const char* kOfCuda12 = "libnvToolsExt.so.1";
  constexpr const char* kOfCuda13 = "libnvtx3interop.so.1";
  void* const library =
      opsmith::open_vendor_library("", {of_wheels(kOfCuda13), of_wheels(kOfCuda12), kOfCuda13, kOfCuda12});
  Nvtx found;
  if (library != nullptr) {
    found.RangePushA = reinterpret_cast<int (*)(const char*)>(dlsym(library, "nvtxRangePushA"));
    found.RangePop = reinterpret_cast<int (*)()>(dlsym(library, "nvtxRangePop"));
  }
  return found.RangePushA != nullptr && found.RangePop != nullptr ? found : Nvtx{};
}

std::string version_text(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}
#undef OPSMITH_CUDA_FIND

}  // namespace

const Api& api() {
  static const Api found = open_driver();
  return found;
}

const Nvrtc& nvrtc() {
  static const Nvrtc found = open_compiler();
  return found;
}

const Nccl& nccl() {
  static const Nccl found = open_collectives();
  return found;
}

const Nvtx& nvtx() {
  static const Nvtx found = open_ranges();
  return found;
}

std::string driver_version() {
  int version = 0;
  api().DriverGetVersion(&version);
  return version_text(version / 1000, version % 1000 / 10);
}

std::string nvrtc_version() {
  int major = 0;
  int minor = 0;
  nvrtc().Version(&major, &minor);
  return version_text(major, minor);
}

}  // namespace cuda
