// Activation functions and their gradients. Formulas are those of torch.nn.functional's documentation;
// gradients of sigmoid and tanh are in terms of the result, of the others in terms of the operand.
#include "../elementary_functions.h"
#include "../pointwise_bodies.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>

namespace opsmith::portable::native {
namespace {

constexpr char kRelu[] = "relu.out";
constexpr char kThreshold[] = "threshold.out";
constexpr char kThresholdBackward[] = "threshold_backward.grad_input";
constexpr char kLeakyRelu[] = "leaky_relu.out";
constexpr char kLeakyReluBackward[] = "leaky_relu_backward.grad_input";
constexpr char kSigmoidBackward[] = "sigmoid_backward.grad_input";
constexpr char kTanhBackward[] = "tanh_backward.grad_input";
constexpr char kSilu[] = "silu.out";
constexpr char kSiluBackward[] = "silu_backward.grad_input";
constexpr char kElu[] = "elu.out";
constexpr char kSoftplus[] = "softplus.out";
constexpr char kGelu[] = "gelu.out";
constexpr char kGeluBackward[] = "gelu_backward.grad_input";
constexpr char kLogit[] = "logit.out";
constexpr char kGlu[] = "glu.out";

// Where the element is not above the threshold, the value, else the other operand: the element itself, or its
// gradient. NaN is not <= and takes the other.
template <class C>
struct Thresholded {
  C threshold;
  C value;
  C operator()(C a, C other) const { return a <= threshold ? value : other; }
};

template <const char* Name>
Tensor& thresholded(KernelRuntimeContext& context, const Tensor& self, const Tensor& other,
                    const Scalar& threshold, const Scalar& value, Tensor& out) {
  const ScalarType dtype = common_dtype(self, other);
  if (!fits(context, threshold, compute_dtype(dtype)) || !fits(context, value, dtype)) {
    return out;
  }
  return binary_of<Name>(context, Real{}, dtype, self, other, out, [&](auto type) {
    using C = typename decltype(type)::type;
    return Thresholded<C>{value_of<C>(threshold), value_of<C>(value)};
  });
}

// Whether the result may be written to `out`, and the dtype in which ATen computes with `self` can hold the
// numbers; rejects the call where not.
bool fit(KernelRuntimeContext& context, const Tensor& self, const Tensor& out,
         std::initializer_list<const Scalar*> numbers) {
  return out_is(context, self.scalar_type(), out) &&
         std::all_of(numbers.begin(), numbers.end(), [&](const Scalar* number) {
           return in_executorch() || fits(context, *number, compute_dtype(self.scalar_type()));
         });
}

// The tanh form of gelu: 0.5 a (1 + tanh(kBeta (a + kKappa a^3))).
template <class C>
constexpr C kBeta = static_cast<C>(0.79788456080286535588);  // sqrt(2 / pi)
template <class C>
constexpr C kKappa = static_cast<C>(0.044715);
template <class C>
constexpr C kInverseRoot2 = static_cast<C>(0.70710678118654752440);

bool gelu_form(KernelRuntimeContext& context, std::string_view approximate, bool& is_tanh_form) {
  is_tanh_form = approximate == "tanh";
  return is_tanh_form || approximate == "none" ||
         reject(context, Error::InvalidArgument, "approximate argument must be either none or tanh.");
}

// Elements from `start` of `t` along dimension `d`, as many as there are in half of it, as a Tensor without
// memory of its own.
class HalfOf {
 public:
  HalfOf(const Tensor& t, int64_t d, int64_t start) {
    for (int64_t i = 0; i < t.dim(); ++i) {
      sizes_[i] = t.sizes()[static_cast<size_t>(i)];
      strides_[i] = t.strides()[static_cast<size_t>(i)];
      order_[i] = t.dim_order()[static_cast<size_t>(i)];
    }
    sizes_[d] /= 2;
    char* const data = static_cast<char*>(t.mutable_data_ptr()) + start * strides_[d] * t.element_size();
    impl_.emplace(t.scalar_type(), t.dim(), sizes_, data, order_, strides_);
  }
  HalfOf(const HalfOf&) = delete;
  HalfOf& operator=(const HalfOf&) = delete;

  Tensor tensor() { return Tensor(&*impl_); }

