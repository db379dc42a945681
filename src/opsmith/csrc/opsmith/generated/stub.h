// The functions with which generated code fills a DispatchStub: StubKernel<"abs_stub", &chip::abs, …>::call
// is one of the stub's own type around the author's kernel.
//
// The code that calls a stub is PyTorch's and was written for devices on which TensorIterator casts. So what
// a kernel is promised elsewhere is kept here, at the last moment before it runs: operands in the common
// dtype (Note [The common dtype]), the dtypes that its description names, and, for a kernel that runs on the
// host, a device that is idle. The caller has made the operands' device current, and counts a kernel on
// copies.
#pragma once

#include <opsmith/generated/call.h>
#include <opsmith/generated/dtype_set.h>
#include <opsmith/generated/literal.h>
#include <opsmith/generated/on_copies.h>
#include <opsmith/generated/structured.h>

#include <type_traits>
#include <utility>

#include <ATen/TensorIterator.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace opsmith {

// A stub was called in a dtype that its kernel does not take, and has done nothing. What is generated around
// the operators that call it catches this and does what the description says of other dtypes.
class StubRejected : public c10::NotImplementedError {
 public:
  StubRejected(const char* stub, at::ScalarType dtype)
      : c10::NotImplementedError(c10::SourceLocation{__func__, __FILE__, __LINE__},
                                 c10::str("the kernel of ", stub, " does not take the dtype ", dtype,
                                          "; its description names those that it takes")) {}
};

template <class First = void, class... Rest>
constexpr bool takes_iterator() {
  return std::is_same_v<First, at::TensorIteratorBase&> || std::is_same_v<First, at::TensorIterator&>;
}

// The dtypes of the operands of a stub's iterator.
enum class Stubs {
  kCommonDtype,  // the common dtype: the iterator was made to cast
  kOwnDtypes,    // each its own: a mask, an index, a result of another dtype
};

// `kKernel` computes in `kDtypes` only, in any dtype where none is given: the common one or else that of the
// first operand.
template <Literal kStub, auto kKernel, Runs kRuns, Stubs kStubs, at::ScalarType... kDtypes>
struct StubKernel;

template <Literal kStub, class Result, class... Args, Result (*kKernel)(Args...), Runs kRuns, Stubs kStubs,
          at::ScalarType... kDtypes>
struct StubKernel<kStub, kKernel, kRuns, kStubs, kDtypes...> {
  // Throws StubRejected.
  static Result call(Args... args) {
    check_dtype(args...);
    detail::prepare_host<kRuns>(kStub.text);
    if constexpr (takes_iterator<Args...>() && kRuns == Runs::kOnCopies) {
      copy(args...);
    } else if constexpr (takes_iterator<Args...>() && kStubs == Stubs::kCommonDtype) {
      cast(args...);
    } else if constexpr (kRuns == Runs::kOnCopies) {
      // Which of them it writes to, their types do not tell.
      return on_copies([](auto&&... copies) { return kKernel(copies...); }, written(args)...);
    } else {
      wait();
      const Work work(kStub.text);
      return kKernel(std::forward<Args>(args)...);
    }
  }

 private:
  using Work = MeasuredWork<kRuns>;

  template <class Iterator, class... Rest>
  static void copy(Iterator& iter, Rest&... rest) {
    run_on_copies(iter, Access::kWrite,
                  kStubs == Stubs::kCommonDtype ? Casts::kBeforeTheKernel : Casts::kNobody,
                  [&](at::TensorIterator& copies) { kKernel(copies, rest...); });
  }

  template <class Given>
  static auto written(const Given& given) {
    if constexpr (std::is_base_of_v<at::TensorBase, Given>) {
      return changed(given);
    } else {
      return given;
    }
  }

  template <class Iterator, class... Rest>
  static void cast(Iterator& iter, Rest&... rest) {
    run_iterator(iter, [&](at::TensorIteratorBase& promised) {
      // After the casts, which the device may still be busy with.
      wait();
      const Work work(kStub.text);
      // run_iterator() hands over `iter` itself or a TensorIterator.
      kKernel(static_cast<Iterator&>(promised), rest...);
    });
  }

  static void wait() {
    if constexpr (kRuns == Runs::kOnHost) {
      wait_for_device(current_device());
    }
  }

  template <class First, class... Rest>
  static void check_dtype(const First& first, const Rest&... rest) {
    if constexpr (sizeof...(kDtypes) > 0) {
      if constexpr (std::is_base_of_v<at::TensorIteratorBase, First> ||
                    std::is_base_of_v<at::TensorBase, First>) {
        const at::ScalarType dtype = dtype_of(first);
        if (C10_UNLIKELY(!DtypeSet({kDtypes...}).has(dtype))) {
          throw StubRejected(kStub.text, dtype);
        }
      } else if constexpr (sizeof...(Rest) > 0) {
        check_dtype(rest...);
      }
    }
  }
  static void check_dtype() {}

  static at::ScalarType dtype_of(const at::TensorBase& tensor) { return tensor.scalar_type(); }
  static at::ScalarType dtype_of(const at::TensorIteratorBase& iter) {
    return kStubs == Stubs::kCommonDtype ? common_dtype_of(iter).value_or(iter.dtype()) : iter.dtype();
  }
};

}  // namespace opsmith
