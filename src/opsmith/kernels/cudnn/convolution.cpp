// Convolutions and their gradients, by cuDNN. In terms of the plain convolution there are an image, the
// filters' weight and a result; a transposed convolution's forward is the image's gradient.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <opsmith/torch_version.h>
#include <opsmith/unsupported.h>

#include "../common/nvidia_library.h"
#include "../common/operand_dtypes.h"
#include "../meta/result_sizes.h"
#include "api.h"

namespace opsmith::cudnn {
namespace {

constexpr nvidia::DataTypes kTypes{kFloat32, kFloat64, kFloat16, kBfloat16};

constexpr size_t kMostPlans = 1024;                 // of a thread
constexpr size_t kMostWorkspace = size_t{1} << 30;  // algorithms that need more are passed over

std::string words(int status) {
  std::array<char, 512> details{};
  api().LastErrorString(details.data(), details.size());
  const std::string name = api().ErrorString(status);
  return details[0] == '\0' ? name : name + ": " + details.data();
}

void check(int status, const char* action) {
  TORCH_CHECK(status == kSuccess, "cuDNN cannot ", action, " (", words(status), ")");
}

// The same of a convolution, which the next library computes where cuDNN does not support it.
void check_convolution(int status, const char* action) {
  if (status / 1000 == kNotSupported / 1000) {
    unsupported("cuDNN does not support the convolution (" + words(status) + ")");
  }
  check(status, action);
}

int narrow(int64_t number) {
  if (number > std::numeric_limits<int>::max()) {
    unsupported("cuDNN counts elements to 2^31 - 1");
  }
  return static_cast<int>(number);
}

std::vector<int> narrow(at::IntArrayRef numbers) {
  std::vector<int> all;
  for (const int64_t number : numbers) {
    all.push_back(narrow(number));
  }
  return all;
}

using Tensors = std::array<at::Tensor, 3>;  // by Role, in one layout

// The arguments of a convolution that are no tensors.
struct Parameters {
  at::IntArrayRef stride, padding, dilation;
  int64_t groups;
};

using Owned = std::unique_ptr<void, int (*)(Descriptor)>;

Owned made(const Kind& kind) {
  Descriptor descriptor = nullptr;
  check(kind.Create(&descriptor), "make a descriptor");
  return {descriptor, kind.Destroy};
}

Owned describe_image(const at::Tensor& t, at::MemoryFormat layout) {
  Owned descriptor = made(api().tensor);
  narrow(t.numel());
  const std::vector<int> sizes = narrow(t.sizes());
  // Of the layout: those of dimensions of one element may be anything in the tensor.
  std::vector<int> strides(sizes.size());
  const size_t last = sizes.size() - 1;
  int stride = 1;
  for (size_t i = 0; i <= last; ++i) {
    const size_t d = layout == at::MemoryFormat::Contiguous ? last - i
                     : i == 0                               ? 1
                     : i == last                            ? 0
                                                            : last + 1 - i;
    strides[d] = stride;
    stride *= sizes[d];
  }
  check_convolution(api().SetTensor(descriptor.get(), kTypes.of(t.scalar_type()),
                                    static_cast<int>(sizes.size()), sizes.data(), strides.data()),
                    "describe an image");
  return descriptor;
}

Owned describe_weight(const at::Tensor& t, at::MemoryFormat layout) {
  Owned descriptor = made(api().filter);
  narrow(t.numel());
  const int format = layout == at::MemoryFormat::Contiguous ? kContiguous : kChannelsLast;
  check_convolution(api().SetFilter(descriptor.get(), kTypes.of(t.scalar_type()), format,
                                    static_cast<int>(t.dim()), narrow(t.sizes()).data()),
                    "describe a weight");
  return descriptor;
}

Owned describe_convolution(const Parameters& parameters, int type, int math) {
  Owned descriptor = made(api().convolution);
  check_convolution(api().SetConvolution(descriptor.get(), static_cast<int>(parameters.stride.size()),
                                         narrow(parameters.padding).data(), narrow(parameters.stride).data(),
                                         narrow(parameters.dilation).data(), kCrossCorrelation,
                                         type == kFloat64 ? kFloat64 : kFloat32),
                    "describe a convolution");
  check_convolution(api().SetGroups(descriptor.get(), narrow(parameters.groups)), "set a number of groups");
  check_convolution(api().SetMath(descriptor.get(), math), "set a precision");
  return descriptor;
}

// For each tensor that is written, the two others and itself.
constexpr Role kOperands[3][3] = {
    {kWeight, kResult, kImage}, {kImage, kResult, kWeight}, {kImage, kWeight, kResult}};

// How a thread computes what has given sizes: descriptors, and the algorithm that cuDNN ranks first.
struct Plan {
  std::array<Owned, 3> tensors;  // by Role
  Owned convolution;
  int algorithm = 0;
  size_t workspace = 0;
};

Plan make_plan(Handle handle, Role written, const Tensors& tensors, const Parameters& parameters,
               at::MemoryFormat layout, int math, bool is_deterministic) {
  if (at::native::conv_output_size(tensors[kImage].sizes(), tensors[kWeight].sizes(), parameters.padding,
                                   parameters.stride, parameters.dilation) != tensors[kResult].sizes()) {
    unsupported("cuDNN takes no output_padding from the stride on");
  }
  Plan plan{{describe_image(tensors[kImage], layout), describe_weight(tensors[kWeight], layout),
             describe_image(tensors[kResult], layout)},
            describe_convolution(parameters, kTypes.of(tensors[kImage].scalar_type()), math)};
  const auto& [a, b, out] = kOperands[written];
  const Descriptor of_a = plan.tensors[a].get(), of_b = plan.tensors[b].get();
  const Descriptor of_out = plan.tensors[out].get(), convolution = plan.convolution.get();
  const Operation& operation = api().writing[written];
  std::array<Algorithm, 32> ranked{};
  int count = 0;
  check_convolution(operation.Rank(handle, of_a, of_b, convolution, of_out, static_cast<int>(ranked.size()),
                                   &count, ranked.data()),
                    "rank algorithms");
  for (int i = 0; i < count; ++i) {
    const Algorithm& each = ranked[static_cast<size_t>(i)];
    if (each.status != kSuccess || (is_deterministic && each.determinism != kDeterministic)) {
      continue;
    }
    check_convolution(api().SetMath(convolution, math == kNoTensorCores ? math : each.math),
                      "set a precision");
    plan.algorithm = each.number;
    const int status =
        operation.WorkspaceSize(handle, of_a, of_b, convolution, of_out, each.number, &plan.workspace);
    if (status == kSuccess && plan.workspace <= kMostWorkspace) {
      return plan;
    }
  }
  unsupported(
      c10::str("cuDNN has no ", is_deterministic ? "deterministic " : "", "algorithm for the convolution"));
}

// The plan of this thread for such a call. What decides about it is the key.
const Plan& plan_of(Handle handle, Role written, const Tensors& tensors, const Parameters& parameters,
                    at::MemoryFormat layout) {
  const at::Context& context = at::globalContext();
  const at::ScalarType dtype = tensors[kImage].scalar_type();
  const int math = at::isReducedFloatingType(dtype)                                       ? kTensorCores
                   : dtype == at::kFloat && !context.allowTF32CuDNN(OPSMITH_CONVOLUTIONS) ? kNoTensorCores
                                                                                          : kDefaultMath;
  const bool is_deterministic = context.deterministicCuDNN() || context.deterministicAlgorithms();
  std::vector<int64_t> key{static_cast<int64_t>(written),
                           tensors[kImage].device().index(),
                           static_cast<int64_t>(dtype),
                           static_cast<int64_t>(layout),
                           math,
                           is_deterministic,
                           parameters.groups};
  for (const at::IntArrayRef numbers :
       {tensors[kImage].sizes(), tensors[kWeight].sizes(), tensors[kResult].sizes(), parameters.stride,
        parameters.padding, parameters.dilation}) {
    key.insert(key.end(), numbers.begin(), numbers.end());
  }
  thread_local std::map<std::vector<int64_t>, Plan> plans;
  if (const auto found = plans.find(key); found != plans.end()) {
    return found->second;
  }
  Plan plan = make_plan(handle, written, tensors, parameters, layout, math, is_deterministic);
  if (plans.size() == kMostPlans) {
    plans.clear();
  }
  return plans.emplace(std::move(key), std::move(plan)).first->second;
}

// Writes one of the tensors from the others.
void run(Role written, const Tensors& tensors, const Parameters& parameters, at::MemoryFormat layout) {
  const auto& [a, b, out] = kOperands[written];
  if (tensors[a].numel() == 0 || tensors[b].numel() == 0) {
    tensors[out].zero_();
  }
  if (tensors[a].numel() == 0 || tensors[b].numel() == 0 || tensors[out].numel() == 0) {
    return;
  }
  if (!at::globalContext().userEnabledCuDNN()) {
    unsupported("torch.backends.cudnn.enabled is False");
  }
  const Handle handle = nvidia::handle(api().Create, api().SetStream, tensors[out].device().index(), check);
  const Plan& plan = plan_of(handle, written, tensors, parameters, layout);
  const at::Tensor workspace =
      at::empty({static_cast<int64_t>(plan.workspace)}, tensors[out].options().dtype(at::kByte));
  constexpr double kDoubles[] = {0.0, 1.0};
  constexpr float kFloats[] = {0.0f, 1.0f};
  const bool is_double = tensors[out].scalar_type() == at::kDouble;
  const void* const zero = is_double ? static_cast<const void*>(&kDoubles[0]) : &kFloats[0];
  const void* const one = is_double ? static_cast<const void*>(&kDoubles[1]) : &kFloats[1];
  check_convolution(api().writing[written].Run(
                        handle, one, plan.tensors[a].get(), tensors[a].data_ptr(), plan.tensors[b].get(),
                        tensors[b].data_ptr(), plan.convolution.get(), plan.algorithm, workspace.data_ptr(),
                        plan.workspace, zero, plan.tensors[out].get(), tensors[out].data_ptr()),
                    "compute a convolution");
}

// The layout to compute in: channels-last where an operand is, as on `cuda`; cuDNN has it for no float64.
at::MemoryFormat layout_of(const at::Tensor& input, const at::Tensor& weight) {
  return input.scalar_type() == at::kDouble ? at::MemoryFormat::Contiguous
                                            : meta_functions::convolution_format(input, weight);
}

// `t` in the layout, from an address on that is a multiple of 16 bytes, as tensor cores read it.
at::Tensor laid_out(const at::Tensor& t, at::MemoryFormat layout) {
  const at::Tensor dense = t.contiguous(layout);
  return reinterpret_cast<uintptr_t>(dense.data_ptr()) % 16 == 0 ? dense : dense.clone(layout);
}

}  // namespace

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding,
                       at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                       int64_t groups) {
  require_dtype_of_input(input, weight, "weight");
  const bool adds = bias.has_value() && bias->defined();
  if (adds) {
    require_dtype_of_input(input, *bias, "bias");
  }
  const at::MemoryFormat layout = layout_of(input, weight);
  const at::Tensor out =
      at::empty(meta_functions::convolution_result(input, weight, stride, padding, dilation, transposed,
                                                   output_padding, groups),
                input.options().memory_format(layout));
  const at::Tensor in = laid_out(input, layout), w = laid_out(weight, layout);
  const Parameters parameters{stride, padding, dilation, groups};
  transposed ? run(kImage, {out, w, in}, parameters, layout) : run(kResult, {in, w, out}, parameters, layout);
  return adds ? out.add_(at::native::reshape_bias(out.dim(), *bias)) : out;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef /*output_padding*/,
    int64_t groups, std::array<bool, 3> output_mask) {
  require_dtype_of_input(input, weight, "weight");
  require_dtype_of_input(input, grad_output, "gradient");
  const at::MemoryFormat layout = layout_of(input, weight);
  const at::Tensor grad = laid_out(grad_output, layout), in = laid_out(input, layout);
  const at::Tensor w = laid_out(weight, layout);
  const Parameters parameters{stride, padding, dilation, groups};
  const at::Tensor& image = transposed ? grad : in;
  const at::Tensor& result = transposed ? in : grad;
  std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients;
  auto& [grad_input, grad_weight, grad_bias] = gradients;
  if (output_mask[0]) {
    grad_input = at::empty_like(in, layout);
    transposed ? run(kResult, {image, w, grad_input}, parameters, layout)
               : run(kImage, {grad_input, w, result}, parameters, layout);
  }
  if (output_mask[1]) {
    grad_weight = at::empty_like(w, layout);
    run(kWeight, {image, grad_weight, result}, parameters, layout);
  }
  if (output_mask[2]) {
    at::DimVector pixels{0};
    for (int64_t d = 2; d < grad.dim(); ++d) {
      pixels.push_back(d);
    }
    grad_bias = grad.sum(pixels);
  }
  return gradients;
}

}  // namespace opsmith::cudnn
