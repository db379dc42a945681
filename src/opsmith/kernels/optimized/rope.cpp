// optimized::rope: rotary embedding. The first elements of the last dimension, twice as many as there are
// angles, are turned in pairs, each half with the other or neighbours with one another; the rest is copied.
#include <algorithm>
#include <cstring>

#include "../common/resize.h"
#include "by_dtype.h"
#include "float_functions.h"
#include "threads.h"

namespace opsmith::optimized::native {

namespace {

template <class T, class C>
using Rope = void(const T* x, const C* cos, const C* sin, T* y, int64_t pairs);

// Of an element, beside adding it.
constexpr int64_t kCost = 2;

// Which row of the angles a row of x has, from the first dimension that differs on.
struct Angles {
  Dims sizes;    // of x, without the last dimension
  Dims strides;  // of the angles in these

  int64_t row_at(int64_t row) const {
    int64_t at = 0;
    for (int64_t d = sizes.rank - 1; d >= 0; --d) {
      at += row % sizes[d] * strides[d];
      row /= sizes[d];
    }
    return at;
  }
};

Angles angles_of(const Tensor& x, const Tensor& cos) {
  Angles found;
  for (int64_t d = 0; d < x.dim() - 1; ++d) {
    found.sizes.push_back(x.sizes()[d]);
    found.strides.push_back(broadcast_stride(cos, d, x.dim()));
  }
  return found;
}

template <class T, class C>
void compute(const Tensor& x, const Tensor& cos, const Tensor& sin, Tensor& out, Rope<T, C>* function) {
  const int64_t n = x.sizes()[x.dim() - 1], pairs = cos.sizes()[cos.dim() - 1];
  const T* const from = static_cast<const T*>(x.const_data_ptr());
  const C* const cosines = static_cast<const C*>(cos.const_data_ptr());
  const C* const sines = static_cast<const C*>(sin.const_data_ptr());
  T* const to = static_cast<T*>(out.mutable_data_ptr());
  const Angles angles = angles_of(x, cos);
  const size_t rest = static_cast<size_t>(n - 2 * pairs) * sizeof(T);
  parallel(x.numel() / n, row_grain_size(n * kCost), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = angles.row_at(row);
      function(from + row * n, cosines + at, sines + at, to + row * n, pairs);
      if (rest != 0 && from != to) {
        std::memcpy(to + row * n + 2 * pairs, from + row * n + 2 * pairs, rest);
      }
    }
  });
}

// Whether there are angles for x; rejects the call where not.
bool have_angles(KernelRuntimeContext& context, const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const int64_t rank = x.dim(), own = cos.dim();
  bool fits = own >= 1 && own <= rank && sizes_of(cos) == sizes_of(sin) &&
              2 * static_cast<int64_t>(cos.sizes()[own - 1]) <= x.sizes()[rank - 1];
  for (int64_t d = 0; fits && d + 1 < own; ++d) {
    fits = cos.sizes()[d] == 1 || cos.sizes()[d] == x.sizes()[rank - own + d];
  }
  return fits ||
         reject(
             context, Error::InvalidArgument,
             "rope: cos and sin have one shape, which broadcasts to x but for the last dimension, and that "
             "is at most half of x's");
}

constexpr char kRope[] = "optimized::rope.out";

}  // namespace

Tensor& rope_out(KernelRuntimeContext& context, const Tensor& x, const Tensor& cos, const Tensor& sin,
                 bool interleaved, Tensor& out) {
  const ScalarType dtype = x.scalar_type(), angles = cos.scalar_type();
  OPSMITH_CHECK(context,
                is_taken(dtype) && out.scalar_type() == dtype && sin.scalar_type() == angles &&
                    (angles == dtype || angles == ScalarType::Float),
                NotSupported, out, "rope takes float32, or bfloat16 or float16 with cos and sin of either");
  if (!have_angles(context, x, cos, sin) || !resize_like(context, out, x) ||
      !are_contiguous(context, {&x, &cos, &sin, &out}) || out.numel() == 0) {
    return out;
  }
  const bool float_angles = angles == ScalarType::Float;
  if (interleaved) {
    OPSMITH_WITH_PARAMETERS(kRope, dtype, float_angles, rope_neighbours,
                            [&](auto* function) { compute(x, cos, sin, out, function); })
  } else {
    OPSMITH_WITH_PARAMETERS(kRope, dtype, float_angles, rope_halves,
                            [&](auto* function) { compute(x, cos, sin, out, function); })
  }
  return out;
}

}  // namespace opsmith::optimized::native
