// Functions of one operand, some with numbers that say how.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "../common/resize.h"
#include "../common/strided_iteration.h"
#include "by_dtype.h"
#include "elements.h"
#include "numbers.h"
#include "float_functions.h"
#include "pointwise_functions.h"
#include "threads.h"

namespace opsmith::optimized::native {

namespace {

template <class T>
using Unary = void(const T* x, T* y, int64_t n, bool streamed);
template <class T>
using WithNumbers = void(const T* x, const float* numbers, T* y, int64_t n, bool streamed);
template <class T>
using Bound = void(const T* x, float low, float high, T* y, int64_t n, bool streamed);

// A function of elementary.h takes about as long as adding ten elements, so threads are worth it early.
constexpr int64_t kGrainOfElementary = 8192;

// function(x, y, n, streamed) of all elements, `grain` of which are worth a thread.
template <class T, class Function>
void compute(const Tensor& self, Tensor& out, int64_t grain, const Function& function) {
  const T* const x = reinterpret_cast<const T*>(self.const_data_ptr());
  T* const y = reinterpret_cast<T*>(out.mutable_data_ptr());
  const bool streamed = is_streamed(out, {&self});
  if (same_layout(self, out)) {
    parallel(out.numel(), grain,
             [&](int64_t begin, int64_t end) { function(x + begin, y + begin, end - begin, streamed); });
    return;
  }
  const auto all = strided_over(out, self);
  const auto line = all.innermost(), next = all.innermost(1);
  for_each_row_in_threads<2>(all, grain, [&](const auto& at, int64_t rows, int64_t n) {
    constexpr int64_t kBlock = 256;
    T block[kBlock];
    for (int64_t row = 0; row < rows; ++row) {
      T* const to = y + at[0] + row * next.stride[0];
      const T* const from = x + at[1] + row * next.stride[1];
      for (int64_t begin = 0; begin < n; begin += kBlock) {
        const int64_t count = std::min(n - begin, kBlock);
        for (int64_t i = 0; i < count; ++i) {
          block[i] = from[(begin + i) * line.stride[1]];
        }
        function(block, block, count, false);
        for (int64_t i = 0; i < count; ++i) {
          to[(begin + i) * line.stride[0]] = block[i];
        }
      }
    }
  });
}

// call(a function of the dtype, x, y, n, streamed) of all elements.
template <template <class> class Signature, class Call>
Tensor& map_by(KernelRuntimeContext& context, const Tensor& self, Tensor& out, const char* name,
               const ByDtype<Signature>& functions, int64_t grain, const Call& call) {
  OPSMITH_CHECK(context, self.scalar_type() == out.scalar_type() && functions.has(self.scalar_type()),
                NotSupported, out, "%s takes " OPSMITH_TAKEN ", and its result has the same dtype", name);
  if (!resize_like(context, out, self) || !one_dim_order(context, {&out, &self})) {
    return out;
  }
  with_element(self.scalar_type(), [&](auto element) {
    using T = decltype(element);
    compute<T>(self, out, grain,
               [&, function = functions.of(element)](const T* x, T* y, int64_t n, bool streamed) {
                 call(function, x, y, n, streamed);
               });
  });
  return out;
}

Tensor& unary(KernelRuntimeContext& context, const Tensor& self, Tensor& out, const char* name,
              const ByDtype<Unary>& functions, int64_t grain = kGrain) {
  return map_by(
      context, self, out, name, functions, grain,
      [](auto* function, const auto* x, auto* y, int64_t n, bool streamed) { function(x, y, n, streamed); });
}

Tensor& with_numbers(KernelRuntimeContext& context, const Tensor& self, Tensor& out, const char* name,
                     const ByDtype<WithNumbers>& functions, const float (&numbers)[3],
                     int64_t grain = kGrain) {
  return map_by(context, self, out, name, functions, grain,
                [&](auto* function, const auto* x, auto* y, int64_t n, bool streamed) {
                  function(x, numbers, y, n, streamed);
                });
}

// The number for all elements.
template <template <class> class Signature>
Tensor& filled(KernelRuntimeContext& context, const Tensor& self, Tensor& out, const char* name,
               const ByDtype<Signature>& functions, float number) {
  return map_by(context, self, out, name, functions, kGrain,
                [number](auto*, const auto*, auto* y, int64_t n, bool) {
                  auto element = *y;
                  narrow(&number, &element, 1);
                  std::fill_n(y, n, element);
                });
}

// No less than `low` and no more than `high`, which wins; NaN, of an element or a bound, stays.
Tensor& bounded(KernelRuntimeContext& context, const Tensor& self, Tensor& out, const char* name,
                const ByDtype<Bound>& bound, float low, float high) {
  if (std::isnan(low) || std::isnan(high)) {
    // A bound of NaN makes all results NaN; min and max would lose it.
    return filled(context, self, out, name, bound, std::numeric_limits<float>::quiet_NaN());
  }
  return map_by(context, self, out, name, bound, kGrain,
                [low = std::min(low, high), high](auto* function, const auto* x, auto* y, int64_t n,
                                                  bool streamed) { function(x, low, high, y, n, streamed); });
}

}  // namespace

#define OPSMITH_UNARY_KERNEL(name, function, grain)                                    \
  Tensor& name##_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) { \
    ByDtype<Unary> functions;                                                          \
    OPSMITH_SET_FUNCTIONS(functions, #name ".out", function)                           \
    return unary(context, self, out, #name, functions, grain);                         \
  }
OPSMITH_UNARY_KERNEL(abs, absolute, kGrain)
OPSMITH_UNARY_KERNEL(cos, cosine, kGrainOfElementary)
OPSMITH_UNARY_KERNEL(erf, erf, kGrainOfElementary)
OPSMITH_UNARY_KERNEL(exp, exp, kGrainOfElementary)
OPSMITH_UNARY_KERNEL(exp2, exp2, kGrainOfElementary)
OPSMITH_UNARY_KERNEL(expm1, expm1, kGrainOfElementary)
OPSMITH_UNARY_KERNEL(hardsigmoid, hardsigmoid, kGrain)
OPSMITH_UNARY_KERNEL(hardswish, hardswish, kGrain)
OPSMITH_UNARY_KERNEL(log, log, kGrainOfElementary)
OPSMITH_UNARY_KERNEL(log10, log10, kGrainOfElementary)
OPSMITH_UNARY_KERNEL(log1p, log1p, kGrainOfElementary)
OPSMITH_UNARY_KERNEL(log2, log2, kGrainOfElementary)
OPSMITH_UNARY_KERNEL(neg, negative, kGrain)
OPSMITH_UNARY_KERNEL(reciprocal, reciprocal, kGrain)
OPSMITH_UNARY_KERNEL(relu, relu, kGrain)
OPSMITH_UNARY_KERNEL(round, rounded, kGrain)
OPSMITH_UNARY_KERNEL(rsqrt, inverse_root, kGrain)
OPSMITH_UNARY_KERNEL(sigmoid, sigmoid, kGrainOfElementary)
OPSMITH_UNARY_KERNEL(silu, silu, kGrainOfElementary)
OPSMITH_UNARY_KERNEL(sin, sine, kGrainOfElementary)
OPSMITH_UNARY_KERNEL(sqrt, square_root, kGrain)
OPSMITH_UNARY_KERNEL(tanh, tanh, kGrainOfElementary)
#undef OPSMITH_UNARY_KERNEL

Tensor& gelu_out(KernelRuntimeContext& context, const Tensor& self, std::string_view approximate,
                 Tensor& out) {
  ByDtype<Unary> functions;
  if (approximate == "tanh") {
    OPSMITH_SET_FUNCTIONS(functions, "gelu.out", gelu_tanh)
  } else if (approximate == "none") {
    OPSMITH_SET_FUNCTIONS(functions, "gelu.out", gelu_erf)
  } else {
    OPSMITH_CHECK(context, false, InvalidArgument, out, "approximate argument must be either none or tanh.");
  }
  return unary(context, self, out, "gelu", functions, kGrainOfElementary);
}

Tensor& leaky_relu_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& negative_slope,
                       Tensor& out) {
  if (!fits(context, negative_slope, ScalarType::Float) ||
      (in_executorch() && !fits(context, negative_slope, self.scalar_type()))) {
    return out;
  }
  ByDtype<WithNumbers> functions;
  OPSMITH_SET_FUNCTIONS(functions, "leaky_relu.out", leaky_relu)
  return with_numbers(context, self, out, "leaky_relu", functions, {value_of<float>(negative_slope), 0, 0});
}

Tensor& elu_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& alpha, const Scalar& scale,
                const Scalar& input_scale, Tensor& out) {
  for (const Scalar* number : {&alpha, &scale, &input_scale}) {
    if (!fits(context, *number, ScalarType::Float)) {
      return out;
    }
  }
  ByDtype<WithNumbers> functions;
  OPSMITH_SET_FUNCTIONS(functions, "elu.out", elu)
  return with_numbers(
      context, self, out, "elu", functions,
      {value_of<float>(alpha) * value_of<float>(scale), value_of<float>(scale), value_of<float>(input_scale)},
      kGrainOfElementary);
}

