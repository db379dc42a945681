// RequantizedProduct with VNNI, of which an instruction multiplies 64 unsigned bytes, here of the input, by
// 64 signed ones and adds them up by fours: the sums of a panel's 16 columns lie in one register's lanes.
// Sums begin with what the input's zero point comes to: Σ (x - z)·w = -z·Σ w + Σ x·w. Included by
// requantized_matmul.cpp alone.

#include "vnni.h"

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

// The operands that all rows of some panels share.
template <int kPanels>
struct Columns {
  const int8_t* weight;  // after the sums
  int64_t begin;
  __m512i zeros[kPanels];
};

// kRows rows from `m` on.
template <int kRows, int kPanels>
__attribute__((noinline)) void requantized_tile(const RequantizedProduct& p, const Columns<kPanels>& columns,
                                                int64_t m) {
  const int64_t row_bytes = p.steps * kPackedStep, panel_bytes = (1 + p.steps) * kPackedBytes;
  const uint8_t* input = p.input + m * row_bytes;
  const int8_t* weight = columns.weight;
  __m512i sums[kRows][kPanels];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kPanels; ++v) {
      sums[i][v] = columns.zeros[v];
    }
  }
  for (int64_t step = 0; step < p.steps; ++step, input += kPackedStep, weight += kPackedBytes) {
    __m512i factors[kPanels];
#pragma GCC unroll 4
    for (int v = 0; v < kPanels; ++v) {
      factors[v] = _mm512_loadu_si512(weight + v * panel_bytes);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const __m512i four = four_times_16(input + i * row_bytes);
#pragma GCC unroll 4
      for (int v = 0; v < kPanels; ++v) {
        add_products(sums[i][v], four, factors[v]);
      }
    }
  }
  const Requantization& r = p.requantization;
  const __m512 least = _mm512_set1_ps(r.least), greatest = _mm512_set1_ps(r.greatest);
  const __m512i zero_point = _mm512_set1_epi32(r.zero_point);
#pragma GCC unroll 4
  for (int v = 0; v < kPanels; ++v) {
    const int64_t first = columns.begin + v * kPackedPanel, left = p.n - first;
    const auto mask = static_cast<__mmask16>(left >= kPackedPanel ? 0xffff : (1 << left) - 1);
    const __m512 multiplier = _mm512_maskz_loadu_ps(mask, r.multipliers + first);
    const __m512 offset = _mm512_maskz_loadu_ps(mask, r.offsets + first);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      __m512 value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[i][v]), multiplier, offset);
      value = _mm512_min_ps(_mm512_max_ps(value, least), greatest);
      const __m512i integer = _mm512_add_epi32(_mm512_cvtps_epi32(value), zero_point);
      _mm_mask_storeu_epi8(p.out + (m + i) * p.out_stride + first, mask, _mm512_cvtepi32_epi8(integer));
    }
  }
}

// All rows by kPanels panels.
template <int kPanels>
void requantized_columns(const RequantizedProduct& p, int64_t panel) {
  constexpr int kRows = 6;
  const int64_t panel_bytes = (1 + p.steps) * kPackedBytes;
  const int8_t* const weight = p.weight + panel * panel_bytes;
  Columns<kPanels> columns{weight + kPackedBytes, panel * kPackedPanel, {}};
  for (int v = 0; v < kPanels; ++v) {
    const __m512i of_weights = _mm512_loadu_si512(weight + v * panel_bytes);
    columns.zeros[v] = _mm512_mullo_epi32(_mm512_set1_epi32(-p.zero_point), of_weights);
  }
  int64_t m = 0;
  for (; m + kRows <= p.m; m += kRows) {
    requantized_tile<kRows, kPanels>(p, columns, m);
  }
  switch (p.m - m) {
    case 5:
      return requantized_tile<5, kPanels>(p, columns, m);
    case 4:
      return requantized_tile<4, kPanels>(p, columns, m);
    case 3:
      return requantized_tile<3, kPanels>(p, columns, m);
    case 2:
      return requantized_tile<2, kPanels>(p, columns, m);
    case 1:
      return requantized_tile<1, kPanels>(p, columns, m);
    default:
      return;
  }
}

}  // namespace

void requantized_matmul(const RequantizedProduct& p, int64_t begin, int64_t end) {
  int64_t panel = begin;
  for (; panel + 4 <= end; panel += 4) {
    requantized_columns<4>(p, panel);
  }
  for (; panel + 2 <= end; panel += 2) {
    requantized_columns<2>(p, panel);
  }
  if (panel < end) {
    requantized_columns<1>(p, panel);
  }
}

}  // namespace opsmith::quantized::OPSMITH_ISA
