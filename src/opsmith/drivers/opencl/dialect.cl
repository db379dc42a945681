R"(
// The dialect in OpenCL C.
#if defined(cl_khr_fp64) && __OPENCL_VERSION__ < 120
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#define KERNEL __kernel
#define DEVICE
#define GLOBAL __global
#define LOCAL __local
#define SHARED __local
#define BUFFER(T, name) __global T* name##_start, ulong name##_offset
#define POINTER(T, name) ((__global T*)((__global char*)name##_start + name##_offset))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define GROUP(d) ((long)get_group_id(d))
#define ITEM(d) ((int)get_local_id(d))
#define ITEMS(d) ((int)get_local_size(d))
#define GLOBAL_ITEM(d) ((long)get_global_id(d))
#define GLOBAL_ITEMS(d) ((long)get_global_size(d))
#define AS_UINT(x) as_uint(x)
#define AS_FLOAT(x) as_float(x)
inline float float_of_half(ushort bits) { return vload_half(0, (const half*)&bits); }
inline ushort half_of_float(float x) {
  ushort bits;
  vstore_half(x, 0, (half*)&bits);
  return bits;
}
#define MULTIPLY_HIGH(a, b) mul_hi((uint)(a), (uint)(b))
)"
