// For the stand-ins of NVIDIA's libraries: the stand-in of libcuda beneath them, and elements of tensors as
// numbers.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

namespace stand_in {

template <class Function>
Function of_libcuda(const char* name) {
  return reinterpret_cast<Function>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), name));
}

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

// Has `function(argument)` run as work of a stream.
inline int queue(void* stream, void (*function)(void*), void* argument) {
  static const auto launch = of_libcuda<int (*)(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
  return launch(stream, function, argument);
}

// Where the host finds the memory of the device that is current in this thread; streams' threads have none.
inline void* view(const void* pointer) {
  static const auto found = of_libcuda<void* (*)(void*)>("opsmith_stand_in_view");
  return found(const_cast<void*>(pointer));
}

}  // namespace stand_in
