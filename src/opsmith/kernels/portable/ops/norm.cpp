// Normalisations and their gradients: layer, group, batch and root mean square. Statistics are taken in the
// type that elements are calculated with (float for Half and BFloat16), of lines that threads share.
#include <cmath>
#include <optional>
#include <tuple>

#include "../../common/norm.h"
#include "../../common/temporary.h"
#include "../common_dtype.h"
#include "../lanes.h"
#include "../movement.h"

namespace opsmith::portable {
namespace {

using Results = std::tuple<Tensor&, Tensor&, Tensor&>;

constexpr int64_t kBlock = 256;

// Elements of a tensor as C, in blocks: the memory itself, or a copy of it.
template <class C>
struct Reader {
  const char* data;
  Convert load;  // null where elements are of type C
  int64_t width;

  explicit Reader(const Tensor& t)
      : data(static_cast<const char*>(t.const_data_ptr())),
        load(t.scalar_type() == dtype_of<C> ? nullptr : conversion(t.scalar_type(), dtype_of<C>)),
        width(t.element_size()) {}

  const C* block(int64_t offset, int64_t n, C* buffer) const {
    const char* const from = data + offset * width;
    if (load == nullptr) {
      return reinterpret_cast<const C*>(from);
    }
    load(from, {1, n, 0, 1}, buffer);
    return buffer;
  }
  C at(int64_t offset) const {
    C buffer;
    return *block(offset, 1, &buffer);
  }
};

template <class C>
struct Writer {
  char* data;
  Convert store;
  int64_t width;

  explicit Writer(Tensor& t)
      : data(static_cast<char*>(t.mutable_data_ptr())),
        store(conversion(dtype_of<C>, t.scalar_type())),
        width(t.element_size()) {}

  void block(int64_t offset, int64_t n, const C* values) const {
    store(values, {1, n, 0, 1}, data + offset * width);
  }
  void put(int64_t offset, C value) const { block(offset, 1, &value); }
};

// f(offset, n, values) for the blocks of n elements from `first`.
template <class C, class F>
void for_each_block(const Reader<C>& reader, int64_t first, int64_t n, const F& f) {
  C buffer[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = std::min(kBlock, n - i);
    f(i, count, reader.block(first + i, count, buffer));
  }
}

// Mean and variance, block by block: each block's own, combined as Chan et al. do, so that neither cancels.
// The blocks are combined in double, so that an error does not grow with their number.
template <class C>
struct MomentsSoFar {
  double mean = 0;
  double squares = 0;  // sum of squared differences from the mean
  double count = 0;

