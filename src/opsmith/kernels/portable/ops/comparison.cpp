// Comparisons of two operands in their common dtype. Numbers are rounded to it first, as in ATen.
#include "../pointwise_bodies.h"

namespace opsmith::portable::native {

#define OPSMITH_COMPARISON(name, symbol)                                                     \
  namespace {                                                                                \
  constexpr auto name##_values = [](auto a, auto b) { return a symbol b; };                  \
  }                                                                                          \
  OPSMITH_TWO_OPERANDS(predicate, RealB, name##_out, #name ".Tensor_out", name##_scalar_out, \
                       #name ".Scalar_out", name##_values)

OPSMITH_COMPARISON(eq, ==)
OPSMITH_COMPARISON(ne, !=)
OPSMITH_COMPARISON(lt, <)
OPSMITH_COMPARISON(le, <=)
OPSMITH_COMPARISON(gt, >)
OPSMITH_COMPARISON(ge, >=)
#undef OPSMITH_COMPARISON

}  // namespace opsmith::portable::native
