// Dropout in one pass, and its gradient. One number decides on each element.
#include <opsmith/pointwise.h>

#include <tuple>

#include <ATen/Dispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>

#include "elements.h"
#include "probability.h"

namespace opsmith::random_kernels {
namespace {

// `out` and `kept`, of which nothing is kept where `last` has no value.
template <class T>
void drop_elements(const uint32_t* numbers, const T* in, T* out, uint8_t* kept, int64_t count,
                   std::optional<uint32_t> last, double scale) {
  using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;
  if constexpr (std::is_same_v<T, float>) {
    if (last.has_value()) {
      return drop(numbers, in, out, kept, count, *last, static_cast<float>(scale));
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const bool is_kept = last.has_value() && numbers[i] <= *last;
    out[i] =
        static_cast<T>(static_cast<Computed>(in[i]) * (is_kept ? static_cast<Computed>(scale) : Computed{0}));
    kept[i] = is_kept ? 1 : 0;
  }
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  if (!train.value_or(true)) {
    at::Tensor same = at::empty_like(input);
    copy_in_order(same, input);
    return {std::move(same), mask.fill_(true)};
  }
  TORCH_CHECK(0 <= p && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  at::Tensor output = at::empty_like(input);
  const at::Tensor in = contiguous_in_order(input);
  const PhiloxDraw drawn = draw_philox_numbers(static_cast<uint64_t>(in.numel()), std::nullopt);
  const InOrder written(output);
  const InOrder decided(mask);
  const std::optional<uint32_t> last = last_of(1 - p);
  const double scale = p == 1 ? 0 : 1 / (1 - p);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, in.scalar_type(), "native_dropout", [&] {
    on_host("native_dropout", [=, elements = in.numel(), from = host_data<const scalar_t>(in),
                               to = written.data<scalar_t>(), kept = decided.data<uint8_t>()] {
      each_part(drawn.numbers(), elements, 1, [&](const uint32_t* numbers, int64_t first, int64_t count) {
        drop_elements(numbers, from + first, to + first, kept + first, count, last, scale);
      });
    });
  });
  written.finish();
  decided.finish();
  return {std::move(output), std::move(mask)};
}

at::Tensor native_dropout_backward(const at::Tensor& grad_output, const at::Tensor& mask, double scale) {
  at::Tensor grad_input = at::empty_like(grad_output);
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .add_output(grad_input)
                  .add_const_input(grad_output)
                  .add_const_input(mask)
                  .build();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, grad_output.scalar_type(), "native_dropout_backward", [&] {
        using Computed = compute_t<scalar_t>;
        const auto factor = static_cast<Computed>(static_cast<scalar_t>(scale));
        pointwise<scalar_t(scalar_t, bool)>(iter, [factor](Computed gradient, bool kept) {
          return gradient * (kept ? factor : Computed{0});
        });
      });
  return grad_input;
}

}  // namespace opsmith::random_kernels
