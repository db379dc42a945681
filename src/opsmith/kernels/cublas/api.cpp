// See api.h.
#include "api.h"

#include <dlfcn.h>

#include <c10/util/Exception.h>
#include <opsmith_vendor_library.h>

namespace opsmith::cublas {
namespace {

constexpr const char* kRemedy =
    "; pip install nvidia-cublas, which a CUDA build of torch brings, name its libcublas.so in "
    "OPSMITH_CUBLAS_LIBRARY, or leave the library `cublas` out of the description";

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  TORCH_CHECK_NOT_IMPLEMENTED(function != nullptr, "the cuBLAS here lacks ", name, kRemedy);
}

Api open_api() {
  // In nvidia/cublas/lib or, with CUDA 13, nvidia/cu13/lib.
  void* const library = open_vendor_library(
      library_named_by("OPSMITH_CUBLAS_LIBRARY"),
      {beside_torch("/../../nvidia/*/lib/libcublas.so.[0-9]*"), "libcublas.so.13", "libcublas.so.12"});
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
