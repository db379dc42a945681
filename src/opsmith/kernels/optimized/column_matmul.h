// A large feature map from a small one of few pixels (Note [Large and small] in convolution_shape.h), with
// the weight as it lies: the product of pixels and weight has a column for each of the large map's channels
// and place in the kernel, and each is added where its pixel meets the large map.
#pragma once

#include <cstdint>

#include "../common/convolution_shape.h"
#include "../common/feature_map.h"

namespace opsmith::optimized {

struct ColumnProduct {
  FeatureMap<const float> small;
  FeatureMap<float> large;
  ConvolutionWindow window;
  int64_t groups;
  const float* weight;  // [small's channels][large's channels / groups][kernel], dense
  const float* bias;    // of the large map's channels, or null
};

// Whether laying the weight in another order would cost more than adding up the columns.
bool column_matmul_pays(const ColumnProduct& product);

// False where there was no memory; the context then has failed.
bool multiply_columns(executorch::runtime::KernelRuntimeContext& context, const ColumnProduct& product);

}  // namespace opsmith::optimized
