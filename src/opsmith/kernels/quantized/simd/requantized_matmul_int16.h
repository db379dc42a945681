// RequantizedProduct of a panel that is unpacked to int16, some depth at a time: the compiler makes pmaddwd,
// or its like, of the loop. Included by requantized_matmul.cpp alone.

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

// So many products of a column are unpacked at a time, for so many rows.
constexpr int64_t kUnpackedSteps = 64;
constexpr int64_t kUnpackedRows = 16;

inline int32_t product_of(const int16_t* x, const int16_t* y, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += static_cast<int32_t>(x[i]) * static_cast<int32_t>(y[i]);
  }
  return sum;
}

// Rows from `begin` to `end`, kUnpackedRows at most, by a panel.
void requantized_rows(const RequantizedProduct& p, int64_t panel, int64_t begin, int64_t end) {
  constexpr int64_t kDepth = kUnpackedSteps * kPackedStep;
  int32_t sums[kUnpackedRows][kPackedPanel] = {};
  int16_t columns[kPackedPanel][kDepth], shifted[kDepth];
  const int8_t* weight = p.weight + (panel * (1 + p.steps) + 1) * kPackedBytes;
  for (int64_t step = 0; step < p.steps; step += kUnpackedSteps) {
    const int64_t steps = std::min(kUnpackedSteps, p.steps - step);
    for (int64_t s = 0; s < steps; ++s, weight += kPackedBytes) {
      for (int64_t c = 0; c < kPackedPanel; ++c) {
        for (int64_t j = 0; j < kPackedStep; ++j) {
          columns[c][kPackedStep * s + j] = weight[kPackedStep * c + j];
        }
      }
    }
    for (int64_t m = begin; m < end; ++m) {
      const uint8_t* const input = p.input + (m * p.steps + step) * kPackedStep;
      for (int64_t k = 0; k < steps * kPackedStep; ++k) {
        shifted[k] = static_cast<int16_t>(input[k] - p.zero_point);
      }
      for (int64_t c = 0; c < kPackedPanel; ++c) {
        sums[m - begin][c] += product_of(shifted, columns[c], steps * kPackedStep);
      }
    }
  }
  const int64_t first = panel * kPackedPanel, count = std::min(kPackedPanel, p.n - first);
  for (int64_t m = begin; m < end; ++m) {
    for (int64_t c = 0; c < count; ++c) {
      p.out[m * p.out_stride + first + c] = requantized(p.requantization, sums[m - begin][c], first + c);
    }
  }
}

}  // namespace

void requantized_matmul(const RequantizedProduct& p, int64_t begin, int64_t end) {
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t m = 0; m < p.m; m += kUnpackedRows) {
      requantized_rows(p, panel, m, std::min(m + kUnpackedRows, p.m));
    }
  }
}

}  // namespace opsmith::quantized::OPSMITH_ISA
