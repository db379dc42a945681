// See api.h.
#include "api.h"

#include "../common/nvidia_library.h"

namespace opsmith::cublas {
namespace {

constexpr const char* kRemedy =
    "; pip install nvidia-cublas, which a CUDA build of torch brings, name its libcublas.so in "
    "OPSMITH_CUBLAS_LIBRARY, or leave the library `cublas` out of the description";

}  // namespace

const Api& api() {
  static const Api opened = [] {  // again at the next call where it raises
    // In nvidia/cublas/lib or, with CUDA 13, nvidia/cu13/lib.
    const nvidia::Library library(
        "cuBLAS", "multiplies matrices", kRemedy, "OPSMITH_CUBLAS_LIBRARY",
        {beside_torch("/../../nvidia/*/lib/libcublas.so.[0-9]*"), "libcublas.so.13", "libcublas.so.12"});
    Api found;
    library.find("cublasCreate_v2", found.Create);
    library.find("cublasSetStream_v2", found.SetStream);
    library.find("cublasGemmStridedBatchedEx", found.Multiply);
    return found;
  }();
  return opened;
}

}  // namespace opsmith::cublas
