// Int8Product with SDOT, of which an instruction multiplies 16 signed bytes by 16 signed ones and adds them
// up by fours; a processor without it takes the shifted input. The input's zero point is taken off
// afterwards, as in int8_matmul_vnni.h; unsigned values have theirs moved by 128 first. For many rows the
// weight is packed. Included by int8_matmul.cpp alone.

#include <cstring>

#include <arm_neon.h>

// The instruction, and what a function has that uses it: neither compiler takes it for every processor's.
#if defined(__clang__)
#define OPSMITH_SDOT "sdot"
#define OPSMITH_DOTTED __attribute__((target("dotprod")))
#else
#define OPSMITH_SDOT ".arch armv8.2-a+dotprod\n\tsdot"
#define OPSMITH_DOTTED
#endif

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

constexpr int64_t kBytes = 16;
constexpr int kSumsTogether = 16;  // columns of a panel's tile
constexpr int kVectors = kSumsTogether / 4;

// lanes += products of fours. In assembly: clang 15 declares the intrinsic only where the whole file is for
// such processors.
OPSMITH_DOTTED inline int32x4_t add_products(int32x4_t lanes, int8x16_t a, int8x16_t b) {
  asm(OPSMITH_SDOT " %0.4s, %1.16b, %2.16b" : "+w"(lanes) : "w"(a), "w"(b));
  return lanes;
}
// Of the four `kFour` of b alone.
template <int kFour>
OPSMITH_DOTTED inline int32x4_t add_products_of(int32x4_t lanes, int8x16_t a, int8x16_t b) {
  asm(OPSMITH_SDOT " %0.4s, %1.16b, %2.4b[%3]" : "+w"(lanes) : "w"(a), "w"(b), "i"(kFour));
  return lanes;
}

// The bits to flip so that the input's bytes are signed.
inline int8x16_t flipped_bits(const Int8Product& p) {
  return vdupq_n_s8(static_cast<int8_t>(p.sign_bit ^ 0x80));
}
// The zero point of such an input; Int8Product has that of unsigned values.
inline int32_t signed_zero(const Int8Product& p, int64_t m) {
  return p.zero_points[m * p.per_row] - 128;
}

inline int8x16_t load_part(const void* from, int64_t bytes) {
  int8_t lanes[kBytes] = {};
  std::memcpy(lanes, from, static_cast<size_t>(bytes));
  return vld1q_s8(lanes);
}

// From sums of the input's products and of the weight to the result, of four columns.
inline void finish_four(const Int8Product& p, int64_t m, int64_t n, int32x4_t sums, int32x4_t weights) {
  const float32x4_t values = vcvtq_f32_s32(vmlsq_n_s32(sums, weights, signed_zero(p, m)));
  const float32x4_t scales =
      p.per_channel != 0 ? vld1q_f32(p.weight_scales + n) : vdupq_n_f32(p.weight_scales[0]);
  const float32x4_t scaled = vmulq_f32(values, vmulq_n_f32(scales, p.scales[m * p.per_row]));
  vst1q_f32(p.out + m * p.n + n, p.bias != nullptr ? vaddq_f32(scaled, vld1q_f32(p.bias + n)) : scaled);
}

// ---- the weight as it is: each sum's lanes are added up in the end

// kRows rows by four columns, of which the sums are known, or are added up on the way.
template <int kRows, bool kKnown>
OPSMITH_DOTTED __attribute__((noinline)) void dots_of_four(const Int8Product& p, int64_t m, int64_t n,
                                                           int32x4_t* weights) {
  int32x4_t sums[kRows][4], own[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    own[j] = vdupq_n_s32(0);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      sums[i][j] = vdupq_n_s32(0);
    }
  }
  const int8x16_t ones = vdupq_n_s8(1), flipped = flipped_bits(p);
  const uint8_t* const input = p.input + m * p.k;
  const int8_t* const weight = p.weight + n * p.k;
  for (int64_t k = 0; k < p.k; k += kBytes) {
    const int64_t left = p.k - k;
    int8x16_t columns[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const int8_t* const from = weight + j * p.k + k;
      columns[j] = left >= kBytes ? vld1q_s8(from) : load_part(from, left);
      if constexpr (!kKnown) {
        own[j] = add_products(own[j], ones, columns[j]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const uint8_t* const from = input + i * p.k + k;
      const int8x16_t bytes = left >= kBytes ? vreinterpretq_s8_u8(vld1q_u8(from)) : load_part(from, left);
      // Behind the row the weight's zeros meet whatever this gives.
      const int8x16_t row = veorq_s8(bytes, flipped);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        sums[i][j] = add_products(sums[i][j], row, columns[j]);
      }
    }
  }
  if constexpr (!kKnown) {
    *weights = vpaddq_s32(vpaddq_s32(own[0], own[1]), vpaddq_s32(own[2], own[3]));
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    finish_four(p, m + i, n,
                vpaddq_s32(vpaddq_s32(sums[i][0], sums[i][1]), vpaddq_s32(sums[i][2], sums[i][3])), *weights);
  }
}

OPSMITH_DOTTED void four_columns(const Int8Product& p, int64_t n) {
  int32x4_t weights;
  int64_t m = 0;
  // The first rows find the columns' sums.
  if (p.m % 4 >= 2) {
    dots_of_four<2, false>(p, 0, n, &weights);
    m = 2;
  } else {
    dots_of_four<1, false>(p, 0, n, &weights);
    m = 1;
  }
  for (; m + 4 <= p.m; m += 4) {
    dots_of_four<4, true>(p, m, n, &weights);
  }
  for (; m < p.m; ++m) {
    dots_of_four<1, true>(p, m, n, &weights);
  }
}