  void add(const C* values, int64_t n) {
    const C size = static_cast<C>(n);
    const C own = sum_of<C>(n, [=](int64_t i) { return values[i]; }) / size;
    const C own_squares = sum_of<C>(n, [=](int64_t i) { return (values[i] - own) * (values[i] - own); });
    const double total = count + static_cast<double>(n);
    const double difference = static_cast<double>(own) - mean;
    const double share = static_cast<double>(n) / total;
    mean += difference * share;
    squares += static_cast<double>(own_squares) + difference * difference * (count * share);
    count = total;
  }
  C variance() const { return static_cast<C>(squares / count); }
  // The mean that is saved for a gradient: of infinities it is NaN, as PyTorch's.
  C saved_mean() const { return static_cast<C>(std::isnan(squares) ? squares : mean); }
};

// ---- lines: layer_norm

template <class C>
[[gnu::noinline]] void layer_norm(const Tensor& input, const OptionalTensor& weight,
                                  const OptionalTensor& bias, const NormLines& lines, double eps, Tensor& out,
                                  Tensor& mean, Tensor& rstd) {
  const Reader<C> x(input);
  const Reader<C> w(weight.has_value() ? *weight : input);
  const Reader<C> b(bias.has_value() ? *bias : input);
  const Writer<C> y(out);
  const Writer<C> means(mean);
  const Writer<C> rstds(rstd);
  parallel(lines.count, grain_size(lines.length), [&](int64_t begin, int64_t end) {
    C result[kBlock];
    C weights[kBlock];
    C biases[kBlock];
    for (int64_t line = begin; line < end; ++line) {
      const int64_t first = line * lines.length;
      MomentsSoFar<C> moments;
      for_each_block<C>(x, first, lines.length,
                        [&](int64_t, int64_t n, const C* values) { moments.add(values, n); });
      const C center = moments.saved_mean();
      const C scale = C(1) / std::sqrt(moments.variance() + static_cast<C>(eps));
      means.put(line, center);
      rstds.put(line, scale);
      for_each_block<C>(x, first, lines.length, [&](int64_t at, int64_t n, const C* values) {
        for (int64_t i = 0; i < n; ++i) {
          result[i] = (values[i] - center) * scale;
        }
        if (weight.has_value()) {
          const C* const factors = w.block(at, n, weights);
          for (int64_t i = 0; i < n; ++i) {
            result[i] *= factors[i];
          }
        }
        if (bias.has_value()) {
          const C* const added = b.block(at, n, biases);
          for (int64_t i = 0; i < n; ++i) {
            result[i] += added[i];
          }
        } else {
          for (int64_t i = 0; i < n; ++i) {
            result[i] += C(0);  // as ATen does: no result is -0
          }
        }
        y.block(first + at, n, result);
      });
    }
  });
}

// With x^ = (x - mean) rstd and g = grad weight: grad_input = rstd (g - mean(g) - x^ mean(g x^)).
template <class C>
[[gnu::noinline]] void layer_norm_grad_input(const Tensor& grad_out, const Tensor& input, const Tensor& mean,
                                             const Tensor& rstd, const OptionalTensor& weight,
                                             const NormLines& lines, Tensor& grad_input) {
  const Reader<C> g(grad_out);
  const Reader<C> x(input);
  const Reader<C> means(mean);
  const Reader<C> rstds(rstd);
  const Reader<C> w(weight.has_value() ? *weight : input);
  const int64_t n = lines.length;
  const Writer<C> result(grad_input);
  parallel(lines.count, grain_size(n), [&](int64_t begin, int64_t end) {
    C grads[kBlock];
    C values[kBlock];
    C weights[kBlock];
    for (int64_t line = begin; line < end; ++line) {
      const C center = means.at(line);
      const C scale = rstds.at(line);
      const auto for_each = [&](const auto& f) {
        for (int64_t i = 0; i < n; i += kBlock) {
          const int64_t count = std::min(kBlock, n - i);
          const C* const grad = g.block(line * n + i, count, grads);
          const C* const value = x.block(line * n + i, count, values);
          const C* const factor = weight.has_value() ? w.block(i, count, weights) : nullptr;
          f(i, count, grad, value, factor);
        }
      };
      double sums = 0;
      double products = 0;
      for_each([&](int64_t, int64_t count, const C* grad, const C* value, const C* factor) {
        sums += static_cast<double>(
            sum_of<C>(count, [=](int64_t k) { return factor != nullptr ? grad[k] * factor[k] : grad[k]; }));
        products += static_cast<double>(sum_of<C>(count, [=](int64_t k) {
          return (factor != nullptr ? grad[k] * factor[k] : grad[k]) * (value[k] - center) * scale;
        }));
      });
      const C sum = static_cast<C>(sums) / static_cast<C>(n);
      const C product = static_cast<C>(products) / static_cast<C>(n);
      for_each([&](int64_t i, int64_t count, const C* grad, const C* value, const C* factor) {
        C parts[kBlock];
        for (int64_t k = 0; k < count; ++k) {
          const C own = factor != nullptr ? grad[k] * factor[k] : grad[k];
          parts[k] = scale * (own - sum - (value[k] - center) * scale * product);
        }
        result.block(line * n + i, count, parts);
      });
    }
  });
}

// grad_weight = sum(grad x^), grad_bias = sum(grad) over lines.
template <class C>
[[gnu::noinline]] void layer_norm_grad_weight(const Tensor& grad_out, const Tensor& input, const Tensor& mean,
                                              const Tensor& rstd, const NormLines& lines, C* weight_sums,
                                              C* bias_sums) {
  const Reader<C> g(grad_out);
  const Reader<C> x(input);
  const Reader<C> means(mean);
  const Reader<C> rstds(rstd);
  const int64_t n = lines.length;
  // Threads share the columns, so that each sum is one thread's.
  parallel(n, std::max<int64_t>(16, kGrain / std::max<int64_t>(1, lines.count)),
           [&](int64_t begin, int64_t end) {
             C grads[kBlock];
             C values[kBlock];
             for (int64_t i = begin; i < end; i += kBlock) {
               const int64_t count = std::min(kBlock, end - i);
               for (int64_t line = 0; line < lines.count; ++line) {
                 const C* const grad = g.block(line * n + i, count, grads);
                 const C* const value = x.block(line * n + i, count, values);
                 const C center = means.at(line);
                 const C scale = rstds.at(line);
                 for (int64_t k = 0; weight_sums != nullptr && k < count; ++k) {
                   weight_sums[i + k] += grad[k] * (value[k] - center) * scale;
                 }
                 for (int64_t k = 0; bias_sums != nullptr && k < count; ++k) {
                   bias_sums[i + k] += grad[k];
                 }
               }
             }
           });
}

// ---- channels: group_norm, batch_norm. The input is (N, C, HxW), contiguous.

struct ChannelShape {
  int64_t batch;
  int64_t channels;
  int64_t pixels;
};

// y = x * scale + shift for the elements of one channel of one sample.
template <class C>
void scale_channel(const Reader<C>& x, const Writer<C>& y, int64_t first, int64_t n, C scale, C shift) {
  C result[kBlock];
  for_each_block<C>(x, first, n, [&](int64_t at, int64_t count, const C* values) {
    for (int64_t i = 0; i < count; ++i) {
      result[i] = values[i] * scale + shift;
    }
    y.block(first + at, count, result);
  });
}

template <class C>
[[gnu::noinline]] void group_norm(const Tensor& input, const OptionalTensor& weight,
                                  const OptionalTensor& bias, const ChannelShape& shape, int64_t groups,
                                  double eps, Tensor& out, Tensor& mean, Tensor& rstd) {
  const Reader<C> x(input);
  const Reader<C> w(weight.has_value() ? *weight : input);
  const Reader<C> b(bias.has_value() ? *bias : input);
  const Writer<C> y(out);
  const Writer<C> means(mean);
  const Writer<C> rstds(rstd);
  const int64_t own = shape.channels / groups;
  const int64_t n = own * shape.pixels;
  parallel(shape.batch * groups, grain_size(n), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      MomentsSoFar<C> moments;
      for_each_block<C>(x, line * n, n,
                        [&](int64_t, int64_t count, const C* values) { moments.add(values, count); });
      const C center = moments.saved_mean();
      const C rate = C(1) / std::sqrt(std::max(moments.variance(), C(0)) + static_cast<C>(eps));
      means.put(line, center);
      rstds.put(line, rate);
      for (int64_t k = 0; k < own; ++k) {
        const int64_t channel = line % groups * own + k;
        const C scale = weight.has_value() ? rate * w.at(channel) : rate;
        const C shift = (bias.has_value() ? b.at(channel) : C(0)) - center * scale;
        scale_channel<C>(x, y, line * n + k * shape.pixels, shape.pixels, scale, shift);
      }
    }
  });
}

