// The loops behind conversion.h: one for each pair of dtypes that a kernel can meet.
#include "conversion.h"

namespace opsmith::portable {
namespace {

template <class From, class To>
void convert(const void* from, const Plane& plane, void* to) {
  const auto converted = [](const From* p) {
    if constexpr (std::is_same_v<From, To>) {
      return *p;
    } else {
      return convert_value<To>(load_element(p));
    }
  };
  const From* row = static_cast<const From*>(from);
  To* out = static_cast<To*>(to);
  for (int64_t r = 0; r < plane.rows; ++r, row += plane.row_stride, out += plane.columns) {
    if (plane.column_stride == 1) {
      for (int64_t c = 0; c < plane.columns; ++c) {
        out[c] = converted(row + c);
      }
    } else {
      for (int64_t c = 0; c < plane.columns; ++c) {
        out[c] = converted(row + c * plane.column_stride);
      }
    }
  }
}

constexpr char kAnyOperator[] = "";

template <class From, class To>
constexpr Convert conversion_or_null() {
  if constexpr (calculates(kAnyOperator, compute_dtype(dtype_of<From>)) &&
                calculates(kAnyOperator, compute_dtype(dtype_of<To>)) &&
                (!is_reduced_float<From> || selected(kAnyOperator, dtype_of<From>)) &&
                (!is_reduced_float<To> || selected(kAnyOperator, dtype_of<To>))) {
    return &convert<From, To>;
  } else {
    return nullptr;
  }
}

template <class From, class... To>
Convert conversion_from(Types<To...>, ScalarType to) {
  Convert found = nullptr;
  ((to == dtype_of<To> && ((found = conversion_or_null<From, To>()), true)) || ...);
  return found;
}

template <class... From>
Convert conversion_among(Types<From...> types, ScalarType from, ScalarType to) {
  Convert found = nullptr;
  ((from == dtype_of<From> && ((found = conversion_from<From>(types, to)), true)) || ...);
  return found;
}

template <class Unit>
void spread_units(const void* from, void* to, int64_t stride, int64_t n) {
  for (int64_t k = 0; k < n; ++k) {
    std::memcpy(static_cast<Unit*>(to) + k * stride, static_cast<const Unit*>(from) + k, sizeof(Unit));
  }
}

template <class Unit>
void repeat_unit(void* first, int64_t n) {
  Unit unit;
  std::memcpy(&unit, first, sizeof(Unit));
  for (int64_t k = 1; k < n; ++k) {
    std::memcpy(static_cast<Unit*>(first) + k, &unit, sizeof(Unit));
  }
}

}  // namespace

Convert conversion(ScalarType from, ScalarType to) {
  return conversion_among(RealB{}, from, to);
}

void repeat(size_t element_size, void* first, int64_t n) {
  switch (element_size) {
    case 1:
      return repeat_unit<uint8_t>(first, n);
    case 2:
      return repeat_unit<uint16_t>(first, n);
    case 4:
      return repeat_unit<uint32_t>(first, n);
    default:
      return repeat_unit<uint64_t>(first, n);
  }
}

void spread(size_t element_size, const void* from, void* to, int64_t stride, int64_t n) {
  switch (element_size) {
    case 1:
      return spread_units<uint8_t>(from, to, stride, n);
    case 2:
      return spread_units<uint16_t>(from, to, stride, n);
    case 4:
      return spread_units<uint32_t>(from, to, stride, n);
    default:
      return spread_units<uint64_t>(from, to, stride, n);
  }
}

}  // namespace opsmith::portable
