// Arithmetic of sizes, strides, paddings and offsets that a caller may give as any 64-bit number.
#pragma once

#include <cstdint>

namespace opsmith {

// An integer that knows whether it, or a number that it was made of, went beyond 64 bits.
class Checked {
 public:
  Checked(int64_t value) : value_(value) {}  // NOLINT(google-explicit-constructor): terms of a formula

  bool fits() const { return fits_; }
  // Without meaning where it does not fit.
  int64_t value() const { return value_; }

  friend Checked operator+(Checked a, Checked b) {
    const bool overflows = __builtin_add_overflow(a.value_, b.value_, &a.value_);
    return {a, b, overflows};
  }
  friend Checked operator-(Checked a, Checked b) {
    const bool overflows = __builtin_sub_overflow(a.value_, b.value_, &a.value_);
    return {a, b, overflows};
  }
  friend Checked operator*(Checked a, Checked b) {
    const bool overflows = __builtin_mul_overflow(a.value_, b.value_, &a.value_);
    return {a, b, overflows};
  }
  friend bool operator==(Checked a, int64_t b) { return a.fits_ && a.value_ == b; }
  // Rounded down; the divisor is positive.
  friend Checked floor_divided(Checked a, int64_t divisor) {
    a.value_ = a.value_ / divisor - (a.value_ % divisor < 0 ? 1 : 0);
    return a;
  }

 private:
  Checked(const Checked& result, const Checked& other, bool overflows)
      : value_(result.value_), fits_(result.fits_ && other.fits_ && !overflows) {}

  int64_t value_;
  bool fits_ = true;
};

// A window that moves along one dimension of a feature map, as convolutions, pools and folds have it. The
// numbers may be any; what divides by the stride wants it positive.
struct SlidingWindow {
  // The most that kernels take, as ATen's do for their int: of such numbers sums and products of two fit.
  static constexpr int64_t kMost = INT32_MAX;

  int64_t kernel;
  int64_t stride;
  int64_t padding;
  int64_t dilation;

  bool is_valid() const { return kernel > 0 && stride > 0 && padding >= 0 && dilation > 0; }
  bool is_taken() const {
    return kernel <= kMost && stride <= kMost && padding <= kMost && dilation <= kMost;
  }
  // The elements from its first one to its last.
  Checked reach() const { return Checked(dilation) * (Checked(kernel) - 1) + 1; }
  // Those of a dimension of `size` and of the padding on both sides.
  Checked padded(int64_t size) const { return Checked(size) + Checked(2) * padding; }
  // The places that it has there, less than 1 where it is too large. `ceil` counts one that ends beyond the
  // padding, if it begins within the dimension or the padding before it.
  Checked places(int64_t size, bool ceil = false) const {
    const Checked last = floor_divided(padded(size) - reach() + (ceil ? stride - 1 : 0), stride);
    const bool is_outside = ceil && (last * stride - size - padding).value() >= 0;
    return last + (is_outside ? 0 : 1);
  }
  // The size of a dimension where it has so many places, as a transposed convolution gives it.
  Checked covered(int64_t places, int64_t output_padding) const {
    return (Checked(places) - 1) * stride - Checked(2) * padding + reach() + output_padding;
  }
};

}  // namespace opsmith