// Sums over the pixels of one channel of one sample: of grad, and of grad * x.
template <class C>
struct ChannelSums {
  C grad = 0;
  C product = 0;
};

template <class C>
ChannelSums<C> channel_sums(const Reader<C>& g, const Reader<C>& x, int64_t first, int64_t n) {
  ChannelSums<C> sums;
  C values[kBlock];
  for_each_block<C>(g, first, n, [&](int64_t at, int64_t count, const C* grad) {
    const C* const value = x.block(first + at, count, values);
    sums.grad += sum_of<C>(count, [=](int64_t i) { return grad[i]; });
    sums.product += sum_of<C>(count, [=](int64_t i) { return grad[i] * value[i]; });
  });
  return sums;
}

template <class C>
void group_norm_grad_input(const Reader<C>& g, const Reader<C>& x, const Reader<C>& means,
                           const Reader<C>& rstds, const OptionalTensor& weight, const ChannelShape& shape,
                           int64_t groups, const ChannelSums<C>* sums, Tensor& grad_input) {
  const Reader<C> w(weight.has_value() ? *weight : grad_input);
  const int64_t own = shape.channels / groups;
  const int64_t grain = grain_size(shape.pixels);
  const Writer<C> result(grad_input);
  parallel(shape.batch * groups, std::max<int64_t>(1, grain / own), [&](int64_t begin, int64_t end) {
    C values[kBlock];
    C parts[kBlock];
    for (int64_t line = begin; line < end; ++line) {
      const C center = means.at(line);
      const C scale = rstds.at(line);
      C product = 0;
      C sum = 0;
      for (int64_t k = 0; k < own; ++k) {
        const C factor = weight.has_value() ? w.at(line % groups * own + k) : C(1);
        product += sums[line * own + k].product * factor;
        sum += sums[line * own + k].grad * factor;
      }
      const C count = static_cast<C>(own * shape.pixels);
      const C along = (sum * center - product) * scale * scale * scale / count;
      const C constant = -along * center - sum * scale / count;
      for (int64_t k = 0; k < own; ++k) {
        const C factor = scale * (weight.has_value() ? w.at(line % groups * own + k) : C(1));
        const int64_t first = (line * own + k) * shape.pixels;
        for_each_block<C>(g, first, shape.pixels, [&](int64_t at, int64_t n, const C* grad) {
          const C* const value = x.block(first + at, n, values);
          for (int64_t i = 0; i < n; ++i) {
            parts[i] = factor * grad[i] + along * value[i] + constant;
          }
          result.block(first + at, n, parts);
        });
      }
    }
  });
}

