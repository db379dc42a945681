// The dtypes of a list some of whose Tensors may be None, as `index` and `index_put` take one.
#pragma once

#include <opsmith/generated/dtype_set.h>
#include <opsmith/generated/each_tensor.h>

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

namespace opsmith {

// Whether each Tensor that is given has one of `dtypes`.
inline bool all_have(const DtypeSet& dtypes, const c10::List<std::optional<at::Tensor>>& tensors) {
  bool all = true;
  each_tensor(tensors, [&](const at::TensorBase& tensor) { all = all && dtypes.has(tensor); });
  return all;
}

}  // namespace opsmith
