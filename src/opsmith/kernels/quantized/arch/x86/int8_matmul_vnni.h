// Int8Product with VNNI, of which an instruction multiplies 64 unsigned bytes by 64 signed ones and adds them
// up by fours. The input's zero point is taken off afterwards: Σ (x - z)·w = Σ x·w - z·Σ w. For many rows the
// weight is packed, a panel at a time. Included by int8_matmul.cpp alone.

#include <cstring>

#include "vnni.h"

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

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
      add_products(lanes[j], ones, _mm512_maskz_loadu_epi8(mask, p.weight + (n + j) * p.k + k));
    }
  }
  sums_of_all(lanes, sums);
}

// Stores the results of a row of a tile; `sums` are those of its lanes.
template <int kColumns>
inline void finish_row(const Int8Product& p, int64_t m, int64_t n, const int32_t (&sums)[kColumns],
                       const int32_t (&weights)[kColumns]) {
  const int32_t zero = p.zero_points[m * p.per_row];
  for (int j = 0; j < kColumns; ++j) {
    // In unsigned arithmetic: each part may overflow, their difference does not.
    store(p, m, n + j,
          static_cast<int32_t>(static_cast<uint32_t>(sums[j]) -
                               static_cast<uint32_t>(zero) * static_cast<uint32_t>(weights[j])));
  }
}

// The same of four columns at once.
struct Four {
  __m128 scales, bias;
  __m128i weights;

  Four(const Int8Product& p, int64_t n, __m128i weight_sums)
      : scales(p.per_channel != 0 ? _mm_loadu_ps(p.weight_scales + n) : _mm_set1_ps(p.weight_scales[0])),
        bias(p.bias != nullptr ? _mm_loadu_ps(p.bias + n) : _mm_setzero_ps()),
        weights(weight_sums) {}

  void finish(const Int8Product& p, int64_t m, int64_t n, __m128i sums) const {
    const __m128i zero = _mm_set1_epi32(p.zero_points[m * p.per_row]);
    const __m128 values = _mm_cvtepi32_ps(_mm_sub_epi32(sums, _mm_mullo_epi32(zero, weights)));
    const __m128 scale = _mm_mul_ps(_mm_set1_ps(p.scales[m * p.per_row]), scales);
    const __m128 scaled = _mm_mul_ps(values, scale);
    _mm_storeu_ps(p.out + m * p.n + n, p.bias != nullptr ? _mm_add_ps(scaled, bias) : scaled);
  }
};

// Four rows by four columns, which most of the work is. Its 16 sums have names because gcc 12 keeps an array
// of them in memory.
__attribute__((noinline)) void tile_4x4(const Int8Product& p, int64_t m, int64_t n, const Four& columns) {
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(p.sign_bit));
  const uint8_t* const x0 = p.input + m * p.k;
  const uint8_t* const x1 = x0 + p.k;
  const uint8_t* const x2 = x1 + p.k;
  const uint8_t* const x3 = x2 + p.k;
  const int8_t* const w0 = p.weight + n * p.k;
  const int8_t* const w1 = w0 + p.k;
  const int8_t* const w2 = w1 + p.k;
  const int8_t* const w3 = w2 + p.k;
  __m512i a0 = _mm512_setzero_si512(), a1 = a0, a2 = a0, a3 = a0;
  __m512i b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  __m512i c0 = a0, c1 = a0, c2 = a0, c3 = a0;
  __m512i d0 = a0, d1 = a0, d2 = a0, d3 = a0;
