// convolution and its gradients, by oneDNN's convolutions. Channels-last images are read and written where
// they lie; contiguous ones, and weights, are brought into the layout that oneDNN computes in, which is what
// PyTorch does on the CPU.
#include <algorithm>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../common/channels_innermost.h"
#include "../common/convolution_shape.h"
#include "../common/dtypes.h"
#include "../common/parallel.h"
#include "computation.h"

namespace opsmith::onednn::native {

namespace {

using Parameters = ConvolutionParameters;

// An image, as batches, channels and pixels.
Operand image(Role role, DataType dtype, const Tensor& t) {
  Operand made{role, {dtype, sizes_of(t), strides_of(t)}, t.mutable_data_ptr()};
  made.is_rearranged = !has_channels_innermost(t);
  if (is_contiguous(t)) {  // so that dimensions of one element have strides of a layout that oneDNN knows
    made.layout.strides = contiguous_strides(made.layout.sizes);
  } else if (!made.is_rearranged) {
    Dims& strides = made.layout.strides;
    strides[1] = 1;
    int64_t stride = t.sizes()[1];
    for (int64_t d = t.dim() - 1; d != 1; d = d == 0 ? 1 : d == 2 ? 0 : d - 1) {
      strides[d] = stride;
      stride *= t.sizes()[d];
    }
  }
  return made;
}

// The weight with its groups in front, where there are several. That of a deconvolution has the channels of
// its source second.
Operand weights(Role role, DataType dtype, const Tensor& t, int64_t groups, bool is_of_deconvolution) {
  Operand made{role, {dtype, sizes_of(t), strides_of(t)}, t.mutable_data_ptr(), true};
  auto& [_, sizes, strides] = made.layout;
  sizes[0] /= groups;
  const int64_t group = sizes[0] * strides[0];
  if (is_of_deconvolution) {
    std::swap(sizes[0], sizes[1]);
    std::swap(strides[0], strides[1]);
  }
  if (groups > 1) {
    sizes.insert(0, groups);
    strides.insert(0, group);
  }
  return made;
}

// How the pixels of the large image and of the small one meet: Note [Large and small] of
// common/convolution_shape.h. Pixels of the large one that meet none at all, behind the others, are left out
// of it: oneDNN wants a padding there that is not negative. It is brought together then, since some of
// oneDNN's kernels write into such gaps.
void put_windows(const Tensor& small, const Tensor& weight, const Parameters& parameters, Operand& large,
                 Dims (&windows)[4]) {
  auto& [strides, dilations, before, behind] = windows;
  for (int64_t d = 0; d < weight.dim() - 2; ++d) {
    const int64_t stride = entry(parameters.stride, d), dilation = entry(parameters.dilation, d);
    const int64_t padding = entry(parameters.padding, d);
    const int64_t reach = dilation * (weight.sizes()[2 + d] - 1) + 1;
    int64_t& from = large.layout.sizes[2 + d];
    const int64_t to = small.sizes()[2 + d];
    strides.push_back(stride);
    dilations.push_back(dilation - 1);
    before.push_back(padding);
    const bool fits = (from + 2 * padding - reach) / stride + 1 == to;
    const int64_t added = fits ? padding : (to - 1) * stride + reach - from - padding;
    behind.push_back(std::max<int64_t>(0, added));
    if (added < 0) {
      from += added;
      large.is_rearranged = true;
    }
  }
}

// A Tensor of a convolution, and what it is to oneDNN.
struct Part {
  Role role;
  const Tensor& tensor;
};

// A convolution of large and small images, or the gradient of one of its operands. A deconvolution is one
// from the small image to the large one.
bool convolve(KernelRuntimeContext& context, const char* name, Kind kind, DataType dtype, const Part& large,
              const Part& weight, const Part& small, const Parameters& parameters,
              const std::optional<Tensor>& bias = std::nullopt) {
  const bool is_deconvolution = kind == Kind::kDeconvolution;
  const Part& source = is_deconvolution ? small : large;
  const Part& result = is_deconvolution ? large : small;
  Computation computation{name,
                          kind,
                          {image(source.role, dtype, source.tensor),
                           weights(weight.role, dtype, weight.tensor, parameters.groups, is_deconvolution),
                           image(result.role, dtype, result.tensor)},
                          3};
  put_windows(small.tensor, weight.tensor, parameters, computation.operands[is_deconvolution ? 2 : 0],
              computation.windows);
  if (bias.has_value()) {
    computation.operands[computation.count++] = {
        kBias, {dtype, {bias->numel()}, {1}}, bias->mutable_data_ptr()};
  }
  return run(context, computation);
}

// f(pixel) of every pixel of the channel, given where it lies.
template <class T, class F>
void each_of_channel(const FeatureMap<T>& map, int64_t channel, const F& f) {
  for (int64_t b = 0; b < map.batch; ++b) {
    T* const plane = map.data + map.plane(b * map.channels + channel);
    for (int64_t i = 0; i < map.size[0]; ++i) {
      for (int64_t j = 0; j < map.size[1]; ++j) {
        T* const row = plane + i * map.stride[0] + j * map.stride[1];
        for (int64_t k = 0; k < map.size[2]; ++k) {
          f(row[k * map.stride[2]]);
        }
      }
    }
  }
}

// f(map, channel) of every channel of an image, whose elements have a type in C++.
template <class F>
void each_channel(DataType dtype, const Tensor& t, const F& f) {
  const auto all = [&](auto* data) {
    const auto map = feature_map_at(data, t, t.dim() - 2);
    parallel(map.channels, grain_size(map.batch * map.pixels()), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        f(map, c);
      }
    });
  };
  void* const data = t.mutable_data_ptr();
  if (dtype == kF32) {
    all(static_cast<float*>(data));
  } else if (dtype == kBf16) {
    all(static_cast<BFloat16*>(data));
  } else {
    all(static_cast<Half*>(data));
  }
}

