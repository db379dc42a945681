// Numbers of the dtypes that C++ has no types for, in the memory of a stand-in.
#pragma once

#include <cstdint>
#include <cstring>

namespace stand_in {

struct Half {
  _Float16 value;
};
struct Bfloat16 {
  uint16_t bits;
};
inline double number(float x) {
  return x;
}
inline double number(double x) {
  return x;
}
inline double number(Half x) {
  return static_cast<double>(x.value);
}
inline double number(Bfloat16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline void put(double x, float& to) {
  to = static_cast<float>(x);
}
inline void put(double x, double& to) {
  to = x;
}
inline void put(double x, Half& to) {
  to.value = static_cast<_Float16>(x);
}
inline void put(double x, Bfloat16& to) {
  const auto value = static_cast<float>(x);
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  to.bits = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace stand_in
