// optimized::add_rms_norm and add_layer_norm: a residual is added, and the sum, which is a result too, is
// normalized while its row is in the first-level cache.
#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "../common/resize.h"
#include "by_dtype.h"
#include "norm_rows.h"
#include "float_functions.h"
#include "threads.h"

namespace opsmith::optimized::native {

namespace {

using OptionalTensor = std::optional<Tensor>;
using Results = std::tuple<Tensor&, Tensor&>;

struct Operands {
  const char* name;
  const Tensor& input;
  const Tensor& residual;
  Shape normalized_shape;
  const OptionalTensor& weight;
  const OptionalTensor& bias;
};

// Rejects what does not belong together; else gives the results their shape.
bool prepare(KernelRuntimeContext& context, const Operands& given, Tensor& normed, Tensor& sum) {
  const ScalarType dtype = given.input.scalar_type();
  OPSMITH_CHECK(context,
                is_taken(dtype) && given.residual.scalar_type() == dtype && normed.scalar_type() == dtype &&
                    sum.scalar_type() == dtype && has_dtype(given.weight, given.input) &&
                    has_dtype(given.bias, given.input),
                NotSupported, false, "%s takes float32, or bfloat16 or float16 with parameters of either",
                given.name);
  OPSMITH_CHECK(context,
                !given.weight.has_value() || !given.bias.has_value() ||
                    given.weight->scalar_type() == given.bias->scalar_type(),
                NotSupported, false, "%s: weight and bias have one dtype", given.name);
  OPSMITH_CHECK(
      context,
      sizes_of(given.residual) == sizes_of(given.input) && ends_with(given.input, given.normalized_shape) &&
          has_shape(given.weight, given.normalized_shape) && has_shape(given.bias, given.normalized_shape),
      InvalidArgument, false,
      "%s: input and residual have one shape, whose last dimensions, weight and bias have the "
      "normalized shape",
      given.name);
  return resize_like(context, normed, given.input) && resize_like(context, sum, given.input) &&
         are_contiguous(context, {&given.input, &given.residual, &normed, &sum});
}

// normalize(row of the sum, row of the result) after each addition.
template <class T, class Normalize>
void for_each_sum(const Operands& given, Tensor& normed, Tensor& sum, const Normalize& normalize) {
  const Rows rows = rows_of(given.input, given.normalized_shape);
  const int64_t n = rows.length;
  const T* const x = static_cast<const T*>(given.input.const_data_ptr());
  const T* const r = static_cast<const T*>(given.residual.const_data_ptr());
  T* const s = static_cast<T*>(sum.mutable_data_ptr());
  T* const y = static_cast<T*>(normed.mutable_data_ptr());
  parallel(rows.count, row_grain_size(n * kNormCost), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      OPSMITH_BEST_OF(T, add)(x + row * n, r + row * n, 1.0f, s + row * n, n, false);
      normalize(s + row * n, y + row * n, n, rows.streamed);
    }
  });
}

template <class T, class W>
void rms_norm(const Operands& given, float eps, Tensor& normed, Tensor& sum, RmsNorm<T, W>* function) {
  const W* const weight = data<W>(given.weight);
  for_each_sum<T>(given, normed, sum, [=](const T* from, T* to, int64_t n, bool streamed) {
    function(from, weight, to, n, eps, streamed);
  });
}

template <class T, class W>
void layer_norm(const Operands& given, float eps, Tensor& normed, Tensor& sum, LayerNorm<T, W>* function) {
  const W *const weight = data<W>(given.weight), *const bias = data<W>(given.bias);
  for_each_sum<T>(given, normed, sum, [=](const T* from, T* to, int64_t n, bool streamed) {
    float mean, rstd;
    function(from, weight, bias, to, n, eps, &mean, &rstd, streamed);
  });
}

bool has_float_parameters(const Operands& given) {
  return (given.weight.has_value() && given.weight->scalar_type() == ScalarType::Float) ||
         (given.bias.has_value() && given.bias->scalar_type() == ScalarType::Float);
}

constexpr char kRms[] = "optimized::add_rms_norm.out";
constexpr char kLayer[] = "optimized::add_layer_norm.out";

}  // namespace

Results add_rms_norm_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& residual,
                         Shape normalized_shape, const OptionalTensor& weight, std::optional<double> eps,
                         Tensor& normed, Tensor& sum) {
  Results results(normed, sum);
  const OptionalTensor none;
  const Operands given{"add_rms_norm", input, residual, normalized_shape, weight, none};
  if (!prepare(context, given, normed, sum) || sum.numel() == 0) {
    return results;
  }
  const auto epsilon = static_cast<float>(eps.value_or(std::numeric_limits<float>::epsilon()));
  OPSMITH_WITH_PARAMETERS(kRms, input.scalar_type(), has_float_parameters(given), rms_norm,
                          [&](auto* function) { rms_norm(given, epsilon, normed, sum, function); })
  return results;
}

Results add_layer_norm_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& residual,
                           Shape normalized_shape, const OptionalTensor& weight, const OptionalTensor& bias,
                           double eps, Tensor& normed, Tensor& sum) {
  Results results(normed, sum);
  const Operands given{"add_layer_norm", input, residual, normalized_shape, weight, bias};
  if (!prepare(context, given, normed, sum) || sum.numel() == 0) {
    return results;
  }
  const auto epsilon = static_cast<float>(eps);
  OPSMITH_WITH_PARAMETERS(kLayer, input.scalar_type(), has_float_parameters(given), layer_norm,
                          [&](auto* function) { layer_norm(given, epsilon, normed, sum, function); })
  return results;
}

}  // namespace opsmith::optimized::native
