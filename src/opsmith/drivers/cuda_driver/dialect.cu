R"(
// The dialect in CUDA C++, as NVRTC compiles it.
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#define KERNEL extern "C" __global__
#define DEVICE __device__
#define GLOBAL
#define LOCAL __shared__
#define SHARED
#define BUFFER(T, name) T* name##_start, ulong name##_offset
#define POINTER(T, name) ((T*)((char*)name##_start + name##_offset))
#define BARRIER() __syncthreads()
#define OF(v, d) ((d) == 0 ? (v).x : (d) == 1 ? (v).y : (v).z)
#define GROUP(d) ((long)OF(blockIdx, d))
#define ITEM(d) ((int)OF(threadIdx, d))
#define ITEMS(d) ((int)OF(blockDim, d))
#define GLOBAL_ITEM(d) ((long)OF(blockIdx, d) * OF(blockDim, d) + OF(threadIdx, d))
#define GLOBAL_ITEMS(d) ((long)OF(gridDim, d) * OF(blockDim, d))
#define AS_UINT(x) __float_as_uint(x)
#define AS_FLOAT(x) __uint_as_float(x)
#define INFINITY __int_as_float(0x7f800000)
#define MULTIPLY_HIGH(a, b) __umulhi(a, b)
DEVICE inline float float_of_half(ushort bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
DEVICE inline ushort half_of_float(float x) {
  ushort bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
#if __CUDA_ARCH__ >= 800
#define BFLOAT16_BITS(x) bfloat16_of_float(x)
DEVICE inline ushort bfloat16_of_float(float x) {
  ushort bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
#endif
)"
