// The dtypes that a kernel takes, as a set that is one word: generated code asks it before it calls the
// kernel.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <ATen/TensorIterator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <opsmith/torch_version.h>

namespace opsmith {

class DtypeSet {
 public:
  constexpr DtypeSet(std::initializer_list<c10::ScalarType> dtypes) {
    for (const c10::ScalarType dtype : dtypes) {
      bits_ |= bit(dtype);
    }
  }

  constexpr bool has(c10::ScalarType dtype) const { return (bits_ & bit(dtype)) != 0; }

  bool has(const at::TensorBase& tensor) const { return !tensor.defined() || has(tensor.scalar_type()); }

  bool has(const std::optional<at::Tensor>& tensor) const { return !tensor.has_value() || has(*tensor); }

  bool has(const at::ITensorListRef& tensors) const {
    for (const at::Tensor& tensor : tensors) {
      if (!has(tensor)) {
        return false;
      }
    }
    return true;
  }

  // The dtype that a structured kernel computes in is the iterator's common one.
  bool has(const at::TensorIteratorBase& iter) const {
    return has(common_dtype_of(iter).value_or(iter.ninputs() > 0 ? iter.input_dtype() : iter.dtype()));
  }

 private:
  static constexpr uint64_t bit(c10::ScalarType dtype) { return uint64_t{1} << static_cast<int>(dtype); }

  uint64_t bits_ = 0;
};

}  // namespace opsmith
