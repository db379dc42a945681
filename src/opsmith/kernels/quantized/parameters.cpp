// See parameters.h.
#include "parameters.h"

namespace opsmith::quantized {

Channels channels_along(KernelRuntimeContext& context, const char* name, const Tensor& input, int64_t axis,
                        const Tensor& scales, const Tensor* zero_points) {
  const int64_t dims = input.dim();
  if (axis < -dims || axis >= dims) {
    reject(context, Error::InvalidArgument, "%s: `axis` is %lld, and `input` has %lld dimensions", name,
           static_cast<long long>(axis), static_cast<long long>(dims));
    return {0, 0};
  }
  const auto dim = static_cast<size_t>(axis < 0 ? axis + dims : axis);
  const int64_t count = input.sizes()[dim];
  const auto fits = [&](const char* what, const Tensor& parameters) {
    if (!check_numbers(context, name, what, parameters)) {
      return false;
    }
    return (parameters.dim() == 1 && parameters.numel() == count) ||
           reject(context, Error::InvalidArgument,
                  "%s: `%s` has %lld elements in %lld dimensions, and has to have 1 dimension of %lld, one "
                  "for each "
                  "channel",
                  name, what, static_cast<long long>(parameters.numel()),
                  static_cast<long long>(parameters.dim()), static_cast<long long>(count));
  };
  if (!fits("scales", scales) || (zero_points != nullptr && !fits("zero_points", *zero_points))) {
    return {0, 0};
  }
  if (input.numel() == 0 || count == 1) {
    return {1, std::max<int64_t>(input.numel(), 1)};
  }
  return {count, input.strides()[dim]};
}

Channels channels_of_tokens(KernelRuntimeContext& context, const char* name, const Tensor& input,
                            const Tensor& scales, const Tensor& zero_points) {
  const int64_t length = input.dim() == 0 ? 1 : input.sizes()[input.dim() - 1];
  const int64_t tokens = length == 0 ? 0 : input.numel() / length;
  const auto fits = [&](const char* what, const Tensor& parameters) {
    if (!check_numbers(context, name, what, parameters)) {
      return false;
    }
    OPSMITH_CHECK(context, parameters.numel() == tokens || input.numel() == 0, InvalidArgument, false,
                  "%s: `%s` has %lld elements, and has to have %lld, one for each token", name, what,
                  static_cast<long long>(parameters.numel()), static_cast<long long>(tokens));
    // Otherwise PyTorch would take them for elements of a token.
    return parameters.numel() <= 1 || parameters.sizes()[parameters.dim() - 1] == 1 ||
           reject(context, Error::InvalidArgument, "%s: the last dimension of `%s` has to be 1", name, what);
  };
  if (!fits("scales", scales) || !fits("zero_points", zero_points)) {
    return {0, 0};
  }
  return {std::max<int64_t>(tokens, 1), std::max<int64_t>(length, 1)};
}

}  // namespace opsmith::quantized
