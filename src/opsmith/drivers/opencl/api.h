// The functions of OpenCL 1.2 that the driver calls, found in libOpenCL.so.1 when it is first asked for: so
// the driver is built, and says what is missing, where there is no OpenCL. Types and numbers are the
// standard's (Khronos, cl.h).
#pragma once

#include <cstddef>
#include <cstdint>

using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_ulong = uint64_t;
using cl_bool = cl_uint;
using cl_platform_id = struct _cl_platform_id*;
using cl_device_id = struct _cl_device_id*;
using cl_context = struct _cl_context*;
using cl_command_queue = struct _cl_command_queue*;
using cl_mem = struct _cl_mem*;
using cl_program = struct _cl_program*;
using cl_kernel = struct _cl_kernel*;
using cl_event = struct _cl_event*;

namespace opencl {

constexpr cl_int kSuccess = 0;
constexpr cl_int kDeviceNotFound = -1;
constexpr cl_int kDeviceNotAvailable = -2;
constexpr cl_int kObjectAllocationFailure = -4;
constexpr cl_int kOutOfResources = -5;
constexpr cl_int kOutOfHostMemory = -6;
constexpr cl_int kProfilingInfoNotAvailable = -7;
constexpr cl_int kBuildFailure = -11;
constexpr cl_int kInvalidBufferSize = -61;
constexpr cl_int kPlatformNotFound = -1001;  // cl_khr_icd

constexpr cl_ulong kDeviceTypeCpu = 1 << 1;
constexpr cl_ulong kDeviceTypeAll = 0xFFFFFFFF;
constexpr cl_uint kPlatformName = 0x0902;
constexpr cl_uint kDeviceType = 0x1000;
constexpr cl_uint kMaxComputeUnits = 0x1002;
constexpr cl_uint kMaxWorkGroupSize = 0x1004;
constexpr cl_uint kMaxMemAllocSize = 0x1010;
constexpr cl_uint kGlobalMemSize = 0x101F;
constexpr cl_uint kLocalMemSize = 0x1023;
constexpr cl_uint kDeviceName = 0x102B;
constexpr cl_uint kDriverVersion = 0x102D;
constexpr cl_uint kDeviceVersion = 0x102F;
constexpr cl_uint kDoubleFpConfig = 0x1032;
constexpr intptr_t kContextPlatform = 0x1084;
constexpr cl_ulong kMemReadWrite = 1 << 0;
constexpr cl_ulong kMemAllocHostPtr = 1 << 4;
constexpr cl_ulong kMapRead = 1 << 0;
constexpr cl_ulong kMapWrite = 1 << 1;
constexpr cl_ulong kQueueProfiling = 1 << 1;
constexpr cl_uint kProgramBinarySizes = 0x1165;
constexpr cl_uint kProgramBinaries = 0x1166;
constexpr cl_uint kProgramBuildLog = 0x1183;
constexpr cl_uint kEventExecutionStatus = 0x11D3;
constexpr cl_int kComplete = 0;
constexpr cl_uint kProfilingEnd = 0x1283;

// name, result, parameters
#define OPSMITH_OPENCL_FUNCTIONS(F)                                                                        \
  F(GetPlatformIDs, cl_int, (cl_uint, cl_platform_id*, cl_uint*))                                          \
  F(GetPlatformInfo, cl_int, (cl_platform_id, cl_uint, size_t, void*, size_t*))                            \
  F(GetDeviceIDs, cl_int, (cl_platform_id, cl_ulong, cl_uint, cl_device_id*, cl_uint*))                    \
  F(GetDeviceInfo, cl_int, (cl_device_id, cl_uint, size_t, void*, size_t*))                                \
  F(CreateContext, cl_context,                                                                             \
    (const intptr_t*, cl_uint, const cl_device_id*, void (*)(const char*, const void*, size_t, void*),     \
     void*, cl_int*))                                                                                      \
  F(CreateCommandQueue, cl_command_queue, (cl_context, cl_device_id, cl_ulong, cl_int*))                   \
  F(ReleaseCommandQueue, cl_int, (cl_command_queue))                                                       \
  F(Flush, cl_int, (cl_command_queue))                                                                     \
  F(Finish, cl_int, (cl_command_queue))                                                                    \
  F(CreateBuffer, cl_mem, (cl_context, cl_ulong, size_t, void*, cl_int*))                                  \
  F(ReleaseMemObject, cl_int, (cl_mem))                                                                    \
  F(EnqueueReadBuffer, cl_int,                                                                             \
    (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void*, cl_uint, const cl_event*, cl_event*))       \
  F(EnqueueWriteBuffer, cl_int,                                                                            \
    (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void*, cl_uint, const cl_event*, cl_event*)) \
  F(EnqueueCopyBuffer, cl_int,                                                                             \
    (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const cl_event*, cl_event*))       \
  F(EnqueueFillBuffer, cl_int,                                                                             \
    (cl_command_queue, cl_mem, const void*, size_t, size_t, size_t, cl_uint, const cl_event*, cl_event*))  \
  F(EnqueueMapBuffer, void*,                                                                               \
    (cl_command_queue, cl_mem, cl_bool, cl_ulong, size_t, size_t, cl_uint, const cl_event*, cl_event*,     \
     cl_int*))                                                                                             \
  F(EnqueueUnmapMemObject, cl_int, (cl_command_queue, cl_mem, void*, cl_uint, const cl_event*, cl_event*)) \
  F(EnqueueNDRangeKernel, cl_int,                                                                          \
    (cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint,           \
     const cl_event*, cl_event*))                                                                          \
  F(EnqueueMarkerWithWaitList, cl_int, (cl_command_queue, cl_uint, const cl_event*, cl_event*))            \
  F(EnqueueBarrierWithWaitList, cl_int, (cl_command_queue, cl_uint, const cl_event*, cl_event*))           \
  F(WaitForEvents, cl_int, (cl_uint, const cl_event*))                                                     \
  F(GetEventInfo, cl_int, (cl_event, cl_uint, size_t, void*, size_t*))                                     \
  F(GetEventProfilingInfo, cl_int, (cl_event, cl_uint, size_t, void*, size_t*))                            \
  F(RetainEvent, cl_int, (cl_event))                                                                       \
  F(ReleaseEvent, cl_int, (cl_event))                                                                      \
  F(CreateProgramWithSource, cl_program, (cl_context, cl_uint, const char**, const size_t*, cl_int*))      \
  F(CreateProgramWithBinary, cl_program,                                                                   \
    (cl_context, cl_uint, const cl_device_id*, const size_t*, const unsigned char**, cl_int*, cl_int*))    \
  F(BuildProgram, cl_int,                                                                                  \
    (cl_program, cl_uint, const cl_device_id*, const char*, void (*)(cl_program, void*), void*))           \
  F(GetProgramInfo, cl_int, (cl_program, cl_uint, size_t, void*, size_t*))                                 \
  F(GetProgramBuildInfo, cl_int, (cl_program, cl_device_id, cl_uint, size_t, void*, size_t*))              \
  F(ReleaseProgram, cl_int, (cl_program))                                                                  \
  F(CreateKernel, cl_kernel, (cl_program, const char*, cl_int*))                                           \
  F(SetKernelArg, cl_int, (cl_kernel, cl_uint, size_t, const void*))

struct Api {
#define OPSMITH_OPENCL_ENTRY(name, result, parameters) result(*name) parameters = nullptr;
  OPSMITH_OPENCL_FUNCTIONS(OPSMITH_OPENCL_ENTRY)
#undef OPSMITH_OPENCL_ENTRY
};

// Throws Failure (errors.h) where there is no OpenCL library, or not all of OpenCL 1.2 in it.
const Api& api();

}  // namespace opencl
