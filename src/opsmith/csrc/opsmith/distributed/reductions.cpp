#include <opsmith/distributed/reductions.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace opsmith {

namespace {

using Reduction = c10d::ReduceOp::RedOpType;

template <class T, Reduction reduction>
T reduced(T a, T b) {
  if constexpr (reduction == Reduction::SUM) {
    return static_cast<T>(a + b);
  } else if constexpr (reduction == Reduction::PRODUCT) {
    return static_cast<T>(a * b);
  } else if constexpr (reduction == Reduction::MIN) {
    return b < a || b != b ? b : a;  // NaN wins
  } else {
    return b > a || b != b ? b : a;
  }
}

template <class T, Reduction reduction>
void reduce(void* into, const void* from, size_t elements) {
  T* const to = static_cast<T*>(into);
  const T* const other = static_cast<const T*>(from);
  for (size_t i = 0; i < elements; ++i) {
    to[i] = reduced<T, reduction>(to[i], other[i]);
  }
}

template <class T>
Reduce of_type(Reduction reduction) {
  switch (reduction) {
    case Reduction::SUM:
    case Reduction::AVG:
      return reduce<T, Reduction::SUM>;
    case Reduction::PRODUCT:
      return reduce<T, Reduction::PRODUCT>;
    case Reduction::MIN:
      return reduce<T, Reduction::MIN>;
    case Reduction::MAX:
      return reduce<T, Reduction::MAX>;
    default:
      return nullptr;
  }
}

}  // namespace

Reduce reduce_function(c10::ScalarType dtype, Reduction reduction) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return of_type<float>(reduction);
    case c10::ScalarType::Double:
      return of_type<double>(reduction);
    case c10::ScalarType::Half:
      return of_type<c10::Half>(reduction);
    case c10::ScalarType::BFloat16:
      return of_type<c10::BFloat16>(reduction);
    case c10::ScalarType::Long:
      return of_type<int64_t>(reduction);
    case c10::ScalarType::Int:
      return of_type<int32_t>(reduction);
    case c10::ScalarType::Short:
      return of_type<int16_t>(reduction);
    case c10::ScalarType::Char:
      return of_type<int8_t>(reduction);
    case c10::ScalarType::Byte:
      return of_type<uint8_t>(reduction);
    default:
      return nullptr;
  }
}

const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::SUM:
      return "sum";
    case Reduction::AVG:
      return "avg";
    case Reduction::PRODUCT:
      return "product";
    case Reduction::MIN:
      return "min";
    case Reduction::MAX:
      return "max";
    case Reduction::BAND:
      return "and";
    case Reduction::BOR:
      return "or";
    case Reduction::BXOR:
      return "xor";
    default:
      return "";
  }
}

}  // namespace opsmith