OPSMITH_DOTTED void one_column(const Int8Product& p, int64_t n) {
  const int8x16_t ones = vdupq_n_s8(1), flipped = flipped_bits(p);
  const int8_t* const weight = p.weight + n * p.k;
  for (int64_t m = 0; m < p.m; ++m) {
    const uint8_t* const input = p.input + m * p.k;
    int32x4_t sums = vdupq_n_s32(0), own = sums;
    for (int64_t k = 0; k < p.k; k += kBytes) {
      const int64_t bytes = p.k - k < kBytes ? p.k - k : kBytes;
      const int8x16_t column = load_part(weight + k, bytes);
      sums = add_products(sums, veorq_s8(load_part(input + k, bytes), flipped), column);
      own = add_products(own, ones, column);
    }
    // In unsigned arithmetic: each part may overflow, their difference does not.
    const uint32_t less = static_cast<uint32_t>(signed_zero(p, m)) * static_cast<uint32_t>(vaddvq_s32(own));
    store(p, m, n, static_cast<int32_t>(static_cast<uint32_t>(vaddvq_s32(sums)) - less));
  }
}

// ---- panels: the sums of four columns lie in the lanes of one register

void pack_panel(const Int8Product& p, int64_t begin, int8_t* panel) {
  for (int64_t n = 0; n < kPanel; ++n) {
    const int8_t* const from = p.weight + (begin + n) * p.k;
    int64_t k = 0;
    for (; k + 4 <= p.k; k += 4) {
      std::memcpy(panel + k * kPanel + n * 4, from + k, 4);
    }
    if (k < p.k) {
      int8_t last[4] = {};
      std::memcpy(last, from + k, static_cast<size_t>(p.k - k));
      std::memcpy(panel + k * kPanel + n * 4, last, 4);
    }
  }
}

// Four fours of bytes of each row by those of 16 columns, from the four `kFour` on.
template <int kRows, int kFour>
OPSMITH_DOTTED inline __attribute__((always_inline)) void add_fours(int32x4_t (&sums)[kRows][kVectors],
                                                                    const int8x16_t (&rows)[kRows],
                                                                    const int8_t* packed) {
  int8x16_t columns[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    columns[v] = vld1q_s8(packed + kFour * 4 * kPanel + v * kBytes);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = add_products_of<kFour>(sums[i][v], columns[v], rows[i]);
    }
  }
}

// kRows rows by 16 columns, whose first are `n` in the result and `packed` in the panel.
template <int kRows>
OPSMITH_DOTTED __attribute__((noinline)) void panel_tile(const Int8Product& p, const int8_t* packed,
                                                         int64_t m, int64_t n, const int32x4_t* weights) {
  int32x4_t sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = vdupq_n_s32(0);
    }
  }
  const int8x16_t flipped = flipped_bits(p);
  const uint8_t* input = p.input + m * p.k;
  for (int64_t left = p.k; left > 0; left -= kBytes, input += kBytes, packed += kBytes * kPanel) {
    int8x16_t rows[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const uint8_t* const from = input + i * p.k;
      rows[i] =
          veorq_s8(left >= kBytes ? vreinterpretq_s8_u8(vld1q_u8(from)) : load_part(from, left), flipped);
    }
    add_fours<kRows, 0>(sums, rows, packed);
    if (left > 4) {
      add_fours<kRows, 1>(sums, rows, packed);
    }
    if (left > 8) {
      add_fours<kRows, 2>(sums, rows, packed);
    }
    if (left > 12) {
      add_fours<kRows, 3>(sums, rows, packed);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      finish_four(p, m + i, n + 4 * v, sums[i][v], weights[v]);
    }
  }
}

OPSMITH_DOTTED void multiply_panel(const Int8Product& p, int64_t begin, const int8_t* memory) {
  constexpr int kRows = 4;  // whose sums, with the rows and columns, stay in registers
  const int8x16_t ones = vdupq_n_s8(1);
  for (int64_t first = 0; first < kPanel; first += kSumsTogether) {
    const int8_t* const packed = memory + first * 4;
    int32x4_t weights[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = vdupq_n_s32(0);
      for (int64_t k = 0; k < p.k; k += 4) {
        weights[v] = add_products(weights[v], ones, vld1q_s8(packed + k * kPanel + v * kBytes));
      }
    }
    int64_t m = 0;
    for (; m + kRows <= p.m; m += kRows) {
      panel_tile<kRows>(p, packed, m, begin + first, weights);
    }
    for (; m + 2 <= p.m; m += 2) {
      panel_tile<2>(p, packed, m, begin + first, weights);
    }
    if (m < p.m) {
      panel_tile<1>(p, packed, m, begin + first, weights);
    }
  }
}

}  // namespace

bool needs_shifted(const Int8Product& p) {
  return !p.has_dot_products;
}

bool packs_panels(const Int8Product& p) {
  constexpr int64_t kManyRows = 16;
  return p.has_dot_products && p.m >= kManyRows;
}

void int8_panel(const Int8Product& p, int64_t begin, int8_t* memory) {
  pack_panel(p, begin, memory);
  multiply_panel(p, begin, memory);
}

void int8_matmul(const Int8Product& p, int64_t begin, int64_t end) {
  if (!p.has_dot_products) {
    return shifted_product(p, begin, end);
  }
  if (p.m == 0) {
    return;
  }
  int64_t n = begin;
  for (; n + 4 <= end; n += 4) {
    four_columns(p, n);
  }
  for (; n < end; ++n) {
    one_column(p, n);
  }
}

}  // namespace opsmith::quantized::OPSMITH_ISA

#undef OPSMITH_DOTTED
#undef OPSMITH_SDOT
