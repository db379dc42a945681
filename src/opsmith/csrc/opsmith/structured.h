// The functional, in-place and out classes around a structured kernel. PyTorch's own at::meta::structured_*
// class, the template argument, checks the arguments and announces each result through set_output_*(); these
// classes answer by allocating it, resizing `out`, or checking `self`. So no temporary and no second
// allocation is made.
//
// Note [The common dtype]
// ~~~~~~~~~~~~~~~~~~~~~~~
// TensorIterator casts its operands to the common dtype on the CPU only. On every other device x + 1, int +
// float and out=double reach the kernel with the operands' own dtypes, and a kernel that reads all of them as
// one type computes nonsense. run_iterator() keeps TensorIterator's promise: every input has the common
// dtype, and so has every output unless the operator is a predicate, whose output is Bool.
#pragma once

#include <opsmith/torch_version.h>

#include <array>
#include <functional>
#include <optional>
#include <type_traits>

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace opsmith {

namespace detail {

at::Tensor allocate(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options);

// The contract of `out=`: dtype and device must be the result's; another size is resized, with PyTorch's
// warning.
void resize_out(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions& options);

// The contract of an in-place operator: sizes, dtype and device of `self` must be the result's.
void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options);

// A tensor of the strides that the kernel asks for, when `out` has others.
std::optional<at::Tensor> stand_in(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                                   const at::TensorOptions& options);

}  // namespace detail

template <class Meta>
inline constexpr bool kIsIterator = std::is_base_of_v<at::TensorIteratorBase, Meta>;

// A structured operator whose results are allocated.
template <class Meta, size_t kOutputs>
class Functional final : public Meta {
 public:
  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    outputs_[index] = detail::allocate(sizes, strides, options);
    if constexpr (kIsIterator<Meta>) {
      Meta::set_output_raw_strided(index, sizes, strides, options);
    }
  }
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    set_output_strided(index, sizes, strides, options);
  }
  const at::Tensor& maybe_get_output(int64_t index) override { return outputs_[index]; }

  at::Tensor& result(size_t index) { return outputs_[index]; }

 private:
  std::array<at::Tensor, kOutputs> outputs_;
};

// A structured operator whose results go into given Tensors: `out`, or `self` where kInplace.
template <class Meta, size_t kOutputs, bool kInplace>
class Into final : public Meta {
 public:
  template <class... Outputs>
  explicit Into(const Outputs&... outputs) : outputs_{outputs...} {}

  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) override {
    accept(index, sizes, strides, options);
    stand_ins_[index] = detail::stand_in(outputs_[index], sizes, strides, options);
    if constexpr (kIsIterator<Meta>) {
      Meta::set_output_raw_strided(index, sizes, strides, options);
    }
  }
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) override {
    accept(index, sizes, strides, options);
    if constexpr (kIsIterator<Meta>) {
      Meta::set_output_raw_strided(index, sizes, strides, options);
    }
  }
  const at::Tensor& maybe_get_output(int64_t index) override {
    return stand_ins_[index].has_value() ? *stand_ins_[index] : outputs_[index].get();
  }

  // What the kernel writes to.
  const at::Tensor& result(size_t index) { return maybe_get_output(index); }

  // Copies what was written to a stand-in to where it belongs. Called after the kernel.
  void finish() {
    for (size_t index = 0; index < kOutputs; ++index) {
      if (C10_UNLIKELY(stand_ins_[index].has_value())) {
        outputs_[index].get().copy_(*stand_ins_[index]);
      }
    }
  }

 private:
  void accept(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
              const at::TensorOptions& options) {
    if constexpr (kInplace) {
      detail::check_inplace(outputs_[index], sizes, options);
    } else {
      detail::resize_out(outputs_[index], sizes, strides, options);
    }
  }

  std::array<std::reference_wrapper<const at::Tensor>, kOutputs> outputs_;
  std::array<std::optional<at::Tensor>, kOutputs> stand_ins_;
};

template <class Meta, size_t kOutputs>
using Out = Into<Meta, kOutputs, false>;
template <class Meta>
using Inplace = Into<Meta, 1, true>;

namespace detail {

bool has_promised_dtypes(const at::TensorIteratorBase& iter);
void run_promoted(at::TensorIteratorBase& iter, c10::function_ref<void(at::TensorIteratorBase&)> kernel);

}  // namespace detail

// Runs `kernel(iter)` with all operands in the promised dtypes. See Note [The common dtype].
template <class Kernel>
inline void run_iterator(at::TensorIteratorBase& iter, const Kernel& kernel) {
  if (C10_LIKELY(detail::has_promised_dtypes(iter))) {
    kernel(iter);
  } else {
    detail::run_promoted(iter, kernel);
  }
}

}  // namespace opsmith
