// Decisions by one number of 32 bits each.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace opsmith::random_kernels {

// The last number that stands for yes, which is said with probability `p`, to 2^-32; nothing if it never is.
inline std::optional<uint32_t> last_of(double p) {
  const double numbers = std::ceil(p * 0x1p32);
  return numbers < 1 ? std::nullopt : std::optional(static_cast<uint32_t>(numbers - 1));
}

}  // namespace opsmith::random_kernels