template <class C>
[[gnu::noinline]] void group_norm_backward(const Tensor& grad_out, const Tensor& input, const Tensor& mean,
                                           const Tensor& rstd, const OptionalTensor& weight,
                                           const ChannelShape& shape, int64_t groups,
                                           const NormGradients& gradients, ChannelSums<C>* sums) {
  const Reader<C> g(grad_out);
  const Reader<C> x(input);
  const Reader<C> means(mean);
  const Reader<C> rstds(rstd);
  if (shape.channels == 0) {
    return;
  }
  const int64_t own = shape.channels / groups;
  const int64_t grain = grain_size(shape.pixels);
  parallel(shape.batch * shape.channels, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      sums[i] = channel_sums<C>(g, x, i * shape.pixels, shape.pixels);
    }
  });
  if (gradients.input != nullptr) {
    group_norm_grad_input<C>(g, x, means, rstds, weight, shape, groups, sums, *gradients.input);
  }
  for (int64_t channel = 0; channel < shape.channels; ++channel) {
    C weight_sum = 0;
    C bias_sum = 0;
    for (int64_t sample = 0; sample < shape.batch; ++sample) {
      const ChannelSums<C>& each = sums[sample * shape.channels + channel];
      const int64_t line = sample * groups + channel / own;
      weight_sum += (each.product - each.grad * means.at(line)) * rstds.at(line);
      bias_sum += each.grad;
    }
    if (gradients.weight != nullptr) {
      Writer<C>(*gradients.weight).put(channel, weight_sum);
    }
    if (gradients.bias != nullptr) {
      Writer<C>(*gradients.bias).put(channel, bias_sum);
    }
  }
}

