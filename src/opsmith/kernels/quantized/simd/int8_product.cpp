// Int8Product, a tile of rows of the input by rows of the weight at a time, along k.
//
// With VNNI an instruction multiplies 64 unsigned bytes by 64 signed ones and adds them up by fours. The
// input's zero point is taken off afterwards: Σ (x - z)·w = Σ x·w - z·Σ w. Elsewhere the input has been
// shifted to int16, and the compiler makes pmaddwd, or its like, of the loop.
#include "declarations.h"

#include <algorithm>

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define OPSMITH_VNNI 1
#include <immintrin.h>
#endif

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

inline void store(const Int8Product& p, int64_t m, int64_t n, int32_t sum) {
  const float scale = p.scales[m * p.per_row] * p.weight_scales[n * p.per_channel];
  const float value = static_cast<float>(sum) * scale;
  p.out[m * p.n + n] = p.bias != nullptr ? value + p.bias[n] : value;
}

#if defined(OPSMITH_VNNI)

constexpr int64_t kBytes = 64;

// Four sums over 16 lanes each.
inline __m128i sums_of(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  const __m512i abcd = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
  const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(abcd), _mm512_extracti64x4_epi64(abcd, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

template <int kColumns>
inline void sums_of_all(const __m512i (&lanes)[kColumns], int32_t (&sums)[kColumns]) {
  if constexpr (kColumns % 4 == 0) {
    for (int j = 0; j < kColumns; j += 4) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + j),
                       sums_of(lanes[j], lanes[j + 1], lanes[j + 2], lanes[j + 3]));
    }
  } else {
    for (int j = 0; j < kColumns; ++j) {
      sums[j] = _mm512_reduce_add_epi32(lanes[j]);
    }
  }
}

// The rows' sums of the weight.
template <int kColumns>
inline void weight_sums(const Int8Product& p, int64_t n, int32_t (&sums)[kColumns]) {
  __m512i lanes[kColumns] = {};
  const __m512i ones = _mm512_set1_epi8(1);
  for (int64_t k = 0; k < p.k; k += kBytes) {
    const int64_t left = p.k - k;
    const __mmask64 mask = left >= kBytes ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    for (int j = 0; j < kColumns; ++j) {
      lanes[j] =
          _mm512_dpbusd_epi32(lanes[j], ones, _mm512_maskz_loadu_epi8(mask, p.weight + (n + j) * p.k + k));
    }
  }
  sums_of_all(lanes, sums);
}

template <int kRows, int kColumns>
__attribute__((noinline)) void tile(const Int8Product& p, int64_t m, int64_t n,
                                    const int32_t (&weights)[kColumns]) {
  __m512i lanes[kRows][kColumns] = {};
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(p.sign_bit));
  const uint8_t* const input = p.input + m * p.k;
  const int8_t* const weight = p.weight + n * p.k;
  const auto step = [&](int64_t k, __mmask64 mask) {
    __m512i columns[kColumns];
    for (int j = 0; j < kColumns; ++j) {
      columns[j] = _mm512_maskz_loadu_epi8(mask, weight + j * p.k + k);
    }
    for (int i = 0; i < kRows; ++i) {
      const __m512i row = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, input + i * p.k + k), sign);
      for (int j = 0; j < kColumns; ++j) {
        lanes[i][j] = _mm512_dpbusd_epi32(lanes[i][j], row, columns[j]);
      }
    }
  };
  int64_t k = 0;
  for (; k + kBytes <= p.k; k += kBytes) {
    step(k, ~__mmask64{0});
  }
  if (k < p.k) {
    step(k, (__mmask64{1} << (p.k - k)) - 1);
  }
  for (int i = 0; i < kRows; ++i) {
    int32_t sums[kColumns];
    sums_of_all(lanes[i], sums);
    const int32_t zero = p.zero_points[(m + i) * p.per_row];
    for (int j = 0; j < kColumns; ++j) {
      // In unsigned arithmetic: each part may overflow, their difference does not.
      store(p, m + i, n + j,
            static_cast<int32_t>(static_cast<uint32_t>(sums[j]) -
                                 static_cast<uint32_t>(zero) * static_cast<uint32_t>(weights[j])));
    }
  }
}

template <int kColumns>
void columns(const Int8Product& p, int64_t n, int64_t from, int64_t to) {
  int32_t weights[kColumns];
  weight_sums(p, n, weights);
  int64_t m = from;
  for (; m + 4 <= to; m += 4) {
    tile<4, kColumns>(p, m, n, weights);
  }
  switch (to - m) {
    case 3:
      return tile<3, kColumns>(p, m, n, weights);
    case 2:
      return tile<2, kColumns>(p, m, n, weights);
    case 1:
      return tile<1, kColumns>(p, m, n, weights);
    default:
      return;
  }
}

#endif

}  // namespace

#if defined(OPSMITH_VNNI)

bool needs_shifted() {
  return false;
}

void int8_product(const Int8Product& p, int64_t begin, int64_t end) {
  // So many rows of the input at a time as stay in the second cache.
  constexpr int64_t kCached = 1 << 18;
  const int64_t rows = std::max<int64_t>(4, kCached / std::max<int64_t>(p.k, 1) / 4 * 4);
  for (int64_t m = 0; m < p.m; m += rows) {
    const int64_t to = std::min(p.m, m + rows);
    int64_t n = begin;
    for (; n + 4 <= end; n += 4) {
      columns<4>(p, n, m, to);
    }
    for (; n < end; ++n) {
      columns<1>(p, n, m, to);
    }
  }
}

#else

bool needs_shifted() {
  return true;
}

void int8_product(const Int8Product& p, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    const int8_t* const weight = p.weight + n * p.k;
    for (int64_t m = 0; m < p.m; ++m) {
      const int16_t* const input = p.shifted + m * p.k;
      int32_t sum = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        const int16_t factor = weight[k];
        sum += static_cast<int32_t>(input[k]) * static_cast<int32_t>(factor);
      }
      store(p, m, n, sum);
    }
  }
}

#endif

}  // namespace opsmith::quantized::OPSMITH_ISA
