// See vectors.h.
#include "vectors.h"

#include <bit>
#include <cmath>

#include <opsmith/philox.h>

namespace opsmith::random_kernels {
namespace {

// ln w for w in [2^-32, 1]: w = m·2^e with m in [√½, √2), and ln m = 2·artanh((m - 1)/(m + 1)) by its series.
inline float log_of(float w) {
  constexpr uint32_t kSqrtHalf = 0x3F3504F3;
  const uint32_t bits = std::bit_cast<uint32_t>(w) - kSqrtHalf;
  const auto exponent = static_cast<float>(static_cast<int32_t>(bits) >> 23);
  const float m = std::bit_cast<float>((bits & 0x007FFFFF) + kSqrtHalf);
  const float s = (m - 1.0f) / (m + 1.0f);
  const float z = s * s;
  const float series = 2.0f + z * (2.0f / 3 + z * (2.0f / 5 + z * (2.0f / 7 + z * (2.0f / 9))));
  return s * series + exponent * 0.693147181f;
}

// Uniform in (0, 1]. By way of signed numbers, which every instruction set converts.
inline float fraction_above_zero(uint32_t number) {
  return static_cast<float>(static_cast<int32_t>(number >> 1)) * 0x1p-31f + 0x1p-32f;
}

}  // namespace

OPSMITH_EACH_ISA void philox_numbers(uint64_t seed, uint64_t first_block, uint32_t* numbers, int64_t count) {
  constexpr int kBlocks = kNumbersAtOnce / 4;
  for (int64_t done = 0; done < count; done += kNumbersAtOnce) {
    uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
    for (int i = 0; i < kBlocks; ++i) {
      const uint64_t block = first_block + static_cast<uint64_t>(done / 4 + i);
      c0[i] = static_cast<uint32_t>(block);
      c1[i] = static_cast<uint32_t>(block >> 32);
      c2[i] = 0;
      c3[i] = 0;
    }
    uint32_t k0 = static_cast<uint32_t>(seed);
    uint32_t k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      for (int i = 0; i < kBlocks; ++i) {
        const uint64_t p0 = uint64_t{kPhiloxMultipliers[0]} * c0[i];
        const uint64_t p1 = uint64_t{kPhiloxMultipliers[1]} * c2[i];
        c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
        c1[i] = static_cast<uint32_t>(p1);
        c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
        c3[i] = static_cast<uint32_t>(p0);
      }
      k0 += kPhiloxKeySteps[0];
      k1 += kPhiloxKeySteps[1];
    }
    for (int i = 0; i < kBlocks; ++i) {
      numbers[done + 4 * i] = c0[i];
      numbers[done + 4 * i + 1] = c1[i];
      numbers[done + 4 * i + 2] = c2[i];
      numbers[done + 4 * i + 3] = c3[i];
    }
  }
}

OPSMITH_EACH_ISA void uniform(const uint32_t* numbers, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(static_cast<int32_t>(numbers[i] >> 8)) * 0x1p-24f;
  }
}

// By Box and Muller: the first number of a pair gives the length, the second one the angle. That is reduced
// to an eighth of a turn to both sides of an axis, where sine and cosine are their Taylor polynomials.
OPSMITH_EACH_ISA void normal(const uint32_t* numbers, float* out, int64_t count) {
  for (int64_t i = 0; i < count / 2; ++i) {
    const float length = std::sqrt(-2.0f * log_of(fraction_above_zero(numbers[2 * i])));
    const uint32_t turns = numbers[2 * i + 1];  // in 2^-32
    const uint32_t axis = (turns + 0x20000000u) >> 30;
    const float x = static_cast<float>(static_cast<int32_t>(turns - (axis << 30))) * (6.28318531f * 0x1p-32f);
    const float z = x * x;
    const float sine =
        x * (1.0f + z * (-1.0f / 6 + z * (1.0f / 120 + z * (-1.0f / 5040 + z * (1.0f / 362880)))));
    const float cosine = 1.0f + z * (-1.0f / 2 + z * (1.0f / 24 + z * (-1.0f / 720 + z * (1.0f / 40320))));
    const bool turned = (axis & 1) != 0;
    const float along = turned ? sine : cosine;
    const float across = turned ? cosine : sine;
    out[2 * i] = length * (((axis + 1) & 2) != 0 ? -along : along);
    out[2 * i + 1] = length * ((axis & 2) != 0 ? -across : across);
  }
}

OPSMITH_EACH_ISA void exponential(const uint32_t* numbers, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = -log_of(fraction_above_zero(numbers[i]));
  }
}

OPSMITH_EACH_ISA void at_most(const uint32_t* numbers, uint8_t* out, int64_t count, uint32_t last) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = numbers[i] <= last ? 1 : 0;
  }
}

OPSMITH_EACH_ISA void drop(const uint32_t* numbers, const float* in, float* out, uint8_t* kept, int64_t count,
                           uint32_t last, float scale) {
  for (int64_t i = 0; i < count; ++i) {
    const bool is_kept = numbers[i] <= last;
    out[i] = in[i] * (is_kept ? scale : 0.0f);
    kept[i] = is_kept ? 1 : 0;
  }
}

OPSMITH_EACH_ISA void integers(const uint32_t* numbers, int64_t* out, int64_t count, uint32_t range,
                               int64_t offset) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = offset + static_cast<int64_t>((uint64_t{numbers[i]} * range) >> 32);
  }
}

}  // namespace opsmith::random_kernels
