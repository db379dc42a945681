// The functions of oneDNN's C API that the kernels call, found in its library when they are first asked for:
// so the kernels are built, and say what is missing, where there is no oneDNN. Types and numbers are those of
// oneDNN 3, which has kept them since 3.0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opsmith::onednn {

using Status = int;
using DataType = int;
using Engine = struct dnnl_engine*;
using Stream = struct dnnl_stream*;
using MemoryDesc = struct dnnl_memory_desc*;
using Memory = struct dnnl_memory*;
using Attributes = struct dnnl_primitive_attr*;
using PostOps = struct dnnl_post_ops*;
using PrimitiveDesc = struct dnnl_primitive_desc*;
using Primitive = struct dnnl_primitive*;

struct Version {
  int major;
  int minor;
  int patch;
  const char* hash;
  unsigned cpu_runtime;
  unsigned gpu_runtime;
};
struct Argument {
  int role;
  Memory memory;
};

constexpr Status kSuccess = 0;
constexpr Status kUnimplemented = 3;
constexpr DataType kF16 = 1;
constexpr DataType kBf16 = 2;
constexpr DataType kF32 = 3;
constexpr int kCpu = 1;
constexpr unsigned kInOrder = 1;
constexpr unsigned kSequentialRuntime = 1;
constexpr unsigned kOpenMpRuntime = 2;
constexpr int kAnyLayout = 1;       // dnnl_format_tag_any: oneDNN chooses
constexpr int kForward = 64;        // dnnl_forward_training
constexpr int kDirect = 1;          // dnnl_convolution_direct
constexpr int kDeconvolution = 10;  // dnnl_deconvolution_direct
constexpr int kUserScratchpad = 1;

// Questions to a primitive: how it wants an argument to lie in memory.
enum Query : int {
  kQuerySource = 129,
  kQuerySourceGradient = 130,
  kQueryWeights = 131,
  kQueryWeightsGradient = 132,
  kQueryResult = 133,
  kQueryResultGradient = 134,
  kQueryScratchpad = 136,
};

// The part that an argument plays in a primitive.
enum Role : int {
  kSource = 1,
  kResult = 17,
  kWeights = 33,
  kBias = 41,
  kScratchpad = 80,
  kSourceGradient = 129,
  kResultGradient = 145,
  kWeightsGradient = 161,
  kScalesOfSource = 4096 | kSource,
};

using Desc = const dnnl_memory_desc*;
using Sizes = const int64_t*;

// name, as exported, parameters; each returns Status
#define OPSMITH_DNNL_FUNCTIONS(F)                                                                           \
  F(EngineCreate, "dnnl_engine_create", (Engine*, int, size_t))                                             \
  F(StreamCreate, "dnnl_stream_create", (Stream*, Engine, unsigned))                                        \
  F(StreamDestroy, "dnnl_stream_destroy", (Stream))                                                         \
  F(DescWithStrides, "dnnl_memory_desc_create_with_strides", (MemoryDesc*, int, Sizes, DataType, Sizes))    \
  F(DescWithTag, "dnnl_memory_desc_create_with_tag", (MemoryDesc*, int, Sizes, DataType, int))              \
  F(DescClone, "dnnl_memory_desc_clone", (MemoryDesc*, Desc))                                               \
  F(DescDestroy, "dnnl_memory_desc_destroy", (MemoryDesc))                                                  \
  F(MemoryCreate, "dnnl_memory_create", (Memory*, Desc, Engine, void*))                                     \
  F(MemoryDestroy, "dnnl_memory_destroy", (Memory))                                                         \
  F(AttributesCreate, "dnnl_primitive_attr_create", (Attributes*))                                          \
  F(AttributesDestroy, "dnnl_primitive_attr_destroy", (Attributes))                                         \
  F(SetScratchpadMode, "dnnl_primitive_attr_set_scratchpad_mode", (Attributes, int))                        \
  F(SetScalesMask, "dnnl_primitive_attr_set_scales_mask", (Attributes, int, int))                           \
  F(SetPostOps, "dnnl_primitive_attr_set_post_ops", (Attributes, const dnnl_post_ops*))                     \
  F(PostOpsCreate, "dnnl_post_ops_create", (PostOps*))                                                      \
  F(PostOpsDestroy, "dnnl_post_ops_destroy", (PostOps))                                                     \
  F(AppendSum, "dnnl_post_ops_append_sum", (PostOps, float, int32_t, DataType))                             \
  F(MatmulDesc, "dnnl_matmul_primitive_desc_create",                                                        \
    (PrimitiveDesc*, Engine, Desc, Desc, Desc, Desc, const dnnl_primitive_attr*))                           \
  F(ReorderDesc, "dnnl_reorder_primitive_desc_create",                                                      \
    (PrimitiveDesc*, Desc, Engine, Desc, Engine, const dnnl_primitive_attr*))                               \
  F(ConvolutionDesc, "dnnl_convolution_forward_primitive_desc_create",                                      \
    (PrimitiveDesc*, Engine, int, int, Desc, Desc, Desc, Desc, Sizes, Sizes, Sizes, Sizes,                  \
     const dnnl_primitive_attr*))                                                                           \
  F(DeconvolutionDesc, "dnnl_deconvolution_forward_primitive_desc_create",                                  \
    (PrimitiveDesc*, Engine, int, int, Desc, Desc, Desc, Desc, Sizes, Sizes, Sizes, Sizes,                  \
     const dnnl_primitive_attr*))                                                                           \
  F(ConvolutionDataDesc, "dnnl_convolution_backward_data_primitive_desc_create",                            \
    (PrimitiveDesc*, Engine, int, Desc, Desc, Desc, Sizes, Sizes, Sizes, Sizes, const dnnl_primitive_desc*, \
     const dnnl_primitive_attr*))                                                                           \
  F(ConvolutionWeightsDesc, "dnnl_convolution_backward_weights_primitive_desc_create",                      \
    (PrimitiveDesc*, Engine, int, Desc, Desc, Desc, Desc, Sizes, Sizes, Sizes, Sizes,                       \
     const dnnl_primitive_desc*, const dnnl_primitive_attr*))                                               \
  F(PrimitiveDescDestroy, "dnnl_primitive_desc_destroy", (PrimitiveDesc))                                   \
  F(PrimitiveCreate, "dnnl_primitive_create", (Primitive*, const dnnl_primitive_desc*))                     \
  F(PrimitiveExecute, "dnnl_primitive_execute", (const dnnl_primitive*, Stream, int, const Argument*))      \
  F(PrimitiveDestroy, "dnnl_primitive_destroy", (Primitive))

struct Api {
#define OPSMITH_DNNL_ENTRY(name, exported, parameters) Status(*name) parameters = nullptr;
  OPSMITH_DNNL_FUNCTIONS(OPSMITH_DNNL_ENTRY)
#undef OPSMITH_DNNL_ENTRY
  const Version* (*GetVersion)() = nullptr;
  size_t (*DescSize)(Desc) = nullptr;
  int (*DescEqual)(Desc, Desc) = nullptr;
  Desc (*Asked)(const dnnl_primitive_desc*, int query, int index) = nullptr;
  // OpenMP's, of the library that oneDNN runs on; null where it was built to run on one thread.
  void (*SetThreads)(int) = nullptr;
  int (*GetThreads)() = nullptr;

  Engine engine = nullptr;
  const char* failure = nullptr;  // why there is none of all this
};

// oneDNN, opened once. OPSMITH_ONEDNN_LIBRARY names the library; without it, it is the one of the wheel
// onednn-cpu-gomp beside the torch of this process, or one that the system finds.
const Api& api();

}  // namespace opsmith::onednn
