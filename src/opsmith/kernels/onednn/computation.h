// Computations of oneDNN: what one is, and running it. What oneDNN makes of a description, which takes it
// longer than a small product, is kept for the next call of the same sizes and strides.
#pragma once

#include <cstdint>
#include <optional>

#include "../common/dims.h"
#include "dnnl.h"

namespace opsmith::onednn {

using executorch::aten::ScalarType;

// oneDNN's number of the dtype; nothing for one that no kernel here takes.
std::optional<DataType> data_type(ScalarType dtype);

// How the elements of an argument lie in memory; strides in elements.
struct Layout {
  DataType dtype;
  Dims sizes;
  Dims strides;
};

struct Operand {
  Role role;
  Layout layout;
  void* data;
  // oneDNN chooses a layout for its own use, and elements are brought into it, or out of it.
  bool is_rearranged = false;
};

enum class Kind { kMatmul, kReorder, kConvolution, kDeconvolution, kConvolutionData, kConvolutionWeights };

struct Computation {
  static constexpr int kMost = 4;

  const char* name;  // the operator, for errors
  Kind kind;
  // Source, weights, result, and a bias if there is one; of a reorder source and result.
  Operand operands[kMost];
  int count;
  // Of convolutions: stride, dilation, padding before and behind, by spatial dimension.
  Dims windows[4] = {};
  // Of products: result = alpha · product + beta · result, the last not read where beta is 0.
  float alpha = 1.0f;
  float beta = 0.0f;
};

// False with the call rejected where oneDNN is missing, or does not take it.
bool run(KernelRuntimeContext& context, const Computation& computation);

}  // namespace opsmith::onednn
