// The functions of cuDNN 9 that the kernels call, found in its library when they are first asked for. Types
// and numbers are NVIDIA's.
#pragma once

#include <array>
#include <cstddef>

namespace opsmith::cudnn {

using Handle = struct cudnnContext*;
using Descriptor = void*;  // of a tensor, a filter or a convolution

// cudnnStatus_t; those that say that something is not supported go from one thousand to the next.
constexpr int kSuccess = 0;
constexpr int kNotSupported = 3000;

// cudnnDataType_t
enum : int { kFloat32, kFloat64, kFloat16, kBfloat16 = 9 };

// cudnnMathType_t
constexpr int kDefaultMath = 0;  // of float32, with TF32
constexpr int kTensorCores = 1;
constexpr int kNoTensorCores = 3;

constexpr int kContiguous = 0;        // CUDNN_TENSOR_NCHW, of filters with one more dimension too
constexpr int kChannelsLast = 1;      // CUDNN_TENSOR_NHWC
constexpr int kCrossCorrelation = 1;  // the filter as it lies, which PyTorch calls a convolution
constexpr int kDeterministic = 1;

// An algorithm, as cuDNN ranks it: cudnnConvolutionFwdAlgoPerf_t, which those of gradients equal.
struct Algorithm {
  int number;
  int status;
  float milliseconds;
  size_t workspace;
  int determinism;
  int math;
  std::array<int, 3> reserved;
};

// The tensors of a plain convolution, which takes an image to a result; any may be written, from the others.
enum Role : size_t { kImage, kWeight, kResult };

// The functions that write one of them, `out`; `a` and `b` are the others, in the order of Role.
struct Operation {
  int (*Rank)(Handle, Descriptor a, Descriptor b, Descriptor convolution, Descriptor out, int most,
              int* count, Algorithm* ranked) = nullptr;
  int (*WorkspaceSize)(Handle, Descriptor a, Descriptor b, Descriptor convolution, Descriptor out,
                       int algorithm, size_t* bytes) = nullptr;
  int (*Run)(Handle, const void* alpha, Descriptor a, const void* a_data, Descriptor b, const void* b_data,
             Descriptor convolution, int algorithm, void* workspace, size_t workspace_bytes, const void* beta,
             Descriptor out, void* out_data) = nullptr;
};

struct Kind {
  int (*Create)(Descriptor*) = nullptr;
  int (*Destroy)(Descriptor) = nullptr;
};

struct Api {
  int (*Create)(Handle*) = nullptr;
  int (*SetStream)(Handle, void* stream) = nullptr;
  const char* (*ErrorString)(int status) = nullptr;
  void (*LastErrorString)(char* text, size_t size) = nullptr;
  Kind tensor, filter, convolution;
  int (*SetTensor)(Descriptor, int type, int dims, const int* sizes, const int* strides) = nullptr;
  int (*SetFilter)(Descriptor, int type, int format, int dims, const int* sizes) = nullptr;
  int (*SetConvolution)(Descriptor, int dims, const int* padding, const int* stride, const int* dilation,
                        int mode, int compute_type) = nullptr;
  int (*SetGroups)(Descriptor, int groups) = nullptr;
  int (*SetMath)(Descriptor, int math) = nullptr;
  std::array<Operation, 3> writing;  // by Role
};

// Raises NotImplementedError where cuDNN is missing. OPSMITH_CUDNN_LIBRARY names the library; without it, it
// is the one of NVIDIA's wheels beside torch, or one that the system finds.
const Api& api();

}  // namespace opsmith::cudnn