#define OPSMITH_ROW(sums, x, load)                       \
  {                                                      \
    const __m512i row = _mm512_xor_si512(load(x), sign); \
    add_products(sums##0, row, column0);                 \
    add_products(sums##1, row, column1);                 \
    add_products(sums##2, row, column2);                 \
    add_products(sums##3, row, column3);                 \
  }
#define OPSMITH_STEP(load)                                                                      \
  const __m512i column0 = load(w0), column1 = load(w1), column2 = load(w2), column3 = load(w3); \
  OPSMITH_ROW(a, x0, load)                                                                      \
  OPSMITH_ROW(b, x1, load)                                                                      \
  OPSMITH_ROW(c, x2, load)                                                                      \
  OPSMITH_ROW(d, x3, load)
#define OPSMITH_WHOLE(from) _mm512_loadu_si512((from) + k)
#define OPSMITH_PART(from) _mm512_maskz_loadu_epi8(mask, (from) + k)
  int64_t k = 0;
  for (; k + kBytes <= p.k; k += kBytes) {
    OPSMITH_STEP(OPSMITH_WHOLE)
  }
  if (k < p.k) {
    const __mmask64 mask = (__mmask64{1} << (p.k - k)) - 1;
    OPSMITH_STEP(OPSMITH_PART)
  }
#undef OPSMITH_PART
#undef OPSMITH_WHOLE
#undef OPSMITH_STEP
#undef OPSMITH_ROW
  columns.finish(p, m, n, sums_of(a0, a1, a2, a3));
  columns.finish(p, m + 1, n, sums_of(b0, b1, b2, b3));
  columns.finish(p, m + 2, n, sums_of(c0, c1, c2, c3));
  columns.finish(p, m + 3, n, sums_of(d0, d1, d2, d3));
}

// One row by four columns, with the columns' own sums on the way: each weight is read once.
__attribute__((noinline)) void row_1x4(const Int8Product& p, int64_t n) {
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(p.sign_bit));
  const __m512i ones = _mm512_set1_epi8(1);
  const int8_t* const w0 = p.weight + n * p.k;
  const int8_t* const w1 = w0 + p.k;
  const int8_t* const w2 = w1 + p.k;
  const int8_t* const w3 = w2 + p.k;
  __m512i a0 = _mm512_setzero_si512(), a1 = a0, a2 = a0, a3 = a0;
  __m512i s0 = a0, s1 = a0, s2 = a0, s3 = a0;
  for (int64_t k = 0; k < p.k; k += kBytes) {
    const int64_t left = p.k - k;
    const __mmask64 mask = left >= kBytes ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    const __m512i row = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, p.input + k), sign);
    const __m512i column0 = _mm512_maskz_loadu_epi8(mask, w0 + k);
    const __m512i column1 = _mm512_maskz_loadu_epi8(mask, w1 + k);
    const __m512i column2 = _mm512_maskz_loadu_epi8(mask, w2 + k);
    const __m512i column3 = _mm512_maskz_loadu_epi8(mask, w3 + k);
    add_products(a0, row, column0);
    add_products(a1, row, column1);
    add_products(a2, row, column2);
    add_products(a3, row, column3);
    add_products(s0, ones, column0);
    add_products(s1, ones, column1);
    add_products(s2, ones, column2);
    add_products(s3, ones, column3);
  }
  Four(p, n, sums_of(s0, s1, s2, s3)).finish(p, 0, n, sums_of(a0, a1, a2, a3));
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
        add_products(lanes[i][j], row, columns[j]);
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
    finish_row(p, m + i, n, sums, weights);
  }
}

template <int kColumns>
void columns(const Int8Product& p, int64_t n, int64_t from, int64_t to) {
  if constexpr (kColumns == 4) {
    if (p.m == 1) {
      return row_1x4(p, n);
    }
  }
  int32_t weights[kColumns];
  weight_sums(p, n, weights);
  int64_t m = from;
  if constexpr (kColumns == 4) {
    const Four four(p, n, _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights)));
    for (; m + 4 <= to; m += 4) {
      tile_4x4(p, m, n, four);
    }
  }
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

// ---- panels: the sums of 16 columns lie in the lanes of one register, and need not be added up in the end

constexpr int kVectors = kPanel / 16;

// Of four columns 64 bytes each, as fours of bytes side by side.
inline void pack_columns(const int8_t* const (&columns)[4], __mmask64 mask, int8_t* to) {
  const __m512i a = _mm512_maskz_loadu_epi8(mask, columns[0]), b = _mm512_maskz_loadu_epi8(mask, columns[1]),
                c = _mm512_maskz_loadu_epi8(mask, columns[2]), d = _mm512_maskz_loadu_epi8(mask, columns[3]);
  const __m512i low_ab = _mm512_unpacklo_epi32(a, b), high_ab = _mm512_unpackhi_epi32(a, b);
  const __m512i low_cd = _mm512_unpacklo_epi32(c, d), high_cd = _mm512_unpackhi_epi32(c, d);
  // Fours 0, 4, 8 and 12 of all columns, then 1, 5, …
  const __m512i fours[4] = {_mm512_unpacklo_epi64(low_ab, low_cd), _mm512_unpackhi_epi64(low_ab, low_cd),
                            _mm512_unpacklo_epi64(high_ab, high_cd), _mm512_unpackhi_epi64(high_ab, high_cd)};
  const int64_t last = 64 - __builtin_clzll(mask);
  for (int64_t i = 0; i < 4; ++i) {
    alignas(64) __m128i parts[4];
    _mm512_store_si512(parts, fours[i]);
    for (int64_t j = 0; j < 4 && 4 * (4 * j + i) < last; ++j) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + (4 * j + i) * 4 * kPanel), parts[j]);
    }
  }
}