 private:
  executorch::aten::SizesType sizes_[kMaxDims] = {};
  executorch::aten::StridesType strides_[kMaxDims] = {};
  executorch::aten::DimOrderType order_[kMaxDims] = {};
  std::optional<executorch::aten::TensorImpl> impl_;
};

}  // namespace

Tensor& relu_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  OPSMITH_CHECK(context, self.scalar_type() != ScalarType::Bool, InvalidArgument, out,
                "Boolean inputs not supported for relu");
  if (!out_is(context, self.scalar_type(), out)) {
    return out;
  }
  return unary<kRelu>(context, Real{}, self.scalar_type(), self, out, [](auto a) {
    using C = decltype(a);
    return a < C(0) ? C(0) : a;  // NaN and -0 are not < 0 and stay
  });
}

Tensor& threshold_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& threshold,
                      const Scalar& value, Tensor& out) {
  return thresholded<kThreshold>(context, self, self, threshold, value, out);
}

Tensor& threshold_backward_out(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& self,
                               const Scalar& threshold, Tensor& grad_input) {
  return thresholded<kThresholdBackward>(context, self, grad_output, threshold, Scalar(0), grad_input);
}

Tensor& leaky_relu_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& negative_slope,
                       Tensor& out) {
  if (!fit(context, self, out, {&negative_slope}) ||
      (in_executorch() && !fits(context, negative_slope, self.scalar_type()))) {
    return out;
  }
  return unary_of<kLeakyRelu>(context, Floating{}, self.scalar_type(), self, out, [&](auto type) {
    using C = typename decltype(type)::type;
    return [slope = value_of<C>(negative_slope)](C a) { return a > C(0) ? a : a * slope; };
  });
}

Tensor& leaky_relu_backward_out(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& self,
                                const Scalar& negative_slope, bool /*self_is_result*/, Tensor& grad_input) {
  return binary_of<kLeakyReluBackward>(
      context, Floating{}, common_dtype(self, grad_output), self, grad_output, grad_input, [&](auto type) {
        using C = typename decltype(type)::type;
        return [slope = value_of<C>(negative_slope)](C a, C grad) { return a > C(0) ? grad : grad * slope; };
      });
}

Tensor& sigmoid_backward_out(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& output,
                             Tensor& grad_input) {
  return binary<kSigmoidBackward>(context, Floating{}, common_dtype(grad_output, output), grad_output, output,
                                  grad_input,
                                  [](auto grad, auto y) { return grad * (decltype(y)(1) - y) * y; });
}

Tensor& tanh_backward_out(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& output,
                          Tensor& grad_input) {
  return binary<kTanhBackward>(context, Floating{}, common_dtype(grad_output, output), grad_output, output,
                               grad_input, [](auto grad, auto y) { return grad * (decltype(y)(1) - y * y); });
}

Tensor& silu_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  return unary<kSilu>(context, Floating{}, self.scalar_type(), self, out,
                      [](auto a) { return a / (decltype(a)(1) + portable::exp(-a)); });
}

Tensor& silu_backward_out(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& self,
                          Tensor& grad_input) {
  return binary<kSiluBackward>(context, Floating{}, common_dtype(grad_output, self), grad_output, self,
                               grad_input, [](auto grad, auto a) {
                                 using C = decltype(a);
                                 const C s = portable::sigmoid(a);
                                 return grad * s * (C(1) + a * (C(1) - s));
                               });
}

Tensor& elu_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& alpha, const Scalar& scale,
                const Scalar& input_scale, Tensor& out) {
  if (!fit(context, self, out, {&alpha, &scale, &input_scale})) {
    return out;
  }
  return unary_of<kElu>(context, Floating{}, self.scalar_type(), self, out, [&](auto type) {
    using C = typename decltype(type)::type;
    return [negative = value_of<C>(alpha) * value_of<C>(scale), positive = value_of<C>(scale),
            input_scale = value_of<C>(input_scale)](C a) {
      return a < C(0) ? std::expm1(a * input_scale) * negative : a * positive;
    };
  });
}

Tensor& softplus_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& beta,
                     const Scalar& threshold, Tensor& out) {
  if (!fit(context, self, out, {&beta, &threshold})) {
    return out;
  }
  return unary_of<kSoftplus>(context, Floating{}, self.scalar_type(), self, out, [&](auto type) {
    using C = typename decltype(type)::type;
    return [beta = value_of<C>(beta), threshold = value_of<C>(threshold)](C a) {
      return a * beta > threshold ? a : std::log1p(std::exp(a * beta)) / beta;
    };
  });
}

