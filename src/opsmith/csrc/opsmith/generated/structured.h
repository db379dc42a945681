// The class around a structured kernel, functional, in place or out. PyTorch's own at::meta::structured_*
// class, the template argument, checks the arguments and announces each result through set_output_*(); this
// class answers by allocating it, resizing `out`, or checking `self`. So no temporary and no second
// allocation is made.
//
// Note [The common dtype]
// ~~~~~~~~~~~~~~~~~~~~~~~
// TensorIterator casts its operands to the common dtype on the CPU only. On every other device x + 1, int +
// float and out=double reach the kernel with the operands' own dtypes, and a kernel that reads all of them as
// one type computes nonsense. run_iterator() keeps TensorIterator's promise: every input has the common
// dtype, and so has every output unless the operator is a predicate, whose output is Bool. Kernels on lean
// tensors cast their inputs; their outputs are Structured::promised(), or half + half would not overflow in
// out=float as it does on the CPU.
#pragma once

#include <opsmith/generated/each_tensor.h>
#include <opsmith/torch_version.h>

#include <array>
#include <optional>
#include <type_traits>

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

namespace opsmith {

template <class Meta>
inline constexpr bool kIsIterator = std::is_base_of_v<at::TensorIteratorBase, Meta>;

// How the Tensors that a structured operator is given take its results.
enum class Given { kOut, kInplace };

// Which elements of its operands a kernel reads for one element of the result: that at its place, or others.
enum class Reads { kSamePlace, kAnywhere };

namespace detail {

// Whether an output of dtype `out` is what a kernel expects that computes in `common`: a predicate's is Bool.
inline bool has_promised_dtype(at::ScalarType out, at::ScalarType common) {
  return out == common || out == at::kBool;
}

// One result of a structured operator: allocated, or written to a Tensor that was given.
class Output {
 public:
  Output() = default;
  Output(Given how, const at::Tensor& given) : given_(&given), how_(how), written_(given) {}

  // Makes room for a result as the meta function announces it. `strided`: the kernel needs these very
  // strides. `at_once`: the given Tensor is resized now, because a TensorIterator holds it.
  void set(bool strided, bool at_once, at::IntArrayRef sizes, at::IntArrayRef strides,
           const at::TensorOptions& options);

  // The given Tensor, one that stands in for it, or the allocated result. Meta functions ask for it once and
  // look at it before and after they have announced the result, as for what it overlaps once it is resized.
  const at::Tensor& announced() const { return written_; }
  // The same after the meta function: what the kernel writes to.
  const at::Tensor& written() {
    if (C10_UNLIKELY(options_.has_value())) {
      allocate_announced();
    }
    return written_;
  }
  at::Tensor& allocated() { return written_; }

  // Has the kernel write to a stand-in where the given Tensor lies in the memory of what it reads.
  void keep_apart(Reads reads, const at::TensorBase& operand) {
    if (C10_UNLIKELY(!has_stand_in() &&
                     operand.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() ==
                         given_->unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl())) {
      stand_in_for(reads, operand);
    }
  }

  // Has the kernel write to a stand-in where the given Tensor has not the dtype that it computes in.
  void promote(at::ScalarType common);

  // Resizes the given Tensor where it was left as it is, since it may be an operand.
  void settle() const;

  // Copies what was written to a stand-in to where it belongs.
  void finish() const {
    if (C10_UNLIKELY(has_stand_in())) {
      copy_back();
    }
  }

 private:
  bool has_stand_in() const { return !written_.is_same(*given_); }
  void copy_back() const;
  void allocate_announced();
  void stand_in_for(Reads reads, const at::TensorBase& operand);

  const at::Tensor* given_ = nullptr;
  Given how_ = Given::kOut;
  at::Tensor written_;
  // Given while `written_` only shows what the given Tensor will be.
  std::optional<at::TensorOptions> options_;
};

}  // namespace detail

// A structured operator. One class for all variants: each class per operator takes a tenth of a second to
// compile.
template <class Meta, size_t kOutputs>
class Structured final : public Meta {
 public:
  // The results are allocated.
  Structured() = default;
  // They go into the given Tensors: `out`, or `self`.
  template <class... Outputs>
  explicit Structured(Given how, const Outputs&... outputs) : outputs_{detail::Output(how, outputs)...} {}

  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options OPSMITH_NAMES_PARAMETER) override {
    outputs_[index].set(true, kIsIterator<Meta>, sizes, strides, options);
    if constexpr (kIsIterator<Meta>) {
      Meta::set_output_raw_strided(index, sizes, strides, options OPSMITH_NAMES_ARGUMENT);
    }
  }
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options OPSMITH_NAMES_PARAMETER) override {
    outputs_[index].set(false, kIsIterator<Meta>, sizes, strides, options);
    if constexpr (kIsIterator<Meta>) {
      Meta::set_output_raw_strided(index, sizes, strides, options OPSMITH_NAMES_ARGUMENT);
    }
  }
  const at::Tensor& maybe_get_output(int64_t index) override { return outputs_[index].announced(); }

  // Between meta() and the kernel: what the given Tensor is once it is resized, to be looked at only.
  const at::Tensor& announced(size_t index) const { return outputs_[index].announced(); }
  // The Tensor that the kernel writes to.
  const at::Tensor& result(size_t index) { return outputs_[index].written(); }
  // Called after meta(): strides the only result, whose dimensions are `format`'s.
  void set_memory_format(at::MemoryFormat format) {
    if (format != at::MemoryFormat::Contiguous) {
      result(0).unsafeGetTensorImpl()->empty_tensor_restride(format);
    }
  }
  // Called between meta() and the kernel, with all that the kernel reads: result() shares no memory with that
  // afterwards, unless both are the same elements and the kernel reads what it overwrites first.
  template <class... Operands>
  void keep_apart(Reads reads, const Operands&... operands) {
    for (detail::Output& output : outputs_) {
      (each_tensor(operands, [&](const at::TensorBase& operand) { output.keep_apart(reads, operand); }), ...);
    }
  }
  // The same in the dtype that TensorIterator promises, for kernels without one: see Note [The common dtype].
  const at::Tensor& promised(size_t index) {
    if constexpr (kIsIterator<Meta>) {
      if (const auto common = common_dtype_of(*this)) {
        outputs_[index].promote(*common);
      }
    }
    return result(index);
  }
  // The result of a functional variant, to be returned.
  at::Tensor&& take(size_t index) { return std::move(outputs_[index].allocated()); }

  // Called where something else than the kernel writes to the given Tensors, before it does.
  void settle() {
    for (const detail::Output& output : outputs_) {
      output.settle();
    }
  }

  // Called after the kernel, where Tensors were given.
  void finish() {
    for (const detail::Output& output : outputs_) {
      output.finish();
    }
  }

 private:
  std::array<detail::Output, kOutputs> outputs_;
};

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
