// GroupedProduct with VNNI, of which an instruction multiplies 64 unsigned bytes, here of the weight, by 64
// signed ones and adds them up by fours: the sums of a panel's 16 columns lie in one register's lanes. What
// the input's zero point comes to is taken off by the weights' own sums, Σ (x - z)·w = Σ x·w - z·Σ w, which
// are bytes for some steps. Included by grouped_matmul.cpp alone.

#include "vnni.h"

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

// Bytes hold the sums of the values of so many steps: 2 · 15 · 8 = 240.
constexpr int64_t kStepsOfBytes = 8;

// kRows rows from `m` on by kPanels panels from `panel` on.
template <int kRows, int kPanels>
__attribute__((noinline)) void grouped_tile(const GroupedProduct& p, int64_t m, int64_t panel) {
  const __m512i low_half = _mm512_set1_epi8(15);
  const int64_t row_bytes = p.groups * p.steps * kStep;
  const int64_t panel_bytes = p.groups * p.steps * kStepBytes;
  const int8_t* input = p.input + m * row_bytes;
  const uint8_t* weight = p.weight + panel * panel_bytes;
  const float* scales = p.weight_scales + panel * p.groups * kGroupedPanel;
  __m512 results[kRows][kPanels] = {};
  for (int64_t group = 0; group < p.groups; ++group) {
    __m512i sums[kRows][kPanels];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const __m512i offset = _mm512_set1_epi32(-p.offsets[(m + i) * p.groups + group]);
#pragma GCC unroll 4
      for (int v = 0; v < kPanels; ++v) {
        sums[i][v] = offset;
      }
    }
    for (int64_t done = 0; done < p.steps; done += kStepsOfBytes) {
      const int64_t steps = p.steps - done < kStepsOfBytes ? p.steps - done : kStepsOfBytes;
      __m512i bytes[kPanels] = {};
      for (int64_t step = 0; step < steps; ++step, input += kStep, weight += kStepBytes) {
        __m512i low[kPanels], high[kPanels];
#pragma GCC unroll 4
        for (int v = 0; v < kPanels; ++v) {
          const __m512i both = _mm512_loadu_si512(weight + v * panel_bytes);
          low[v] = _mm512_and_si512(both, low_half);
          high[v] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_half);
          bytes[v] = _mm512_add_epi8(bytes[v], _mm512_add_epi8(low[v], high[v]));
        }
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          const __m512i first = four_times_16(input + i * row_bytes);
          const __m512i second = four_times_16(input + i * row_bytes + 4);
#pragma GCC unroll 4
          for (int v = 0; v < kPanels; ++v) {
            add_products(sums[i][v], low[v], first);
          }
#pragma GCC unroll 4
          for (int v = 0; v < kPanels; ++v) {
            add_products(sums[i][v], high[v], second);
          }
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const __m512i zero = _mm512_set1_epi32(p.zero_points[m + i]);
#pragma GCC unroll 4
        for (int v = 0; v < kPanels; ++v) {
          __m512i taken = _mm512_setzero_si512();
          add_products(taken, bytes[v], zero);
          sums[i][v] = _mm512_sub_epi32(sums[i][v], taken);
        }
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kPanels; ++v) {
      const __m512 scale = _mm512_loadu_ps(scales + v * p.groups * kGroupedPanel);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        results[i][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[i][v]), scale, results[i][v]);
      }
    }
    scales += kGroupedPanel;
  }
#pragma GCC unroll 4
  for (int v = 0; v < kPanels; ++v) {
    const int64_t first = (panel + v) * kGroupedPanel, left = p.n - first;
    const auto mask = static_cast<__mmask16>(left >= kGroupedPanel ? 0xffff : (1 << left) - 1);
    const __m512 bias = p.bias != nullptr ? _mm512_maskz_loadu_ps(mask, p.bias + first) : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const __m512 value = _mm512_mul_ps(results[i][v], _mm512_set1_ps(p.scales[m + i]));
      _mm512_mask_storeu_ps(p.out + (m + i) * p.n + first, mask,
                            p.bias != nullptr ? _mm512_add_ps(value, bias) : value);
    }
  }
}

// All rows by kPanels panels.
template <int kPanels>
void all_rows(const GroupedProduct& p, int64_t panel) {
  constexpr int kRows = 6;
  int64_t m = 0;
  for (; m + kRows <= p.m; m += kRows) {
    grouped_tile<kRows, kPanels>(p, m, panel);
  }
  for (; m + 2 <= p.m; m += 2) {
    grouped_tile<2, kPanels>(p, m, panel);
  }
  if (m < p.m) {
    grouped_tile<1, kPanels>(p, m, panel);
  }
}

}  // namespace

void grouped_matmul(const GroupedProduct& p, int64_t begin, int64_t end) {
  int64_t panel = begin;
  if (p.m == 1) {
    for (; panel + 4 <= end; panel += 4) {
      grouped_tile<1, 4>(p, 0, panel);
    }
  }
  for (; panel + 2 <= end; panel += 2) {
    all_rows<2>(p, panel);
  }
  if (panel < end) {
    all_rows<1>(p, panel);
  }
}

}  // namespace opsmith::quantized::OPSMITH_ISA
