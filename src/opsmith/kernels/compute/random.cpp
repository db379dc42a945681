// Random numbers, made on the device, of those that a call takes from the generator: the same ones that the
// library `random` makes elements of.
#include <opsmith/random_numbers.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>

#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>

#include "dense.h"
#include "launch.h"
#include "numbers.h"
#include "pointwise.h"

namespace opsmith::compute {
namespace {

constexpr const char* kRandom =
#include "random.cl"
    ;

constexpr const char* kDropout =
#include "dropout.cl"
    ;
constexpr const char* kPhilox =
#include "philox.cl"
    ;

// How many of all 2^32 numbers say yes, which is said with probability `p`.
uint64_t numbers_below(double p) {
  return static_cast<uint64_t>(std::ceil(p * 0x1p32));
}

// `distribution` is one of random.cl's, x and y are its parameters, or `below` is.
at::Tensor& draw(at::Tensor& self, const std::optional<at::Generator>& generator, const char* distribution,
                 at::ScalarType computed, const at::Scalar& x, const at::Scalar& y, uint64_t below = 0) {
  at::assert_no_internal_overlap(self);
  if (self.numel() == 0) {
    return self;
  }
  const bool is_wide = computed == at::kDouble;
  const auto count = static_cast<uint64_t>(self.numel());
  const PhiloxNumbers taken = take_philox_numbers(is_wide ? 2 * count : count, generator);
  const DenseResult written(self);
  Arguments arguments;
  arguments.tensor(written.tensor()).value(self.numel()).value(taken.seed).value(taken.offset / 4);
  add_number(arguments, x, computed);
  add_number(arguments, y, computed);
  arguments.value(below);
  const std::string definitions = definition("DTYPE", self.scalar_type()) + definition("COMPUTE", computed) +
                                  definition(distribution, 1) + (is_wide ? definition("WIDE", 1) : "");
  launch("draw random numbers", kernel(kRandom, definitions, kPhilox), arguments,
         linear(ceil_div(self.numel(), is_wide ? 2 : 4)));
  return self;
}

double highest_of(at::ScalarType dtype) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "uniform_", [] {
    return static_cast<double>(std::numeric_limits<scalar_t>::max());
  });
}

at::ScalarType computed_in(const at::Tensor& self) {
  return self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

at::Tensor& bernoulli_(at::Tensor& self, double p, std::optional<at::Generator> generator) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return draw(self, generator, "BERNOULLI", at::kFloat, 0, 0, numbers_below(p));
}

at::Tensor& uniform_(at::Tensor& self, double from, double to, std::optional<at::Generator> generator) {
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from,
              " > to=", to);
  const double limit = highest_of(self.scalar_type());
  TORCH_CHECK(to - from <= limit, "uniform_ expects to-from <= ", limit, ", the most that ",
              self.scalar_type(), " holds, but found to=", to, " and from=", from);
  return draw(self, generator, "UNIFORM", computed_in(self), checked(from, self.scalar_type()),
              checked(to, self.scalar_type()));
}

at::Tensor& normal_(at::Tensor& self, double mean, double std, std::optional<at::Generator> generator) {
  TORCH_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std);
  return draw(self, generator, "NORMAL", computed_in(self), mean, std);
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  if (!train.value_or(true)) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  const double kept = 1. - p;
  const at::Tensor in = input.is_non_overlapping_and_dense() ? input : input.contiguous();
  at::Tensor mask = at::empty_like(in, in.options().dtype(at::kBool));
  at::Tensor output = at::empty_like(in);
  if (in.numel() != 0) {
    const PhiloxNumbers taken = take_philox_numbers(static_cast<uint64_t>(in.numel()), std::nullopt);
    Arguments arguments;
    arguments.tensor(in).tensor(output).tensor(mask).value(in.numel());
    arguments.value(taken.seed).value(taken.offset / 4).value(numbers_below(kept));
    add_number(arguments, kept == 0. ? 0. : 1. / kept, in.scalar_type());
    launch("drop elements", kernel(kDropout, definition("DTYPE", in.scalar_type()), kPhilox), arguments,
           linear(ceil_div(in.numel(), 4)));
  }
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
  pointwise(iter, "a * b * x", grad_output.scalar_type(), {scale});
  return grad_input;
}

}  // namespace opsmith::compute
