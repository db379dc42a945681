// ATen's promotion of dtypes.
#include "common_dtype.h"

#include <algorithm>
#include <iterator>

namespace opsmith::portable {
namespace {

// ExecuTorch's promoteTypes ends the process where it knows no promotion, of UInt16 for instance.
bool promotes(ScalarType dtype) {
  return executorch::runtime::isComplexType(dtype) ||
         std::find(std::begin(kEveryDtype), std::end(kEveryDtype), dtype) != std::end(kEveryDtype);
}

// A dtype that does not promote stays, and the kernel refuses it.
ScalarType promoted(ScalarType a, ScalarType b) {
  if (a == ScalarType::Undefined || b == ScalarType::Undefined) {
    return a == ScalarType::Undefined ? b : a;
  }
  return !promotes(a) ? a : !promotes(b) ? b : executorch::runtime::promoteTypes(a, b);
}

int category_of(ScalarType dtype) {
  return dtype == ScalarType::Undefined ? -1 : is_floating(dtype) ? 2 : is_integral(dtype) ? 1 : 0;
}

// `a` decides, unless it is of a lower category.
ScalarType higher(ScalarType a, ScalarType b) {
  return category_of(a) >= category_of(b) ? a : promoted(a, b);
}

}  // namespace

void Operands::add(const Tensor& tensor) {
  ScalarType& kind = tensor.dim() > 0 ? with_dims : without_dims;
  kind = promoted(kind, tensor.scalar_type());
}

void Operands::add(const Scalar& scalar) {
  number = promoted(number, scalar.isBoolean()         ? ScalarType::Bool
                            : scalar.isFloatingPoint() ? ScalarType::Float
                                                       : ScalarType::Long);
}

ScalarType Operands::dtype() const {
  return higher(with_dims, higher(without_dims, number));
}

ScalarType promoted_dtype(const Tensor& a, const Tensor& b) {
  return promoted(a.scalar_type(), b.scalar_type());
}

bool can_store(KernelRuntimeContext& context, ScalarType result, const Tensor& out) {
  return executorch::runtime::canCast(result, out.scalar_type()) ||
         reject(context, Error::InvalidArgument, "result type %s can't be cast to the desired output type %s",
                name_of(result), name_of(out.scalar_type()));
}

}  // namespace opsmith::portable
