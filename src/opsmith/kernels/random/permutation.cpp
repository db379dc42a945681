// A random permutation: Fisher and Yates' shuffle, whose steps follow one another.
#include <numeric>
#include <utility>
#include <vector>

#include <ATen/Dispatch_v2.h>
#include <ATen/native/TensorFactories.h>

#include "elements.h"

namespace opsmith::random_kernels {
namespace {

// 0 to n - 1: each place gets one of what is left, as number i of the call says.
std::vector<int64_t> permutation(PhiloxNumbers taken, int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::array<uint32_t, kPart> numbers;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = 2 * i % kPart;
    if (at == 0) {
      philox_numbers(taken.seed, (taken.offset + static_cast<uint64_t>(2 * i)) / 4, numbers.data(), kPart);
    }
    const auto left = static_cast<uint64_t>(n - i);
    const auto step = static_cast<unsigned __int128>(wide(numbers.data() + at)) * left >> 64;
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(i) + static_cast<size_t>(step)]);
  }
  return order;
}

}  // namespace

at::Tensor& randperm_out(int64_t n, Generator generator, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  at::native::check_supported_max_int_with_precision(n, out);
  out.resize_({n});
  if (n == 0) {
    return out;
  }
  const PhiloxDraw drawn = draw_philox_numbers(static_cast<uint64_t>(2 * n), generator);
  const InOrder written(out);
  AT_DISPATCH_V2(out.scalar_type(), "randperm", AT_WRAP([&] {
                   on_host("randperm", [drawn, n, to = written.data<scalar_t>()] {
                     const std::vector<int64_t> order = permutation(drawn.numbers(), n);
                     std::transform(order.begin(), order.end(), to,
                                    [](int64_t value) { return static_cast<scalar_t>(value); });
                   });
                 }),
                 AT_EXPAND(AT_ALL_TYPES), at::kHalf, at::kBFloat16);
  written.finish();
  return out;
}

}  // namespace opsmith::random_kernels
