// See api.h.
#include "api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "errors.h"

namespace opencl {
namespace {

constexpr const char* kLibrary = "OPSMITH_OPENCL_LIBRARY";
constexpr const char* kRemedy =
    "install an OpenCL implementation, such as apt-get install pocl-opencl-icd ocl-icd-libopencl1 (Debian, "
    "Ubuntu)";

void* open_library() {
  const char* const named = std::getenv(kLibrary);  // NOLINT(concurrency-mt-unsafe)
  const char* const name = named != nullptr && *named != '\0' ? named : "libOpenCL.so.1";
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();  // NOLINT(concurrency-mt-unsafe)
    throw Failure(OPSMITH_FAILED, std::string("there is no OpenCL here: ") + (reason ? reason : name) + "; " +
                                      kRemedy + ", or name the library in " + kLibrary);
  }
  return library;
}

Api find_functions() {
  void* const library = open_library();
  Api api;
  const auto find = [&](const char* name) {
    void* const function = dlsym(library, name);
    if (function == nullptr) {
      throw Failure(OPSMITH_FAILED,
                    std::string("the OpenCL library lacks ") + name + ", which OpenCL 1.2 has; " + kRemedy);
    }
    return function;
  };
#define OPSMITH_OPENCL_FIND(name, result, parameters) \
  api.name = reinterpret_cast<result(*) parameters>(find("cl" #name));
  OPSMITH_OPENCL_FUNCTIONS(OPSMITH_OPENCL_FIND)
#undef OPSMITH_OPENCL_FIND
  return api;
}

}  // namespace

const Api& api() {
  static const Api found = find_functions();
  return found;
}

}  // namespace opencl
