// Mean and variance of elements that are met in parts: parts are combined as Chan, Golub and LeVeque (1979)
// do, so that neither cancels where the mean is large.
#pragma once

#include <algorithm>
#include <cstdint>

namespace opsmith::optimized {

struct Moments {
  double count = 0;
  double mean = 0;
  double squares = 0;  // the sum of squared deviations from the mean

  void add(double more, double its_mean, double its_squares) {
    const double total = count + more;
    const double difference = its_mean - mean;
    mean += difference * (more / total);
    squares += its_squares + difference * difference * (count * (more / total));
    count = total;
  }
  void add(const Moments& other) {
    if (other.count > 0) {
      add(other.count, other.mean, other.squares);
    }
  }
};

template <class T>
using MomentsEach = void(const T* x, int64_t rows, int64_t stride, int64_t n, float* means, float* squares);
template <class T>
using MomentsOfColumns = void(const T* x, int64_t rows, int64_t stride, int64_t columns, float* means,
                              float* squares);

// Elements of a run, and rows of columns, whose moments are taken at once, in float32: they stay in the
// first-level cache for the second pass.
constexpr int64_t kMomentsRun = 4096;
constexpr int64_t kMomentsRows = 64;
// Columns at once.
constexpr int64_t kMomentsColumns = 256;

// Those of `rows` runs of n elements, which begin `stride` elements apart.
template <class T>
void add_moments_of_runs(const T* x, int64_t rows, int64_t stride, int64_t n, MomentsEach<T>* function,
                         Moments* moments) {
  constexpr int64_t kTogether = 64;
  float means[kTogether], squares[kTogether];
  for (int64_t row = 0; row < rows; row += kTogether) {
    const int64_t together = std::min(kTogether, rows - row);
    for (int64_t i = 0; i < n; i += kMomentsRun) {
      const int64_t length = std::min(kMomentsRun, n - i);
      function(x + row * stride + i, together, stride, length, means, squares);
      for (int64_t k = 0; k < together; ++k) {
        moments[row + k].add(static_cast<double>(length), static_cast<double>(means[k]),
                             static_cast<double>(squares[k]));
      }
    }
  }
}

// Those of columns over rows, which begin `stride` elements apart: take(column, n, count, means, squares)
// gets what `count` rows of the n columns from `column` on come to.
template <class T, class Take>
void take_moments_of_columns(const T* x, int64_t rows, int64_t stride, int64_t columns,
                             MomentsOfColumns<T>* function, const Take& take) {
  float means[kMomentsColumns], squares[kMomentsColumns];
  for (int64_t column = 0; column < columns; column += kMomentsColumns) {
    const int64_t together = std::min(kMomentsColumns, columns - column);
    for (int64_t row = 0; row < rows; row += kMomentsRows) {
      const int64_t count = std::min(kMomentsRows, rows - row);
      function(x + row * stride + column, count, stride, together, means, squares);
      take(column, together, static_cast<double>(count), means, squares);
    }
  }
}

}  // namespace opsmith::optimized