template <class T>
T& element(const Tensor& t, const FeatureMap<T>&, int64_t i) {
  return static_cast<T*>(t.mutable_data_ptr())[i];
}

void sum_channels(DataType dtype, const Tensor& t, Tensor& sums) {
  each_channel(dtype, t, [&](const auto& map, int64_t channel) {
    double sum = 0.0;
    each_of_channel(map, channel, [&](const auto& each) { sum += static_cast<double>(each); });
    element(sums, map, channel) = static_cast<float>(sum);
  });
}

void fill_channels(DataType dtype, const std::optional<Tensor>& bias, Tensor& t) {
  each_channel(dtype, t, [&](const auto& map, int64_t channel) {
    each_of_channel(map, channel, [&](auto& each) {
      each = bias.has_value() ? element(*bias, map, channel) : std::decay_t<decltype(each)>(0.0f);
    });
  });
}

}  // namespace

Tensor& convolution_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight,
                        const std::optional<Tensor>& bias, Parameters::List stride, Parameters::List padding,
                        Parameters::List dilation, bool transposed, Parameters::List output_padding,
                        int64_t groups, Tensor& out) {
  const Parameters parameters{stride, padding, dilation, transposed, output_padding, groups};
  Dims sizes;
  if (!convolution_sizes(context, input, weight, parameters, sizes)) {
    return out;
  }
  const auto dtype = data_type(input.scalar_type());
  OPSMITH_CHECK(context, dtype.has_value() && out.scalar_type() == input.scalar_type(), NotSupported, out,
                "convolution takes float32, bfloat16 or float16, all operands the same");
  if (!convolution_takes_bias(context, input, bias, sizes) || !resize(context, out, sizes) ||
      !one_layout(context, {&out, &input}) || out.numel() == 0) {
    return out;
  }
  OPSMITH_CHECK(context, weight.numel() != 0, InvalidArgument, out, "convolution: the weight is empty");
  if (transposed) {
    if (std::any_of(output_padding.begin(), output_padding.end(), [](int64_t n) { return n != 0; })) {
      fill_channels(*dtype, bias, out);  // those that no pixel of the input meets
    }
    convolve(context, "convolution", Kind::kDeconvolution, *dtype, {kResult, out}, {kWeights, weight},
             {kSource, input}, parameters, bias);
  } else {
    convolve(context, "convolution", Kind::kConvolution, *dtype, {kSource, input}, {kWeights, weight},
             {kResult, out}, parameters, bias);
  }
  return out;
}

// Gradients of input, weight and bias, as output_mask asks for.
std::tuple<Tensor&, Tensor&, Tensor&> convolution_backward_out(
    KernelRuntimeContext& context, const Tensor& grad_output, const Tensor& input, const Tensor& weight,
    std::optional<Parameters::List> bias_sizes, Parameters::List stride, Parameters::List padding,
    Parameters::List dilation, bool transposed, Parameters::List output_padding, int64_t groups,
    executorch::aten::ArrayRef<bool> output_mask, Tensor& out0, Tensor& out1, Tensor& out2) {
  std::tuple<Tensor&, Tensor&, Tensor&> results(out0, out1, out2);
  const Parameters parameters{stride, padding, dilation, transposed, output_padding, groups};
  const auto dtype = data_type(input.scalar_type());
  Dims sizes;
  if (!begins_convolution_backward(context, grad_output, input, weight, bias_sizes, parameters, output_mask,
                                   results, dtype.has_value(), sizes)) {
    return results;
  }
  if (grad_output.numel() == 0 || weight.numel() == 0) {
    convolution_backward_of_nothing(context, input, weight, bias_sizes, output_mask, out0, out1, out2);
    return results;
  }
  if ((output_mask[0] && !resize_like(context, out0, input)) ||
      (output_mask[1] && !resize_like(context, out1, weight)) ||
      (output_mask[2] && !resize(context, out2, {sizes[1]}))) {
    return results;
  }
  const auto differentiate = [&](Kind kind, const Part& large, const Part& of_weight, const Part& small) {
    return convolve(context, "convolution_backward", kind, *dtype, large, of_weight, small, parameters);
  };
  bool done = true;
  if (output_mask[0]) {
    done = transposed ? differentiate(Kind::kConvolution, {kSource, grad_output}, {kWeights, weight},
                                      {kResult, out0})
                      : differentiate(Kind::kConvolutionData, {kSourceGradient, out0}, {kWeights, weight},
                                      {kResultGradient, grad_output});
  }
  if (done && output_mask[1]) {
    done = differentiate(Kind::kConvolutionWeights, {kSource, transposed ? grad_output : input},
                         {kWeightsGradient, out1}, {kResultGradient, transposed ? input : grad_output});
  }
  if (done && output_mask[2]) {
    sum_channels(*dtype, grad_output, out2);
  }
  return results;
}

}  // namespace opsmith::onednn::native
