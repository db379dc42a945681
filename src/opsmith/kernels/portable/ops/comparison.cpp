// Comparisons of two operands in their common dtype. Numbers are rounded to it first, as in ATen.
#include "../pointwise_bodies.h"

namespace opsmith::portable::native {

OPSMITH_SYMBOL(predicate, RealB, eq, ==)
OPSMITH_SYMBOL(predicate, RealB, ne, !=)
OPSMITH_SYMBOL(predicate, RealB, lt, <)
OPSMITH_SYMBOL(predicate, RealB, le, <=)
OPSMITH_SYMBOL(predicate, RealB, gt, >)
OPSMITH_SYMBOL(predicate, RealB, ge, >=)

}  // namespace opsmith::portable::native