// Statistics of a batch, or those given. running_mean and running_var are moved towards the batch's. Without
// save_mean none are saved.
template <class C>
[[gnu::noinline]] void batch_norm(const Tensor& input, const BatchNorm& norm, const ChannelShape& shape,
                                  Tensor& out, Tensor* save_mean, Tensor* save_invstd) {
  const Reader<C> x(input);
  const Reader<C> w(norm.weight.has_value() ? *norm.weight : input);
  const Reader<C> b(norm.bias.has_value() ? *norm.bias : input);
  const Writer<C> y(out);
  const int64_t n = shape.batch * shape.pixels;
  parallel(shape.channels, grain_size(n), [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) {
      C center;
      C rate;
      if (norm.training) {
        MomentsSoFar<C> moments;
        for (int64_t sample = 0; sample < shape.batch; ++sample) {
          for_each_block<C>(x, (sample * shape.channels + channel) * shape.pixels, shape.pixels,
                            [&](int64_t, int64_t count, const C* values) { moments.add(values, count); });
        }
        center = static_cast<C>(moments.mean);
        rate = C(1) / std::sqrt(moments.variance() + static_cast<C>(norm.eps));
        const auto move = [&](const OptionalTensor& running, C value) {
          if (running.has_value()) {
            Tensor target = *running;
            const C old = Reader<C>(target).at(channel);
            Writer<C>(target).put(
                channel, static_cast<C>(norm.momentum) * value + static_cast<C>(1 - norm.momentum) * old);
          }
        };
        move(norm.running_mean, center);
        move(norm.running_var, static_cast<C>(moments.squares / static_cast<double>(n - 1)));
      } else {
        center = Reader<C>(*norm.running_mean).at(channel);
        rate = C(1) / std::sqrt(Reader<C>(*norm.running_var).at(channel) + static_cast<C>(norm.eps));
      }
      if (save_mean != nullptr) {
        Writer<C>(*save_mean).put(channel, center);
        Writer<C>(*save_invstd).put(channel, rate);
      }
      const C scale = norm.weight.has_value() ? rate * w.at(channel) : rate;
      const C shift = (norm.bias.has_value() ? b.at(channel) : C(0)) - center * scale;
      for (int64_t sample = 0; sample < shape.batch; ++sample) {
        scale_channel<C>(x, y, (sample * shape.channels + channel) * shape.pixels, shape.pixels, scale,
                         shift);
      }
    }
  });
}

constexpr char kLayerNorm[] = "native_layer_norm.out";
constexpr char kLayerNormBackward[] = "native_layer_norm_backward.out";
constexpr char kGroupNorm[] = "native_group_norm.out";
constexpr char kGroupNormBackward[] = "native_group_norm_backward.out";

// The parts of channels of a contiguous input.
ChannelShape channels_of(const Tensor& input) {
  const Dims sizes = sizes_of(input);
  return {sizes[0], sizes[1], sizes.product(2, sizes.rank)};
}

template <const char* Name>
Results batch_norm_of(KernelRuntimeContext& context, const Tensor& input, const BatchNorm& norm, Tensor& out,
                      Tensor& save_mean, Tensor& save_invstd) {
  if (prepare_batch_norm(context, input, norm, out, save_mean, save_invstd) &&
      are_contiguous(context, {&input, &out})) {
    with_compute_dtype<Name>(context, Floating{}, input.scalar_type(), [&](auto type) {
      batch_norm<typename decltype(type)::type>(
          input, norm, channels_of(input), out,
          saves_statistics(norm, input, save_mean) ? &save_mean : nullptr, &save_invstd);
    });
  }
  return {out, save_mean, save_invstd};
}

}  // namespace

