// Included by the C++ that cpp.py writes: element types of Triton's IR, and what operations on blocks share.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using f16 = _Float16;
using f32 = float;
using f64 = double;
using i1 = uint8_t;  // 0 or 1
using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;

// bfloat16: computed with as float, and rounded to the nearest, to even in the middle.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  bf16(float value) {
    const uint32_t wide = std::bit_cast<uint32_t>(value);
    bits = value != value ? 0x7FC0 : static_cast<uint16_t>((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

template <class To, class From>
To bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

// A number as the unsigned one of the same width.
template <class T>
auto u(T value) {
  return static_cast<std::make_unsigned_t<T>>(value);
}

// Integers divided: by 0 it is 0, since what is computed for elements outside of a mask may not trap.
template <class T>
T quotient(T a, T b) {
  return b == 0                                           ? 0
         : b == static_cast<T>(-1) && std::is_signed_v<T> ? static_cast<T>(-a)
                                                          : static_cast<T>(a / b);
}
template <class T>
T remainder_of(T a, T b) {
  return b == 0 || (b == static_cast<T>(-1) && std::is_signed_v<T>) ? 0 : static_cast<T>(a % b);
}

template <class T>
T high_product(T a, T b) {
  return static_cast<T>((static_cast<unsigned __int128>(u(a)) * u(b)) >> (8 * sizeof(T)));
}

// The larger, or the smaller, of two numbers; `carries_nan`: NaN where one is.
template <bool carries_nan, class T>
T larger(T a, T b) {
  if (a != a || b != b) {
    return carries_nan == (a != a) ? a : b;
  }
  return a < b ? b : a;
}
template <bool carries_nan, class T>
T smaller(T a, T b) {
  if (a != a || b != b) {
    return carries_nan == (a != a) ? a : b;
  }
  return b < a ? b : a;
}

// Functions of libdevice's that C++ has by another name or not at all.
template <class T>
T inverse_root(T x) {
  return 1 / std::sqrt(x);
}
template <class T>
T divided(T a, T b) {
  return a / b;
}
// Rounded toward zero: the remainder of a correctly rounded quotient is exact.
template <class T>
T divided_toward_zero(T a, T b) {
  const T nearest = a / b;
  const T remainder = std::fma(-nearest, b, a);
  const bool is_larger = remainder != 0 && std::signbit(remainder) != std::signbit(a);
  return std::isfinite(remainder) && is_larger ? std::nextafter(nearest, T{0}) : nearest;
}
template <class T>
T bessel_i0(T x) {
  return std::cyl_bessel_i(T{0}, std::fabs(x));
}
template <class T>
T bessel_i1(T x) {
  return std::copysign(std::cyl_bessel_i(T{1}, std::fabs(x)), x);
}

template <class T, int count, class Of>
std::vector<T> block(const Of& element) {
  std::vector<T> result(count);
  for (int i = 0; i < count; ++i) {
    result[i] = element(i);
  }
  return result;
}

// `old` of what is at `where`, in the place of which is `next(old)`. Programs run one after the other.
template <class T, class Next>
T exchange(T* where, bool is_masked_in, const Next& next) {
  if (!is_masked_in) {
    return T{};
  }
  const T old = *where;
  *where = next(old);
  return old;
}

}  // namespace
