// See api.h.
#include "api.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <string>

#include "errors.h"

namespace cuda {
namespace {

void* find(void* library, const char* name, const char* remedy) {
  void* const function = dlsym(library, name);
  if (function == nullptr) {
    throw Failure(OPSMITH_FAILED, std::string("NVIDIA's library lacks ") + name + "; " + remedy);
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
  if (error != kSuccess) {
    throw Failure(OPSMITH_FAILED, (error == kNoDevice ? std::string("NVIDIA's driver finds no device")
                                                      : "NVIDIA's driver cannot start (error " +
                                                            std::to_string(error) + ")") +
                                      ": " + remedy);
  }
  return found;
}

// NVIDIA's wheel of NVRTC beside the torch that this process has loaded; empty where there is none.
std::string nvrtc_beside_torch() {
  void* const torch = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
  std::array<char, PATH_MAX> folder{};
  if (torch == nullptr || dlinfo(torch, RTLD_DI_ORIGIN, folder.data()) != 0) {
    return "";
  }
  const std::string pattern = std::string(folder.data()) + "/../../nvidia/*/lib/libnvrtc.so.[0-9]*";
  glob_t found{};
  const bool any = glob(pattern.c_str(), 0, nullptr, &found) == 0;
  const std::string path = any ? found.gl_pathv[found.gl_pathc - 1] : "";  // the newest, in order of names
  globfree(&found);
  return path;
}

Nvrtc open_compiler() {
  constexpr const char* remedy =
      "pip install nvidia-cuda-nvrtc, which a CUDA build of torch brings, or name its libnvrtc.so in "
      "OPSMITH_NVRTC_LIBRARY";
  const char* const named = std::getenv("OPSMITH_NVRTC_LIBRARY");  // NOLINT(concurrency-mt-unsafe)
  const std::string beside_torch = nvrtc_beside_torch();
  void* library = nullptr;
  for (const char* const name :
       {named != nullptr ? named : "", beside_torch.c_str(), "libnvrtc.so.13", "libnvrtc.so.12"}) {
    if (library == nullptr && *name != '\0') {
      library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
  }
  if (library == nullptr) {
    throw Failure(OPSMITH_FAILED, std::string("NVRTC, which compiles kernels, is missing: ") + remedy);
  }
  Nvrtc found;
  OPSMITH_NVRTC_FUNCTIONS(OPSMITH_CUDA_FIND)
  return found;
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

}  // namespace cuda