Tensor& gelu_out(KernelRuntimeContext& context, const Tensor& self, std::string_view approximate,
                 Tensor& out) {
  bool is_tanh_form = false;
  if (!gelu_form(context, approximate, is_tanh_form) || !out_is(context, self.scalar_type(), out)) {
    return out;
  }
  if (is_tanh_form) {
    return unary<kGelu>(context, Floating{}, self.scalar_type(), self, out, [](auto a) {
      using C = decltype(a);
      return C(0.5) * a * (C(1) + portable::tanh(kBeta<C> * (a + kKappa<C> * a * a * a)));
    });
  }
  return unary<kGelu>(context, Floating{}, self.scalar_type(), self, out, [](auto a) {
    using C = decltype(a);
    return a * C(0.5) * (C(1) + portable::erf(a * kInverseRoot2<C>));
  });
}

// log(a / (1 - a)), of an element that is kept within [eps, 1 - eps] where there is one.
Tensor& logit_out(KernelRuntimeContext& context, const Tensor& self, std::optional<double> eps, Tensor& out) {
  const ScalarType dtype = float_dtype(self.scalar_type(), out);
  // ExecuTorch's takes any operand to Float and Double.
  if (out.scalar_type() != ScalarType::Float && out.scalar_type() != ScalarType::Double &&
      !out_is(context, dtype, out)) {
    return out;
  }
  return unary_of<kLogit>(context, Floating{}, dtype, self, out, [&](auto type) {
    using C = typename decltype(type)::type;
    const C low = eps.has_value() ? static_cast<C>(*eps) : C(0);
    const C high = eps.has_value() ? static_cast<C>(1.0 - *eps) : C(1);
    return [low, high, bounded = eps.has_value()](C a) {
      const C x = !bounded ? a : a < low ? low : a > high ? high : a;
      return std::log(x / (C(1) - x));
    };
  });
}

// The first half of a dimension times the sigmoid of the second.
Tensor& glu_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, Tensor& out) {
  OPSMITH_CHECK(context, self.dim() > 0, InvalidArgument, out, "glu does not support 0-dimensional tensors");
  const int64_t d = wrap_dim(context, dim, self.dim());
  if (d < 0) {
    return out;
  }
  const int64_t size = self.sizes()[static_cast<size_t>(d)];
  OPSMITH_CHECK(context, size % 2 == 0, InvalidArgument, out,
                "Halving dimension must be even, but dimension %" PRId64 " is size %" PRId64, d, size);
  OPSMITH_CHECK(context, contains(Floating{}, self.scalar_type()), NotSupported, out,
                "\"glu.out\" not implemented for '%s'", name_of(self.scalar_type()));
  OPSMITH_CHECK(context, is_floating(out.scalar_type()), InvalidArgument, out,
                "out must be floating point, but has %s", name_of(out.scalar_type()));
  HalfOf first(self, d, 0);
  HalfOf second(self, d, size / 2);
  return binary<kGlu>(context, Floating{}, self.scalar_type(), first.tensor(), second.tensor(), out,
                      [](auto a, auto gate) { return a * portable::sigmoid(gate); });
}

Tensor& gelu_backward_out(KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& self,
                          std::string_view approximate, Tensor& grad_input) {
  bool is_tanh_form = false;
  if (!gelu_form(context, approximate, is_tanh_form)) {
    return grad_input;
  }
  const ScalarType dtype = common_dtype(grad_output, self);
  if (is_tanh_form) {
    return binary<kGeluBackward>(context, Floating{}, dtype, grad_output, self, grad_input,
                                 [](auto grad, auto a) {
                                   using C = decltype(a);
                                   const C t = portable::tanh(kBeta<C> * (a + kKappa<C> * a * a * a));
                                   const C inner = kBeta<C> * (C(1) + C(3) * kKappa<C> * a * a);
                                   return grad * C(0.5) * ((C(1) + t) + a * (C(1) - t * t) * inner);
                                 });
  }
  return binary<kGeluBackward>(context, Floating{}, dtype, grad_output, self, grad_input,
                               [](auto grad, auto a) {
                                 using C = decltype(a);
                                 const C cdf = C(0.5) * (C(1) + portable::erf(a * kInverseRoot2<C>));
                                 const C pdf = C(0.5) * kBeta<C> * portable::exp(C(-0.5) * a * a);
                                 return grad * (cdf + a * pdf);
                               });
}

}  // namespace opsmith::portable::native
