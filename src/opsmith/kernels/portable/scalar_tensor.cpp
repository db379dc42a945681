#include "scalar_tensor.h"

namespace opsmith::portable {
namespace {

template <class... T>
void store(Types<T...>, ScalarType dtype, const Scalar& value, void* to) {
  ((dtype == dtype_of<T> && (store_element(static_cast<T*>(to), value_of<T>(value)), true)) || ...);
}

}  // namespace

ScalarTensor::ScalarTensor(const Scalar& value, ScalarType dtype)
    : impl_(dtype, 0, sizes_, value_, dim_order_, strides_), tensor_(&impl_) {
  store(RealB{}, dtype, value, value_);
}

}  // namespace opsmith::portable
