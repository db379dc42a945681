// One number in every element: an in-place kernel.
#include <opsmith/pointwise.h>

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

namespace example {

at::Tensor& fill_scalar_(at::Tensor& self, const at::Scalar& value) {
  // Elements that share memory get the same number: an expanded tensor is filled too, as on the CPU.
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_output(self)
                  .build();
  opsmith::with_dtype(opsmith::Numeric{}, self.scalar_type(), [&]<class T>() {
    opsmith::pointwise<T()>(iter, [number = value.to<T>()] { return number; });
  });
  return self;
}

}  // namespace example
