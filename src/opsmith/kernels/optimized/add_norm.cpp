// optimized::add_rms_norm and add_layer_norm: a residual is added, and the sum, which is a result too, is
// normalized while its row is in the first-level cache.
#include <limits>
#include <tuple>

#include "by_dtype.h"
#include "norm_rows.h"
#include "float_functions.h"
#include "threads.h"

namespace opsmith::optimized::native {

namespace {

using Results = std::tuple<Tensor&, Tensor&>;

struct Operands {
  const char* name;
  const Tensor& input;
  const Tensor& residual;
  IntList normalized_shape;
  const OptionalTensor& weight;
  const OptionalTensor& bias;
};

// Rejects what does not belong together; else gives the results their shape.
bool prepare(KernelRuntimeContext& context, const Operands& given, Tensor& normed, Tensor& sum,
             NormLines& rows) {
  const ScalarType dtype = given.input.scalar_type();
  OPSMITH_CHECK(context,
                is_taken(dtype) && given.residual.scalar_type() == dtype && normed.scalar_type() == dtype &&
                    sum.scalar_type() == dtype,
                NotSupported, false, "%s takes float32, or bfloat16 or float16 with parameters of either",
                given.name);
  OPSMITH_CHECK(context, sizes_of(given.residual) == sizes_of(given.input), InvalidArgument, false,
                "%s: input and residual have one shape", given.name);
  return have_one_dtype(context, given.name, given.weight, given.bias) &&
         norm_lines(context, given.name, given.input, given.normalized_shape, rows) &&
         is_parameter(context, given.name, given.weight, given.input, Dims(given.normalized_shape)) &&
         is_parameter(context, given.name, given.bias, given.input, Dims(given.normalized_shape)) &&
         resize_like(context, normed, given.input) && resize_like(context, sum, given.input) &&
         are_contiguous(context, {&given.input, &given.residual, &normed, &sum});
}

// normalize(row of the sum, row of the result) after each addition.
template <class T, class Normalize>
void for_each_sum(const Operands& given, const NormLines& rows, Tensor& normed, Tensor& sum,
                  const Normalize& normalize) {
  const int64_t n = rows.length;
  const bool streamed = is_streamed(given.input, rows);
  const T* const x = static_cast<const T*>(given.input.const_data_ptr());
  const T* const r = static_cast<const T*>(given.residual.const_data_ptr());
  T* const s = static_cast<T*>(sum.mutable_data_ptr());
  T* const y = static_cast<T*>(normed.mutable_data_ptr());
  parallel(rows.count, row_grain_size(n * kNormCost), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      OPSMITH_BEST_OF(T, add)(x + row * n, r + row * n, 1.0f, s + row * n, n, false);
      normalize(s + row * n, y + row * n, n, streamed);
    }
  });
}

template <class T, class W>
void rms_norm(const Operands& given, const NormLines& rows, float eps, Tensor& normed, Tensor& sum,
              RmsNorm<T, W>* function) {
  const W* const weight = data<W>(given.weight);
  for_each_sum<T>(given, rows, normed, sum, [=](const T* from, T* to, int64_t n, bool streamed) {
    function(from, weight, to, n, eps, streamed);
  });
}

template <class T, class W>
void layer_norm(const Operands& given, const NormLines& rows, float eps, Tensor& normed, Tensor& sum,
                LayerNorm<T, W>* function) {
  const W *const weight = data<W>(given.weight), *const bias = data<W>(given.bias);
  for_each_sum<T>(given, rows, normed, sum, [=](const T* from, T* to, int64_t n, bool streamed) {
    float mean, rstd;
    function(from, weight, bias, to, n, eps, &mean, &rstd, streamed);
  });
}

constexpr char kRms[] = "optimized::add_rms_norm.out";
constexpr char kLayer[] = "optimized::add_layer_norm.out";

}  // namespace

Results add_rms_norm_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& residual,
                         IntList normalized_shape, const OptionalTensor& weight, std::optional<double> eps,
                         Tensor& normed, Tensor& sum) {
  Results results(normed, sum);
  const OptionalTensor none;
  const Operands given{"add_rms_norm", input, residual, normalized_shape, weight, none};
  NormLines rows;
  if (!prepare(context, given, normed, sum, rows) || sum.numel() == 0) {
    return results;
  }
  const auto epsilon = static_cast<float>(eps.value_or(std::numeric_limits<float>::epsilon()));
  OPSMITH_WITH_PARAMETERS(kRms, input.scalar_type(), has_float(weight), rms_norm,
                          [&](auto* function) { rms_norm(given, rows, epsilon, normed, sum, function); })
  return results;
}

Results add_layer_norm_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& residual,
                           IntList normalized_shape, const OptionalTensor& weight, const OptionalTensor& bias,
                           double eps, Tensor& normed, Tensor& sum) {
  Results results(normed, sum);
  const Operands given{"add_layer_norm", input, residual, normalized_shape, weight, bias};
  NormLines rows;
  if (!prepare(context, given, normed, sum, rows) || sum.numel() == 0) {
    return results;
  }
  const auto epsilon = static_cast<float>(eps);
  OPSMITH_WITH_PARAMETERS(kLayer, input.scalar_type(), has_float(weight, bias), layer_norm,
                          [&](auto* function) { layer_norm(given, rows, epsilon, normed, sum, function); })
  return results;
}

}  // namespace opsmith::optimized::native
