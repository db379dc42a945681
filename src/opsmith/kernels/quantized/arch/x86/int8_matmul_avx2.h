// Int8Product with AVX2, of which an instruction multiplies pairs of int16 and adds both products: of an
// input that has been shifted to int16, by bytes of the weight that are widened. Included by int8_matmul.cpp
// alone.

#include <immintrin.h>

#include "pairs_of_int16_avx2.h"

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

// Sums of a tile's rows and columns fill the registers.
constexpr int kTileRows = 2;
constexpr int kTileColumns = 4;
// Products of a row by a column at once.
constexpr int64_t kTerms = 16;

inline int32_t total(__m256i lanes) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0b01'00'11'10));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0b10'11'00'01)));
}

// kRows rows from `m` on by kColumns rows of the weight from `n` on.
template <int kRows, int kColumns>
__attribute__((noinline)) void int8_tile(const Int8Product& p, int64_t m, int64_t n) {
  const int16_t* const input = p.shifted + m * p.k;
  const int8_t* const weight = p.weight + n * p.k;
  __m256i sums[kRows][kColumns] = {};
  int64_t k = 0;
  for (; k + kTerms <= p.k; k += kTerms) {
    __m256i row[kRows];
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i) {
      row[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(input + i * p.k + k));
    }
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      const __m256i column = widened_bytes(weight + c * p.k + k);
#pragma GCC unroll 2
      for (int i = 0; i < kRows; ++i) {
        add_products(sums[i][c], row[i], column);
      }
    }
  }
#pragma GCC unroll 2
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      int32_t sum = total(sums[i][c]);
      for (int64_t rest = k; rest < p.k; ++rest) {
        sum += int32_t{input[i * p.k + rest]} * int32_t{weight[c * p.k + rest]};
      }
      store(p, m + i, n + c, sum);
    }
  }
}

// kColumns rows of the weight from `n` on.
template <int kColumns>
void int8_columns(const Int8Product& p, int64_t n) {
  int64_t m = 0;
  for (; m + kTileRows <= p.m; m += kTileRows) {
    int8_tile<kTileRows, kColumns>(p, m, n);
  }
  if (m < p.m) {
    int8_tile<1, kColumns>(p, m, n);
  }
}

}  // namespace

void int8_matmul(const Int8Product& p, int64_t begin, int64_t end) {
  int64_t n = begin;
  for (; n + kTileColumns <= end; n += kTileColumns) {
    int8_columns<kTileColumns>(p, n);
  }
  for (; n < end; ++n) {
    int8_columns<1>(p, n);
  }
}

}  // namespace opsmith::quantized::OPSMITH_ISA
