// The larger, the smaller and the clamped. NaN wins over every number, in operands and in limits, as in ATen.
#include <opsmith/elementary.h>
#include <opsmith/pointwise.h>

#include <ATen/core/Tensor.h>

namespace opsmith::hosted {

void maximum(at::TensorIteratorBase& iter) {
  binary<Numeric>(iter, []<class C>() { return [](C a, C b) { return opsmith::maximum(a, b); }; });
}

void minimum(at::TensorIteratorBase& iter) {
  binary<Numeric>(iter, []<class C>() { return [](C a, C b) { return opsmith::minimum(a, b); }; });
}

void clamp_min(at::TensorIteratorBase& iter, const at::Scalar& min) {
  unary<Numeric>(iter,
                 [&]<class C>() { return [min = min.to<C>()](C a) { return opsmith::maximum(a, min); }; });
}

void clamp_max(at::TensorIteratorBase& iter, const at::Scalar& max) {
  unary<Numeric>(iter,
                 [&]<class C>() { return [max = max.to<C>()](C a) { return opsmith::minimum(a, max); }; });
}

void clamp(at::TensorIteratorBase& iter, at::OptionalScalarRef min, at::OptionalScalarRef max) {
  if (!max) {
    return clamp_min(iter, min.get());  // meta has checked that there is a limit
  }
  if (!min) {
    return clamp_max(iter, max.get());
  }
  unary<Numeric>(iter, [&]<class C>() {
    return [min = min.get().to<C>(), max = max.get().to<C>()](C a) {
      // maximum(min, max) as the inner limit would be the same but for NaN in `min`.
      return opsmith::minimum(opsmith::maximum(a, min), max);
    };
  });
}

}  // namespace opsmith::hosted