Tensor& softplus_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& beta,
                     const Scalar& threshold, Tensor& out) {
  if (!fits(context, beta, ScalarType::Float) || !fits(context, threshold, ScalarType::Float)) {
    return out;
  }
  ByDtype<WithNumbers> functions;
  OPSMITH_SET_FUNCTIONS(functions, "softplus.out", softplus)
  return with_numbers(context, self, out, "softplus", functions,
                      {value_of<float>(beta), value_of<float>(threshold), 0}, kGrainOfElementary);
}

Tensor& clamp_out(KernelRuntimeContext& context, const Tensor& self, const std::optional<Scalar>& min,
                  const std::optional<Scalar>& max, Tensor& out) {
  const ScalarType dtype = self.scalar_type();
  OPSMITH_CHECK(context, min.has_value() || max.has_value(), InvalidArgument, out,
                "torch.clamp: At least one of 'min' or 'max' must not be None");
  if ((min.has_value() && !fits(context, *min, dtype)) || (max.has_value() && !fits(context, *max, dtype))) {
    return out;
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ByDtype<Bound> functions;
  OPSMITH_SET_FUNCTIONS(functions, "clamp.out", bound)
  return bounded(context, self, out, "clamp", functions, min.has_value() ? value_of<float>(*min) : -kInfinity,
                 max.has_value() ? value_of<float>(*max) : kInfinity);
}

Tensor& hardtanh_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& min_val,
                     const Scalar& max_val, Tensor& out) {
  if (!fits(context, min_val, self.scalar_type()) || !fits(context, max_val, self.scalar_type())) {
    return out;
  }
  ByDtype<Bound> functions;
  OPSMITH_SET_FUNCTIONS(functions, "hardtanh.out", bound)
  return bounded(context, self, out, "hardtanh", functions, value_of<float>(min_val),
                 value_of<float>(max_val));
}

