// See api.h.
#include "api.h"

#include <dlfcn.h>
#include <glob.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <string>

#include <c10/util/Exception.h>

namespace opsmith::cublas {
namespace {

constexpr const char* kRemedy =
    "; pip install nvidia-cublas, which a CUDA build of torch brings, name its libcublas.so in "
    "OPSMITH_CUBLAS_LIBRARY, or leave the library `cublas` out of the description";

// Of nvidia/cublas/lib or, with CUDA 13, nvidia/cu13/lib; empty where there is none.
std::string beside_torch() {
  void* const torch = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
  std::array<char, PATH_MAX> folder{};
  if (torch == nullptr || dlinfo(torch, RTLD_DI_ORIGIN, folder.data()) != 0) {
    return "";
  }
  const std::string pattern = std::string(folder.data()) + "/../../nvidia/*/lib/libcublas.so.[0-9]*";
  glob_t found{};
  const bool any = glob(pattern.c_str(), 0, nullptr, &found) == 0;
  const std::string path = any ? found.gl_pathv[found.gl_pathc - 1] : "";  // the newest, in order of names
  globfree(&found);
  return path;
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  TORCH_CHECK_NOT_IMPLEMENTED(function != nullptr, "the cuBLAS here lacks ", name, kRemedy);
}

Api open_api() {
  const char* const named = std::getenv("OPSMITH_CUBLAS_LIBRARY");  // NOLINT(concurrency-mt-unsafe)
  void* library = nullptr;
  if (named != nullptr && *named != '\0') {
    library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
  } else {
    for (const std::string& name :
         {beside_torch(), std::string("libcublas.so.13"), std::string("libcublas.so.12")}) {
      library = library == nullptr && !name.empty() ? dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL) : library;
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(library != nullptr, "cuBLAS, which multiplies matrices, is missing", kRemedy);
  Api found;
  find(library, "cublasCreate_v2", found.Create);
  find(library, "cublasSetStream_v2", found.SetStream);
  find(library, "cublasGemmStridedBatchedEx", found.Multiply);
  return found;
}

}  // namespace

const Api& api() {
  static const Api found = open_api();  // again at the next call where it raises
  return found;
}

}  // namespace opsmith::cublas
