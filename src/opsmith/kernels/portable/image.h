// Images of any dtype, and division for their pixels.
#pragma once

#include "../common/image.h"
#include "../common/dims.h"

namespace opsmith::portable {

using Image = ::opsmith::Image<char>;

inline Image image_of(const Tensor& t, int64_t spatial) {
  return image_at(static_cast<char*>(t.mutable_data_ptr()), t, spatial);
}

inline int64_t floor_divided(int64_t a, int64_t b) {
  if (b == 1) {
    return a;  // the common stride, which needs no division
  }
  return a / b - (a % b < 0 ? 1 : 0);
}

}  // namespace opsmith::portable
