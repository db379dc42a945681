// GroupedProduct of a panel whose groups are unpacked, one after the other, to int16: the compiler makes
// pmaddwd, or its like, of the loop. Included by grouped_matmul.cpp alone.

namespace opsmith::quantized::OPSMITH_ISA {
namespace {

// So many products of a column are unpacked at a time.
constexpr int64_t kUnpacked = 256;

// `steps` steps from `packed`, as they are packed, with nothing taken off; a row for each column.
void unpack(const uint8_t* packed, int64_t steps, int16_t (*columns)[kUnpacked]) {
  for (int64_t step = 0; step < steps; ++step, packed += kStepBytes) {
    for (int64_t c = 0; c < kGroupedPanel; ++c) {
      for (int64_t j = 0; j < 4; ++j) {
        const uint8_t both = packed[4 * c + j];
        columns[c][kStep * step + j] = static_cast<int16_t>(both & 15);
        columns[c][kStep * step + 4 + j] = static_cast<int16_t>(both >> 4);
      }
    }
  }
}

inline int32_t product_of(const int16_t* x, const int16_t* y, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += static_cast<int32_t>(x[i]) * static_cast<int32_t>(y[i]);
  }
  return sum;
}

// Rows from `begin` on, kRows at most, by a panel.
constexpr int64_t kRows = 16;

void panel_rows(const GroupedProduct& p, int64_t panel, int64_t begin, int64_t end) {
  float results[kRows][kGroupedPanel] = {};
  int16_t columns[kGroupedPanel][kUnpacked];
  int16_t shifted[kUnpacked];
  for (int64_t group = 0; group < p.groups; ++group) {
    const int64_t place = panel * p.groups + group;
    int32_t sums[kRows][kGroupedPanel];
    for (int64_t m = begin; m < end; ++m) {
      for (int64_t c = 0; c < kGroupedPanel; ++c) {
        sums[m - begin][c] = -p.offsets[m * p.groups + group];
      }
    }
    for (int64_t step = 0; step < p.steps; step += kUnpacked / kStep) {
      const int64_t steps = p.steps - step < kUnpacked / kStep ? p.steps - step : kUnpacked / kStep;
      unpack(p.weight + (place * p.steps + step) * kStepBytes, steps, columns);
      for (int64_t m = begin; m < end; ++m) {
        const int8_t* const input = p.input + ((m * p.groups + group) * p.steps + step) * kStep;
        const auto zero = static_cast<int16_t>(static_cast<int8_t>(p.zero_points[m] & 255));
        for (int64_t k = 0; k < steps * kStep; ++k) {
          shifted[k] = static_cast<int16_t>(input[k] - zero);
        }
        for (int64_t c = 0; c < kGroupedPanel; ++c) {
          sums[m - begin][c] += product_of(shifted, columns[c], steps * kStep);
        }
      }
    }
    const float* const scales = p.weight_scales + place * kGroupedPanel;
    for (int64_t m = 0; m < end - begin; ++m) {
      for (int64_t c = 0; c < kGroupedPanel; ++c) {
        results[m][c] += static_cast<float>(sums[m][c]) * scales[c];
      }
    }
  }
  const int64_t first = panel * kGroupedPanel;
  const int64_t count = p.n - first < kGroupedPanel ? p.n - first : kGroupedPanel;
  for (int64_t m = begin; m < end; ++m) {
    for (int64_t c = 0; c < count; ++c) {
      const float value = results[m - begin][c] * p.scales[m];
      p.out[m * p.n + first + c] = p.bias != nullptr ? value + p.bias[first + c] : value;
    }
  }
}

}  // namespace

void grouped_matmul(const GroupedProduct& p, int64_t begin, int64_t end) {
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t m = 0; m < p.m; m += kRows) {
      panel_rows(p, panel, m, m + kRows < p.m ? m + kRows : p.m);
    }
  }
}

}  // namespace opsmith::quantized::OPSMITH_ISA
