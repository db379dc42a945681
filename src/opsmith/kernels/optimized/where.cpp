// where: a choice between two operands by a third, of operands that broadcast.
#include <algorithm>
#include <type_traits>

#include "../common/resize.h"
#include "../common/strided_iteration.h"
#include "by_dtype.h"
#include "elements.h"
#include "pointwise_functions.h"
#include "threads.h"

namespace opsmith::optimized::native {

namespace {

constexpr int64_t kBlock = 512;

// How out, condition, self and other lie.
using Layout = StridedIterator<4>;
using Offsets = Layout::Offsets;

// T's elements as numbers that need no conversion.
template <class T>
using Bits = std::conditional_t<std::is_same_v<T, float>, uint32_t, uint16_t>;

void choose(const uint8_t* which, const uint16_t* x, const uint16_t* y, uint16_t* z, int64_t n) {
  OPSMITH_BEST(chosen_of_two_bytes)(which, x, y, z, n);
}
void choose(const uint8_t* which, const uint32_t* x, const uint32_t* y, uint32_t* z, int64_t n) {
  OPSMITH_BEST(chosen_of_four_bytes)(which, x, y, z, n);
}

// n elements, `stride` apart, one after the other: where they are, or in `block`.
template <class T>
const T* in_row(const T* from, int64_t stride, T* block, int64_t n) {
  if (stride == 1) {
    return from;
  }
  if (stride == 0) {
    std::fill_n(block, n, *from);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      block[i] = from[i * stride];
    }
  }
  return block;
}

// The same of an operand of any of the dtypes, in the result's.
template <class T>
const Bits<T>* bits_in_row(const Tensor& operand, int64_t at, int64_t stride, Bits<T>* block, int64_t n) {
  if (operand.scalar_type() == kDtypeOf<T>) {
    return in_row(static_cast<const Bits<T>*>(operand.const_data_ptr()) + at, stride, block, n);
  }
  float values[kBlock];
  with_element(operand.scalar_type(), [&](auto element) {
    const auto* const from = static_cast<const decltype(element)*>(operand.const_data_ptr()) + at;
    for (int64_t i = 0; i < n; ++i) {
      values[i] = widened(from[i * stride]);
    }
  });
  narrow(values, reinterpret_cast<T*>(block), n);
  return block;
}

template <class T>
void compute(const Tensor& condition, const Tensor& self, const Tensor& other, Tensor& out) {
  const uint8_t* const which = static_cast<const uint8_t*>(condition.const_data_ptr());
  Bits<T>* const z = static_cast<Bits<T>*>(out.mutable_data_ptr());
  const Layout layout = strided_over(out, condition, self, other);
  const Offsets stride = layout.innermost().stride, row_stride = layout.innermost(1).stride;
  for_each_row_in_threads<4>(layout, kGrain / 2, [&](const Offsets& at, int64_t rows, int64_t n) {
    uint8_t choices[kBlock];
    Bits<T> first[kBlock], second[kBlock], result[kBlock];
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t begin = 0; begin < n; begin += kBlock) {
        const int64_t count = std::min(n - begin, kBlock);
        const auto place = [&](size_t k) { return at[k] + row * row_stride[k] + begin * stride[k]; };
        Bits<T>* const to = z + place(0);
        choose(in_row(which + place(1), stride[1], choices, count),
               bits_in_row<T>(self, place(2), stride[2], first, count),
               bits_in_row<T>(other, place(3), stride[3], second, count), stride[0] == 1 ? to : result,
               count);
        for (int64_t i = 0; stride[0] != 1 && i < count; ++i) {
          to[i * stride[0]] = result[i];
        }
      }
    }
  });
}

// Of operands with dimensions and without, the first decide, as ATen promotes.
ScalarType common_dtype(const Tensor& a, const Tensor& b) {
  return (a.dim() > 0) == (b.dim() > 0) ? executorch::runtime::promoteTypes(a.scalar_type(), b.scalar_type())
                                        : (a.dim() > 0 ? a : b).scalar_type();
}

constexpr char kWhere[] = "where.self_out";

}  // namespace

Tensor& where_out(KernelRuntimeContext& context, const Tensor& condition, const Tensor& self,
                  const Tensor& other, Tensor& out) {
  OPSMITH_CHECK(
      context, condition.scalar_type() == ScalarType::Bool || condition.scalar_type() == ScalarType::Byte,
      InvalidArgument, out, "where expected condition to be a boolean tensor, but got a tensor with dtype %s",
      name_of(condition.scalar_type()));
  OPSMITH_CHECK(context,
                is_taken(self.scalar_type()) && is_taken(other.scalar_type()) && is_taken(out.scalar_type()),
                NotSupported, out, "where takes " OPSMITH_TAKEN " only");
  if ((out.scalar_type() != executorch::runtime::promoteTypes(self.scalar_type(), other.scalar_type()) &&
       !out_is(context, common_dtype(self, other), out)) ||
      !resize_to_broadcast(context, out, {&condition, &self, &other}) ||
      !one_dim_order(context, {&out, &condition, &self, &other})) {
    return out;
  }
  if constexpr (selected(kWhere, ScalarType::Float) || selected(kWhere, ScalarType::BFloat16) ||
                selected(kWhere, ScalarType::Half)) {
    with_element(out.scalar_type(),
                 [&](auto element) { compute<decltype(element)>(condition, self, other, out); });
  }
  return out;
}

}  // namespace opsmith::optimized::native
