// Sums of rows of any length: the sums of kAddedInFloat elements are added in float64, so that an error does
// not grow with the length of a row.
#pragma once

#include "map.h"

namespace opsmith::optimized::OPSMITH_ISA {

constexpr int64_t kAddedInFloat = 16384;

// The sum of term(load(x + i)) over n elements.
template <class T, class Term>
OPSMITH_INLINE float row_total(const T* x, int64_t n, Term term) {
  double whole = 0;
  for (int64_t i = 0; i < n; i += kAddedInFloat) {
    whole += static_cast<double>(total(x + i, least(n - i, kAddedInFloat), term));
  }
  return static_cast<float>(whole);
}

}  // namespace opsmith::optimized::OPSMITH_ISA