namespace native {

OPSMITH_BATCH_NORMS

Results native_layer_norm_out(KernelRuntimeContext& context, const Tensor& input, IntList normalized_shape,
                              const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                              Tensor& out0, Tensor& out1, Tensor& out2) {
  NormLines lines;
  if (prepare_layer_norm(context, input, normalized_shape, weight, bias, out0, out1, out2, lines)) {
    with_compute_dtype<kLayerNorm>(context, Floating{}, input.scalar_type(), [&](auto type) {
      layer_norm<typename decltype(type)::type>(input, weight, bias, lines, eps, out0, out1, out2);
    });
  }
  return {out0, out1, out2};
}

Results native_layer_norm_backward_out(KernelRuntimeContext& context, const Tensor& grad_out,
                                       const Tensor& input, IntList normalized_shape, const Tensor& mean,
                                       const Tensor& rstd, const OptionalTensor& weight,
                                       const OptionalTensor& bias, ArrayRef<bool> output_mask, Tensor& out0,
                                       Tensor& out1, Tensor& out2) {
  Results results(out0, out1, out2);
  if (!is_mask_of(context, output_mask, 3)) {
    return results;
  }
  NormLines lines;
  const NormGradients gradients =
      asked_for(output_mask, out0, out1, out2, weight.has_value(), bias.has_value());
  if (!prepare_layer_norm_backward(context, grad_out, input, normalized_shape, mean, rstd, weight, bias,
                                   gradients, lines)) {
    return results;
  }
  with_compute_dtype<kLayerNormBackward>(context, Floating{}, input.scalar_type(), [&](auto type) {
    using C = typename decltype(type)::type;
    const auto sums = temporary<C>(context, 2 * lines.length);
    if (sums == nullptr) {
      return;
    }
    std::fill_n(sums.get(), 2 * lines.length, C(0));
    if (gradients.input != nullptr) {
      layer_norm_grad_input<C>(grad_out, input, mean, rstd, weight, lines, *gradients.input);
    }
    if (gradients.weight != nullptr || gradients.bias != nullptr) {
      layer_norm_grad_weight<C>(grad_out, input, mean, rstd, lines,
                                gradients.weight != nullptr ? sums.get() : nullptr,
                                gradients.bias != nullptr ? sums + lines.length : nullptr);
    }
    if (gradients.weight != nullptr) {
      Writer<C>(*gradients.weight).block(0, lines.length, sums);
    }
    if (gradients.bias != nullptr) {
      Writer<C>(*gradients.bias).block(0, lines.length, sums + lines.length);
    }
  });
  return results;
}

Results native_group_norm_out(KernelRuntimeContext& context, const Tensor& input,
                              const OptionalTensor& weight, const OptionalTensor& bias, int64_t N, int64_t C,
                              int64_t HxW, int64_t group, double eps, Tensor& out0, Tensor& out1,
                              Tensor& out2) {
  if (prepare_group_norm(context, input, weight, bias, N, C, HxW, group, out0, out1, out2) &&
      are_contiguous(context, {&input, &out0})) {
    with_compute_dtype<kGroupNorm>(context, Floating{}, input.scalar_type(), [&](auto type) {
      group_norm<typename decltype(type)::type>(input, weight, bias, {N, C, HxW}, group, eps, out0, out1,
                                                out2);
    });
  }
  return {out0, out1, out2};
}

Results native_group_norm_backward_out(KernelRuntimeContext& context, const Tensor& grad_out,
                                       const Tensor& input, const Tensor& mean, const Tensor& rstd,
                                       const OptionalTensor& weight, int64_t N, int64_t C, int64_t HxW,
                                       int64_t group, ArrayRef<bool> output_mask, Tensor& out0, Tensor& out1,
                                       Tensor& out2) {
  Results results(out0, out1, out2);
  if (!is_mask_of(context, output_mask, 3)) {
    return results;
  }
  const NormGradients gradients = asked_for(output_mask, out0, out1, out2);
  if (!prepare_group_norm_backward(context, grad_out, input, mean, rstd, weight, N, C, HxW, group,
                                   gradients)) {
    return results;
  }
  with_compute_dtype<kGroupNormBackward>(context, Floating{}, input.scalar_type(), [&](auto type) {
    using Computed = typename decltype(type)::type;
    const auto sums = temporary<ChannelSums<Computed>>(context, N * C);
    if (sums != nullptr) {
      group_norm_backward<Computed>(grad_out, input, mean, rstd, weight, {N, C, HxW}, group, gradients, sums);
    }
  });
  return results;
}

}  // namespace native
}  // namespace opsmith::portable
