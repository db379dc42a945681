// Comparisons of two tensors, and of a tensor and a number, which ATen's meta has made an operand. Results
// are Bool or, in place, the operands' dtype.
#include <opsmith/pointwise.h>

#include <ATen/core/Tensor.h>

namespace opsmith::hosted {

#define OPSMITH_COMPARISON(NAME, OPERATOR)                                                  \
  void NAME(at::TensorIteratorBase& iter) {                                                 \
    predicate<Real>(iter, []<class C>() { return [](C a, C b) { return a OPERATOR b; }; }); \
  }                                                                                         \
  void NAME##_scalar(at::TensorIteratorBase& iter, const at::Scalar&) {                     \
    NAME(iter);                                                                             \
  }

OPSMITH_COMPARISON(eq, ==)
OPSMITH_COMPARISON(ne, !=)
OPSMITH_COMPARISON(lt, <)
OPSMITH_COMPARISON(le, <=)
OPSMITH_COMPARISON(gt, >)
OPSMITH_COMPARISON(ge, >=)

}  // namespace opsmith::hosted