Tensor& pow_tensor_scalar_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& exponent,
                              Tensor& out) {
  constexpr char kPow[] = "pow.Tensor_Scalar_out";
  const ScalarType dtype = self.scalar_type();
  const double power = value_of<double>(exponent);
  // ATen takes roots of float16 by pow, which differs for -inf and -0.
  const bool has_roots = dtype != ScalarType::Half;
  ByDtype<Unary> functions;
  if (power == 2.0) {
    OPSMITH_SET_FUNCTIONS(functions, kPow, square)
  } else if (power == 3.0) {
    OPSMITH_SET_FUNCTIONS(functions, kPow, cube)
  } else if (power == 0.5 && has_roots) {
    OPSMITH_SET_FUNCTIONS(functions, kPow, square_root)
  } else if (power == -0.5 && has_roots) {
    OPSMITH_SET_FUNCTIONS(functions, kPow, inverse_root)
  } else if (power == -1.0) {
    OPSMITH_SET_FUNCTIONS(functions, kPow, reciprocal)
  } else if (power == -2.0) {
    OPSMITH_SET_FUNCTIONS(functions, kPow, inverse_square)
  } else {
    OPSMITH_SET_FUNCTIONS(functions, kPow, square)
    if (power == 0.0) {
      return filled(context, self, out, "pow", functions, 1.0f);
    }
    if (power == 1.0) {
      return map_by(context, self, out, "pow", functions, kGrain,
                    [](auto*, const auto* x, auto* y, int64_t n, bool) { std::copy_n(x, n, y); });
    }
    if (dtype != ScalarType::Float && !fits(context, exponent, dtype)) {
      return out;
    }
    return map_by(context, self, out, "pow", functions, kGrainOfElementary,
                  [&](auto*, const auto* x, auto* y, int64_t n, bool) {
                    // Where the base is no float32, ATen rounds the exponent as the base is.
                    auto rounded = *x;
                    const float given = value_of<float>(exponent);
                    narrow(&given, &rounded, 1);
                    const float by = widened(rounded);
                    constexpr int64_t kBlock = 256;
                    float block[kBlock];
                    for (int64_t begin = 0; begin < n; begin += kBlock) {
                      const int64_t count = std::min(kBlock, n - begin);
                      for (int64_t i = 0; i < count; ++i) {
                        block[i] = std::pow(widened(x[begin + i]), by);
                      }
                      narrow(block, y + begin, count);
                    }
                  });
  }
  return unary(context, self, out, "pow", functions);
}

}  // namespace opsmith::optimized::native