void pack_panel(const Int8Product& p, int64_t begin, int8_t* panel) {
  for (int64_t n = 0; n < kPanel; n += 4) {
    const int8_t* const first = p.weight + (begin + n) * p.k;
    for (int64_t k = 0; k < p.k; k += kBytes) {
      const int64_t left = p.k - k;
      pack_columns({first + k, first + p.k + k, first + 2 * p.k + k, first + 3 * p.k + k},
                   left >= kBytes ? ~__mmask64{0} : (__mmask64{1} << left) - 1, panel + k * kPanel + n * 4);
    }
  }
}

// The operands that all rows of a panel share.
struct Panel {
  const int8_t* packed;
  int64_t begin;              // its first column
  __m512i weights[kVectors];  // its columns' own sums
};

// The products of four bytes of each row.
template <int kRows>
inline __attribute__((always_inline)) void add_fours(__m512i (&sums)[kRows][kVectors], const uint8_t* input,
                                                     int64_t row_bytes, int64_t bytes, const int8_t* packed) {
  __m512i columns[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    columns[v] = _mm512_loadu_si512(packed + v * kBytes);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    int32_t four = 0;
    std::memcpy(&four, input + i * row_bytes, static_cast<size_t>(bytes));
    const __m512i row = _mm512_set1_epi32(four);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      add_products(sums[i][v], row, columns[v]);
    }
  }
}

template <int kRows>
__attribute__((noinline)) void panel_tile(const Int8Product& p, const Panel& panel, int64_t m) {
  __m512i sums[kRows][kVectors] = {};
  const uint8_t* input = p.input + m * p.k;
  const int8_t* packed = panel.packed;
  const int64_t row_bytes = p.k;
  int64_t left = p.k;
  for (; left >= 4; left -= 4, input += 4, packed += 4 * kPanel) {
    add_fours(sums, input, row_bytes, 4, packed);
  }
  if (left > 0) {
    add_fours(sums, input, row_bytes, left, packed);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    const __m512i zero = _mm512_set1_epi32(p.zero_points[(m + i) * p.per_row]);
    const __m512 scale = _mm512_set1_ps(p.scales[(m + i) * p.per_row]);
    float* const out = p.out + (m + i) * p.n + panel.begin;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const int64_t n = panel.begin + 16 * v;
      const __m512 scales =
          p.per_channel != 0 ? _mm512_loadu_ps(p.weight_scales + n) : _mm512_set1_ps(p.weight_scales[0]);
      const __m512i sum = _mm512_sub_epi32(sums[i][v], _mm512_mullo_epi32(zero, panel.weights[v]));
      const __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, scales));
      _mm512_storeu_ps(out + 16 * v,
                       p.bias != nullptr ? _mm512_add_ps(value, _mm512_loadu_ps(p.bias + n)) : value);
    }
  }
}

}  // namespace

bool packs_panels(const Int8Product& p) {
  constexpr int64_t kManyRows = 32;
  return p.m >= kManyRows;
}

void int8_panel(const Int8Product& p, int64_t begin, int8_t* memory) {
  // As many as have their sums in registers, and nearly enough to hide what a product takes.
  constexpr int kRows = 12, kFewRows = 4;
  pack_panel(p, begin, memory);
  Panel panel{memory, begin, {}};
  const __m512i ones = _mm512_set1_epi8(1);
  for (int64_t k = 0; k < p.k; k += 4) {
    for (int v = 0; v < kVectors; ++v) {
      add_products(panel.weights[v], ones, _mm512_loadu_si512(memory + k * kPanel + v * kBytes));
    }
  }
  int64_t m = 0;
  for (; m + kRows <= p.m; m += kRows) {
    panel_tile<kRows>(p, panel, m);
  }
  for (; m + kFewRows <= p.m; m += kFewRows) {
    panel_tile<kFewRows>(p, panel, m);
  }
  for (; m < p.m; ++m) {
    panel_tile<1>(p, panel, m);
  }
}

bool needs_shifted(const Int8Product&) {
  return false;
}

void int8_matmul(const Int8Product& p, int64_t begin, int64_t end) {
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

}  // namespace opsmith::quantized::OPSMITH_ISA
