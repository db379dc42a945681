// RequantizedProduct with AVX2, of which an instruction multiplies pairs of int16 and adds both products:
// bytes are widened before, since pairs of their own products may not fit 16 bits. Sums begin with what the
// input's zero point comes to, as in requantized_matmul_vnni.h. Included by requantized_matmul.cpp alone.

#include <immintrin.h>

#include "pairs_of_int16_avx2.h"

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

constexpr int64_t kTileRows = 4;
constexpr int64_t kHalfPanel = kPackedPanel / 2;
// So many products of a column are added up before the next ones of the input are widened.
constexpr int64_t kWidened = 4096;

// Rows that are a power of two apart would share a few sets of the cache.
using WidenedRows = int16_t[kTileRows][kWidened + 32];
using PanelSums = int32_t[kTileRows][kPackedPanel];

inline __m256i four_times_4(const int16_t* from) {
  int64_t four;
  std::memcpy(&four, from, sizeof(four));
  return _mm256_set1_epi64x(four);
}

// kRows rows by half of a panel, from column `first` on.
template <int kRows>
__attribute__((noinline)) void add_half_panel(const WidenedRows& rows, const int8_t* weight, int64_t steps,
                                              int64_t first, PanelSums& sums) {
  // Each column has two lanes.
  __m256i pairs[kRows][2] = {};
  weight += first * kPackedStep;
  for (int64_t step = 0; step < steps; ++step, weight += kPackedBytes) {
    const __m256i low = widened_bytes(weight), high = widened_bytes(weight + 16);  // four columns each
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const __m256i four = four_times_4(rows[i] + kPackedStep * step);
      add_products(pairs[i][0], four, low);
      add_products(pairs[i][1], four, high);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    auto* const to = reinterpret_cast<__m256i*>(sums[i] + first);
    // Of columns 0, 1, 4, 5 and 2, 3, 6, 7.
    const __m256i columns = _mm256_hadd_epi32(pairs[i][0], pairs[i][1]);
    const __m256i in_order = _mm256_permute4x64_epi64(columns, 0b11'01'10'00);
    _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), in_order));
  }
}

// kRows rows from `m` on by a panel.
template <int kRows>
void requantized_rows(const RequantizedProduct& p, int64_t panel, int64_t m) {
  constexpr int64_t kSteps = kWidened / kPackedStep;
  const int8_t* weight = p.weight + panel * (1 + p.steps) * kPackedBytes;
  PanelSums sums;
  for (int64_t c = 0; c < kPackedPanel; ++c) {
    int32_t of_weights;
    std::memcpy(&of_weights, weight + c * kPackedStep, sizeof(of_weights));
    for (int i = 0; i < kRows; ++i) {
      sums[i][c] = -p.zero_point * of_weights;
    }
  }
  weight += kPackedBytes;
  WidenedRows rows;
  for (int64_t step = 0; step < p.steps; step += kSteps, weight += kSteps * kPackedBytes) {
    const int64_t steps = std::min(kSteps, p.steps - step);
    for (int i = 0; i < kRows; ++i) {
      std::copy_n(p.input + ((m + i) * p.steps + step) * kPackedStep, steps * kPackedStep, rows[i]);
    }
    for (int64_t first = 0; first < kPackedPanel; first += kHalfPanel) {
      add_half_panel<kRows>(rows, weight, steps, first, sums);
    }
  }
  const int64_t first = panel * kPackedPanel, count = std::min(kPackedPanel, p.n - first);
  for (int i = 0; i < kRows; ++i) {
    for (int64_t c = 0; c < count; ++c) {
      p.out[(m + i) * p.out_stride + first + c] = requantized(p.requantization, sums[i][c], first + c);
    }
  }
}

}  // namespace

void requantized_matmul(const RequantizedProduct& p, int64_t begin, int64_t end) {
  for (int64_t panel = begin; panel < end; ++panel) {
    int64_t m = 0;
    for (; m + kTileRows <= p.m; m += kTileRows) {
      requantized_rows<kTileRows>(p, panel, m);
    }
    for (; m + 2 <= p.m; m += 2) {
      requantized_rows<2>(p, panel, m);
    }
    if (m < p.m) {
      requantized_rows<1>(p, panel, m);
    }
  }
}

}  // namespace opsmith::quantized::OPSMITH_ISA
