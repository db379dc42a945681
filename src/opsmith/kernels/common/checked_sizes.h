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

 private:
  Checked(const Checked& result, const Checked& other, bool overflows)
      : value_(result.value_), fits_(result.fits_ && other.fits_ && !overflows) {}

  int64_t value_;
  bool fits_ = true;
};

}  // namespace opsmith
