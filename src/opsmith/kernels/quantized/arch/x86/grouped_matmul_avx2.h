// GroupedProduct with AVX2, of which an instruction multiplies 32 unsigned bytes, here of the weight, by 32
// signed ones and adds them up by pairs, in 16 bits, which hold the sums of some steps: values of the weight
// have four bits. What the input's zero point comes to is taken off by the weights' own sums, as in
// grouped_matmul_vnni.h. Included by grouped_matmul.cpp alone.

#include <cstring>

#include <immintrin.h>

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

// 16 bits hold the sums of so many steps: 4 · 4 · 15 · 128 = 30,720.
constexpr int64_t kStepsOfPairs = 4;
// Of a panel's 16 columns: a register has the sums of eight.
constexpr int kHalves = 2;

inline __m256i four_times_8(const int8_t* from) {
  int32_t four;
  std::memcpy(&four, from, sizeof(four));
  return _mm256_set1_epi32(four);
}

// The neighbours' sums, in 32 bits.
inline __m256i added_up(__m256i pairs) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// Adds what `steps` steps, kStepsOfPairs at most, come to: to the sums of kRows rows, and to the weight's
// own.
template <int kRows>
inline void add_steps(const int8_t* input, int64_t row_bytes, const uint8_t* weight, int64_t steps,
                      __m256i (&sums)[kRows][kHalves], __m256i (&of_weights)[kHalves]) {
  const __m256i low_half = _mm256_set1_epi8(15);
  __m256i pairs[kRows][kHalves] = {}, bytes[kHalves] = {};
  for (int64_t step = 0; step < steps; ++step, input += kStep, weight += kStepBytes) {
    __m256i low[kHalves], high[kHalves];
#pragma GCC unroll 2
    for (int v = 0; v < kHalves; ++v) {
      const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight) + v);
      low[v] = _mm256_and_si256(both, low_half);
      high[v] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_half);
      bytes[v] = _mm256_add_epi8(bytes[v], _mm256_add_epi8(low[v], high[v]));
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const __m256i first = four_times_8(input + i * row_bytes);
      const __m256i second = four_times_8(input + i * row_bytes + 4);
#pragma GCC unroll 2
      for (int v = 0; v < kHalves; ++v) {
        pairs[i][v] = _mm256_add_epi16(pairs[i][v], _mm256_maddubs_epi16(low[v], first));
        pairs[i][v] = _mm256_add_epi16(pairs[i][v], _mm256_maddubs_epi16(high[v], second));
      }
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < kHalves; ++v) {
    const __m256i columns = added_up(_mm256_maddubs_epi16(bytes[v], _mm256_set1_epi8(1)));
    of_weights[v] = _mm256_add_epi32(of_weights[v], columns);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      sums[i][v] = _mm256_add_epi32(sums[i][v], added_up(pairs[i][v]));
    }
  }
}

// kRows rows from `m` on by a panel.
template <int kRows>
__attribute__((noinline)) void grouped_tile(const GroupedProduct& p, int64_t m, int64_t panel) {
  constexpr int64_t kLanes = kGroupedPanel / kHalves;
  const int64_t row_bytes = p.groups * p.steps * kStep;
  const int8_t* input = p.input + m * row_bytes;
  const uint8_t* weight = p.weight + panel * p.groups * p.steps * kStepBytes;
  const float* scales = p.weight_scales + panel * p.groups * kGroupedPanel;
  __m256 results[kRows][kHalves] = {};
  for (int64_t group = 0; group < p.groups; ++group, scales += kGroupedPanel) {
    __m256i sums[kRows][kHalves], of_weights[kHalves] = {};
    for (int i = 0; i < kRows; ++i) {
      const __m256i offset = _mm256_set1_epi32(-p.offsets[(m + i) * p.groups + group]);
      sums[i][0] = sums[i][1] = offset;
    }
    for (int64_t left = p.steps; left > 0; left -= kStepsOfPairs) {
      const int64_t steps = left < kStepsOfPairs ? left : kStepsOfPairs;
      add_steps<kRows>(input, row_bytes, weight, steps, sums, of_weights);
      input += steps * kStep;
      weight += steps * kStepBytes;
    }
    for (int i = 0; i < kRows; ++i) {
      const __m256i zero = _mm256_set1_epi32(static_cast<int8_t>(p.zero_points[m + i] & 255));
      for (int v = 0; v < kHalves; ++v) {
        const __m256i sum = _mm256_sub_epi32(sums[i][v], _mm256_mullo_epi32(zero, of_weights[v]));
        const __m256 scale = _mm256_loadu_ps(scales + v * kLanes);
        results[i][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, results[i][v]);
      }
    }
  }
  const int64_t first = panel * kGroupedPanel;
  const int64_t count = p.n - first < kGroupedPanel ? p.n - first : kGroupedPanel;
  for (int i = 0; i < kRows; ++i) {
    float row[kGroupedPanel];
    _mm256_storeu_ps(row, results[i][0]);
    _mm256_storeu_ps(row + kLanes, results[i][1]);
    for (int64_t c = 0; c < count; ++c) {
      const float value = row[c] * p.scales[m + i];
      p.out[(m + i) * p.n + first + c] = p.bias != nullptr ? value + p.bias[first + c] : value;
    }
  }
}

}  // namespace

void grouped_matmul(const GroupedProduct& p, int64_t begin, int64_t end) {
  constexpr int kRows = 4;
  for (int64_t panel = begin; panel < end; ++panel) {
    int64_t m = 0;
    for (; m + kRows <= p.m; m += kRows) {
      grouped_tile<kRows>(p, m, panel);
    }
    for (; m < p.m; ++m) {
      grouped_tile<1>(p, m, panel);
    }
  }
}

}  // namespace opsmith::quantized::OPSMITH_ISA
