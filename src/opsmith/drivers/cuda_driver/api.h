// The functions of CUDA's driver API, NVRTC and NCCL that the driver calls, found in their libraries when
// they are first asked for: so the driver is built, and says what is missing, where there is no GPU. Types
// and numbers are NVIDIA's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
struct CUipcMemHandle {
  char reserved[64];
};
using nvrtcProgram = struct _nvrtcProgram*;
using ncclResult = int;
using ncclComm = struct ncclComm_s*;
struct ncclUniqueId {
  char bytes[128];
};

namespace cuda {

constexpr CUresult kSuccess = 0;
constexpr CUresult kInvalidValue = 1;
constexpr CUresult kOutOfMemory = 2;
constexpr CUresult kNoDevice = 100;
constexpr CUresult kNotReady = 600;
// Errors of a kernel's binary that the driver cannot load.
constexpr CUresult kInvalidImage = 200;
constexpr CUresult kNoBinaryForGpu = 209;
constexpr CUresult kInvalidPtx = 218;
constexpr CUresult kUnsupportedPtxVersion = 222;
// After these the context answers every later call alike, and only a new process has a working one.
constexpr CUresult kEccUncorrectable = 214;
constexpr CUresult kNvlinkUncorrectable = 220;
constexpr CUresult kContained = 226;
constexpr CUresult kIllegalAddress = 700;
constexpr CUresult kLaunchTimeout = 702;
constexpr CUresult kContextIsDestroyed = 709;
constexpr CUresult kAssert = 710;
constexpr CUresult kHardwareStackError = 714;
constexpr CUresult kIllegalInstruction = 715;
constexpr CUresult kMisalignedAddress = 716;
constexpr CUresult kInvalidAddressSpace = 717;
constexpr CUresult kInvalidPc = 718;
constexpr CUresult kLaunchFailed = 719;
constexpr CUresult kTensorMemoryLeak = 721;

constexpr int kMaxThreadsPerBlock = 1;
constexpr int kMaxSharedMemory = 8;
constexpr int kMultiprocessors = 16;
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;
constexpr int kMemoryTypeOfPointer = 2;
constexpr unsigned kMemoryTypeHost = 1;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventWithoutTiming = 2;
constexpr unsigned kIpcLazyEnablePeerAccess = 1;
constexpr int kCaptureNone = 0;
// Other calls of any thread, of an allocator say, go on as if nothing were captured.
constexpr int kCaptureRelaxed = 2;

constexpr ncclResult kNcclInvalidArgument = 4;
constexpr ncclResult kNcclInvalidUsage = 5;
constexpr ncclResult kNcclRemoteError = 6;  // of a rank that has ended, or its network
constexpr int kNcclInt8 = 0;
constexpr int kNcclUint8 = 1;
constexpr int kNcclInt32 = 2;
constexpr int kNcclInt64 = 4;
constexpr int kNcclFloat16 = 6;
constexpr int kNcclFloat32 = 7;
constexpr int kNcclFloat64 = 8;
constexpr int kNcclBfloat16 = 9;
constexpr int kNcclSum = 0;
constexpr int kNcclProduct = 1;
constexpr int kNcclMax = 2;
constexpr int kNcclMin = 3;

// name, as exported, parameters; each returns CUresult
#define OPSMITH_CUDA_FUNCTIONS(F)                                                                          \
  F(Init, "cuInit", (unsigned))                                                                            \
  F(DriverGetVersion, "cuDriverGetVersion", (int*))                                                        \
  F(GetErrorName, "cuGetErrorName", (CUresult, const char**))                                              \
  F(GetErrorString, "cuGetErrorString", (CUresult, const char**))                                          \
  F(DeviceGetCount, "cuDeviceGetCount", (int*))                                                            \
  F(DeviceGet, "cuDeviceGet", (CUdevice*, int))                                                            \
  F(DeviceGetName, "cuDeviceGetName", (char*, int, CUdevice))                                              \
  F(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t*, CUdevice))                                            \
  F(DeviceGetAttribute, "cuDeviceGetAttribute", (int*, int, CUdevice))                                     \
  F(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice))                            \
  F(CtxGetCurrent, "cuCtxGetCurrent", (CUcontext*))                                                        \
  F(CtxSetCurrent, "cuCtxSetCurrent", (CUcontext))                                                         \
  F(MemGetInfo, "cuMemGetInfo_v2", (size_t*, size_t*))                                                     \
  F(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr*, size_t))                                                     \
  F(MemFree, "cuMemFree_v2", (CUdeviceptr))                                                                \
  F(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void*, size_t, CUstream))                 \
  F(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void*, CUdeviceptr, size_t, CUstream))                       \
  F(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, size_t, CUstream))                 \
  F(MemcpyPeerAsync, "cuMemcpyPeerAsync",                                                                  \
    (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream))                                    \
  F(MemsetD8Async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))                      \
  F(MemHostAlloc, "cuMemHostAlloc", (void**, size_t, unsigned))                                            \
  F(MemFreeHost, "cuMemFreeHost", (void*))                                                                 \
  F(IpcGetMemHandle, "cuIpcGetMemHandle", (CUipcMemHandle*, CUdeviceptr))                                  \
  F(IpcOpenMemHandle, "cuIpcOpenMemHandle_v2", (CUdeviceptr*, CUipcMemHandle, unsigned))                   \
  F(IpcCloseMemHandle, "cuIpcCloseMemHandle", (CUdeviceptr))                                               \
  F(PointerGetAttribute, "cuPointerGetAttribute", (void*, int, CUdeviceptr))                               \
  F(StreamCreateWithPriority, "cuStreamCreateWithPriority", (CUstream*, unsigned, int))                    \
  F(StreamDestroy, "cuStreamDestroy_v2", (CUstream))                                                       \
  F(StreamQuery, "cuStreamQuery", (CUstream))                                                              \
  F(StreamSynchronize, "cuStreamSynchronize", (CUstream))                                                  \
  F(StreamWaitEvent, "cuStreamWaitEvent", (CUstream, CUevent, unsigned))                                   \
  F(LaunchHostFunc, "cuLaunchHostFunc", (CUstream, void (*)(void*), void*))                                \
  F(StreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream, int))                                        \
  F(StreamEndCapture, "cuStreamEndCapture", (CUstream, CUgraph*))                                          \
  F(StreamIsCapturing, "cuStreamIsCapturing", (CUstream, int*))                                            \
  F(GraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", (CUgraphExec*, CUgraph, unsigned long long)) \
  F(GraphLaunch, "cuGraphLaunch", (CUgraphExec, CUstream))                                                 \
  F(GraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec))                                                 \
  F(GraphDestroy, "cuGraphDestroy", (CUgraph))                                                             \
  F(GraphDebugDotPrint, "cuGraphDebugDotPrint", (CUgraph, const char*, unsigned))                          \
  F(EventCreate, "cuEventCreate", (CUevent*, unsigned))                                                    \
  F(EventDestroy, "cuEventDestroy_v2", (CUevent))                                                          \
  F(EventRecord, "cuEventRecord", (CUevent, CUstream))                                                     \
  F(EventQuery, "cuEventQuery", (CUevent))                                                                 \
  F(EventSynchronize, "cuEventSynchronize", (CUevent))                                                     \
  F(EventElapsedTime, "cuEventElapsedTime", (float*, CUevent, CUevent))                                    \
  F(ModuleLoadData, "cuModuleLoadData", (CUmodule*, const void*))                                          \
  F(ModuleGetFunction, "cuModuleGetFunction", (CUfunction*, CUmodule, const char*))                        \
  F(FuncSetAttribute, "cuFuncSetAttribute", (CUfunction, int, int))                                        \
  F(LaunchKernel, "cuLaunchKernel",                                                                        \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**,   \
     void**))

#define OPSMITH_NVRTC_FUNCTIONS(F)                                                          \
  F(Version, "nvrtcVersion", (int*, int*))                                                  \
  F(GetNumSupportedArchs, "nvrtcGetNumSupportedArchs", (int*))                              \
  F(GetSupportedArchs, "nvrtcGetSupportedArchs", (int*))                                    \
  F(CreateProgram, "nvrtcCreateProgram",                                                    \
    (nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*)) \
  F(CompileProgram, "nvrtcCompileProgram", (nvrtcProgram, int, const char* const*))         \
  F(GetPTXSize, "nvrtcGetPTXSize", (nvrtcProgram, size_t*))                                 \
  F(GetPTX, "nvrtcGetPTX", (nvrtcProgram, char*))                                           \
  F(GetCUBINSize, "nvrtcGetCUBINSize", (nvrtcProgram, size_t*))                             \
  F(GetCUBIN, "nvrtcGetCUBIN", (nvrtcProgram, char*))                                       \
  F(GetProgramLogSize, "nvrtcGetProgramLogSize", (nvrtcProgram, size_t*))                   \
  F(GetProgramLog, "nvrtcGetProgramLog", (nvrtcProgram, char*))                             \
  F(DestroyProgram, "nvrtcDestroyProgram", (nvrtcProgram*))

// As above; counts are of elements.
#define OPSMITH_NCCL_FUNCTIONS(F)                                                                   \
  F(GetUniqueId, "ncclGetUniqueId", (ncclUniqueId*))                                                \
  F(CommInitRank, "ncclCommInitRank", (ncclComm*, int, ncclUniqueId, int))                          \
  F(CommGetAsyncError, "ncclCommGetAsyncError", (ncclComm, ncclResult*))                            \
  F(CommDestroy, "ncclCommDestroy", (ncclComm))                                                     \
  F(CommAbort, "ncclCommAbort", (ncclComm))                                                         \
  F(AllReduce, "ncclAllReduce", (const void*, void*, size_t, int, int, ncclComm, CUstream))         \
  F(Broadcast, "ncclBroadcast", (const void*, void*, size_t, int, int, ncclComm, CUstream))         \
  F(AllGather, "ncclAllGather", (const void*, void*, size_t, int, ncclComm, CUstream))              \
  F(ReduceScatter, "ncclReduceScatter", (const void*, void*, size_t, int, int, ncclComm, CUstream)) \
  F(GroupStart, "ncclGroupStart", ())                                                               \
  F(GroupEnd, "ncclGroupEnd", ())                                                                   \
  F(Send, "ncclSend", (const void*, size_t, int, int, ncclComm, CUstream))                          \
  F(Recv, "ncclRecv", (void*, size_t, int, int, ncclComm, CUstream))

#define OPSMITH_CUDA_ENTRY(name, exported, parameters) int(*name) parameters = nullptr;
struct Api {
  OPSMITH_CUDA_FUNCTIONS(OPSMITH_CUDA_ENTRY)
};
struct Nvrtc {
  OPSMITH_NVRTC_FUNCTIONS(OPSMITH_CUDA_ENTRY)
};
struct Nccl {
  OPSMITH_NCCL_FUNCTIONS(OPSMITH_CUDA_ENTRY)
  const char* (*GetErrorString)(ncclResult) = nullptr;
  const char* (*GetLastError)(ncclComm) = nullptr;
};
#undef OPSMITH_CUDA_ENTRY
// NVIDIA's library of ranges; both null where it is missing. They return a depth, or that no tool listens.
struct Nvtx {
  int (*RangePushA)(const char*) = nullptr;
  int (*RangePop)() = nullptr;
};

// Throws Failure where NVIDIA's driver is missing or finds no device; initialised.
const Api& api();

// Throws Failure where NVRTC is missing. OPSMITH_NVRTC_LIBRARY names the library; the wheels
// nvidia-cuda-nvrtc have one.
const Nvrtc& nvrtc();

// Throws Failure where NCCL is missing. OPSMITH_NCCL_LIBRARY names the library; the wheels nvidia-nccl have
// one.
const Nccl& nccl();

const Nvtx& nvtx();

// Of a driver or a compiler: "<major>.<minor>".
std::string driver_version();
std::string nvrtc_version();

}  // namespace cuda
