// The backend's functions for graphs that Inductor writes in C++.
//
// Generated code carries this text, and includes nothing but PyTorch's stable C functions: a package that
// AOTInductor made is loaded without the headers of opsmith. The backend gives the table when it is asked
// for the version that the graph was written for: runtime/compile/cpp_graphs.py, graph_functions.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

namespace opsmith {

constexpr int64_t kGraphFunctions = 1;

// Functions return false when they failed; error() then says why, in the thread that called.
struct GraphFunctions {
  const char* (*error)();

  // The address at which the host sees what lies at `data`, when the current stream's work is done.
  bool (*host_pointer)(void* data, void** pointer);

  // Memory on `device` that no operator allocated: a model's constants.
  bool (*allocate)(size_t bytes, int32_t device, void** data);
  bool (*release)(void* data);
  bool (*copy_from_host)(void* to, int32_t device, const void* from, size_t bytes);
  bool (*copy)(void* to, const void* from, int32_t device, size_t bytes);

  // The driver's handle of the stream that is current for `device`.
  bool (*current_stream)(int32_t device, void** stream);

  // A library's fused kernel, of the operators that its manifest names.
  bool (*make_kernel)(const char* make, const char* source, const char* name, bool is_reduction,
                      int64_t* kernel);
  bool (*run_kernel)(const char* run, int64_t kernel, const AtenTensorHandle* tensors, size_t tensor_count,
                     const int64_t* numbers, size_t number_count);

  // Operators that Inductor calls with memory of its own planning.
  bool (*mm_out)(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2);
  bool (*bmm_out)(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2);
  bool (*addmm_out)(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1, AtenTensorHandle mat2,
                    double beta, double alpha);
  bool (*baddbmm_out)(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle batch1,
                      AtenTensorHandle batch2, double beta, double alpha);
  bool (*convolution)(AtenTensorHandle input, AtenTensorHandle weight, const AtenTensorHandle* bias,
                      const int64_t* stride, int64_t stride_size, const int64_t* padding,
                      int64_t padding_size, const int64_t* dilation, int64_t dilation_size, bool transposed,
                      const int64_t* output_padding, int64_t output_padding_size, int64_t groups,
                      AtenTensorHandle* result);
  bool (*randint_low_out)(AtenTensorHandle out, int64_t low, int64_t high, const int64_t* size,
                          int64_t size_size);
  bool (*scatter_src_out)(AtenTensorHandle out, AtenTensorHandle self, int64_t dim, AtenTensorHandle index,
                          AtenTensorHandle source);
  bool (*scatter_value_out)(AtenTensorHandle out, AtenTensorHandle self, int64_t dim, AtenTensorHandle index,
                            double value);
  bool (*scatter_reduce_two_out)(AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                 AtenTensorHandle index, AtenTensorHandle source, const char* reduce,
                                 bool include_self);
  bool (*view_dtype)(AtenTensorHandle self, int32_t dtype, AtenTensorHandle* result);
};

}  // namespace opsmith
