// Rounding to integers, in the namespace of the instruction set. No guard: see quantization_functions.h.

#include <cmath>
#include <type_traits>

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

#if defined(__x86_64__) && !defined(__SSE4_1__)
constexpr bool kHasRounding = false;
#else
constexpr bool kHasRounding = true;
#endif

// Half to even. Without an instruction for it (SSE4.1), adding and subtracting 2^23 (of doubles 2^52) does it
// for all that is smaller; what is not is an integer already.
template <class C>
inline C round_even(C x) {
  if constexpr (kHasRounding) {
    return std::nearbyint(x);
  } else {
    constexpr C kIntegers = std::is_same_v<C, float> ? static_cast<C>(0x1p23) : static_cast<C>(0x1p52);
    const C shift = std::copysign(kIntegers, x);
    return std::fabs(x) < kIntegers ? (x + shift) - shift : x;
  }
}

// Comparisons in this order let NaN pass, as ATen's clamp does. What is beyond int32, as NaN is, becomes what
// the processor makes of it.
template <class C>
inline int32_t clamped(C x, C low, C high) {
  x = x < low ? low : x;
  x = x > high ? high : x;
  return static_cast<int32_t>(x);
}

}  // namespace
}  // namespace opsmith::quantized::OPSMITH_ISA
