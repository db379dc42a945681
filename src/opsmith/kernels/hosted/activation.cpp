// Activation functions and their gradients. Formulas are those of torch.nn.functional's documentation;
// gradients of sigmoid and tanh are in terms of the result, of the others in terms of the operand.
#include <opsmith/elementary.h>
#include <opsmith/pointwise.h>

#include <cmath>
#include <numbers>

#include <ATen/core/Tensor.h>
#include <ATen/native/Activation.h>

namespace opsmith::hosted {

// The one kernel that is given as a functional: ATen has no structured relu.
at::Tensor relu(const at::Tensor& self) {
  at::Tensor result;
  auto iter = at::TensorIterator::unary_op(result, self);
  unary<Numeric>(iter, []<class C>() {
    return [](C a) { return a <= C(0) ? C(0) : a; };  // NaN is not <= 0 and stays
  });
  return iter.output();
}

// Inputs are (self, other): self again in threshold, the gradient in threshold_backward.
void threshold(at::TensorIteratorBase& iter, const at::Scalar& threshold, const at::Scalar& value) {
  binary<Numeric>(iter, [&]<class C>() {
    return [threshold = threshold.to<C>(), value = value.to<C>()](C a, C other) {
      return a <= threshold ? value : other;
    };
  });
}

void threshold_backward(at::TensorIteratorBase& iter, const at::Scalar& threshold) {
  hosted::threshold(iter, threshold, 0);
}

void leaky_relu(at::TensorIteratorBase& iter, const at::Scalar& negative_slope) {
  unary<Floating>(iter, [&]<class C>() {
    return [slope = negative_slope.to<C>()](C a) { return a > C(0) ? a : a * slope; };
  });
}

void leaky_relu_backward(at::TensorIteratorBase& iter, const at::Scalar& negative_slope, bool) {
  binary<Floating>(iter, [&]<class C>() {
    return [slope = negative_slope.to<C>()](C a, C grad) { return a > C(0) ? grad : grad * slope; };
  });
}

void sigmoid(at::TensorIteratorBase& iter) {
  unary<Floating>(iter, []<class C>() { return [](C a) { return opsmith::sigmoid(a); }; });
}

void sigmoid_backward(at::TensorIteratorBase& iter) {
  binary<Floating>(iter, []<class C>() { return [](C grad, C y) { return grad * (C(1) - y) * y; }; });
}

void tanh_backward(at::TensorIteratorBase& iter) {
  binary<Floating>(iter, []<class C>() { return [](C grad, C y) { return grad * (C(1) - y * y); }; });
}

void silu(at::TensorIteratorBase& iter) {
  unary<Floating>(iter, []<class C>() { return [](C a) { return a / (C(1) + opsmith::exp(-a)); }; });
}

void silu_backward(at::TensorIteratorBase& iter) {
  binary<Floating>(iter, []<class C>() {
    return [](C grad, C a) {
      const C s = opsmith::sigmoid(a);
      return grad * s * (C(1) + a * (C(1) - s));
    };
  });
}

void elu(at::TensorIteratorBase& iter, const at::Scalar& alpha, const at::Scalar& scale,
         const at::Scalar& input_scale) {
  unary<Floating>(iter, [&]<class C>() {
    return [negative = alpha.to<C>() * scale.to<C>(), positive = scale.to<C>(),
            input_scale = input_scale.to<C>()](C a) {
      return a < C(0) ? std::expm1(a * input_scale) * negative : a * positive;
    };
  });
}

void softplus(at::TensorIteratorBase& iter, const at::Scalar& beta, const at::Scalar& threshold) {
  unary<Floating>(iter, [&]<class C>() {
    return [beta = beta.to<C>(), threshold = threshold.to<C>()](C a) {
      return a * beta > threshold ? a : std::log1p(std::exp(a * beta)) / beta;
    };
  });
}

namespace {

// The tanh form: 0.5 a (1 + tanh(kBeta (a + kKappa a^3))).
template <class C>
constexpr C kBeta = static_cast<C>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
template <class C>
constexpr C kKappa = static_cast<C>(0.044715);

bool is_tanh_form(c10::string_view approximate) {
  return at::native::get_gelutype_enum(approximate) == at::native::GeluType::Tanh;
}

}  // namespace

void gelu(at::TensorIteratorBase& iter, c10::string_view approximate) {
  if (is_tanh_form(approximate)) {
    unary<Floating>(iter, []<class C>() {
      return [](C a) { return C(0.5) * a * (C(1) + opsmith::tanh(kBeta<C> * (a + kKappa<C> * a * a * a))); };
    });
  } else {
    unary<Floating>(iter, []<class C>() {
      return [](C a) { return a * C(0.5) * (C(1) + std::erf(a * C(1 / std::numbers::sqrt2))); };
    });
  }
}

void gelu_backward(at::TensorIteratorBase& iter, c10::string_view approximate) {
  if (is_tanh_form(approximate)) {
    binary<Floating>(iter, []<class C>() {
      return [](C grad, C a) {
        const C t = opsmith::tanh(kBeta<C> * (a + kKappa<C> * a * a * a));
        const C inner = kBeta<C> * (C(1) + C(3) * kKappa<C> * a * a);
        return grad * C(0.5) * ((C(1) + t) + a * (C(1) - t * t) * inner);
      };
    });
  } else {
    binary<Floating>(iter, []<class C>() {
      return [](C grad, C a) {
        const C cdf = C(0.5) * (C(1) + std::erf(a * C(1 / std::numbers::sqrt2)));
        const C pdf = C(0.5) * kBeta<C> * opsmith::exp(C(-0.5) * a * a);
        return grad * (cdf + a * pdf);
      };
    });
  }
}

}  // namespace opsmith::hosted
