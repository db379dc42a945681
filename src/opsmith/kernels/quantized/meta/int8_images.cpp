// How the results of conv2d_int8, max_pool2d_int8 and add_int8 are shaped, for PyTorch: images have their
// channels innermost.
#include "../../common/checked_sizes.h"

#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

namespace opsmith::quantized {
namespace {

int64_t of(at::IntArrayRef list, size_t d) {
  return list.size() == 1 ? list[0] : list[d];
}

at::Tensor image(const char* name, const at::Tensor& input, const c10::SymInt& channels,
                 at::IntArrayRef kernel, at::IntArrayRef stride, at::IntArrayRef padding,
                 at::IntArrayRef dilation, bool ceil) {
  TORCH_CHECK(input.dim() == 4, name, ": `input` has to have 4 dimensions, not ", input.dim());
  for (const auto list : {kernel, stride, padding, dilation}) {
    TORCH_CHECK(list.size() == 1 || list.size() == 2, name,
                ": kernel, stride, padding and dilation have 1 or 2 numbers, not ", list.size());
  }
  std::vector<c10::SymInt> sizes{input.sym_size(0), channels};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t step = of(stride, d), before = of(padding, d);
    const Checked reach = SlidingWindow{of(kernel, d), step, before, of(dilation, d)}.reach();
    TORCH_CHECK(step > 0 && before >= 0 && reach.value() > 0, name,
                ": kernel, stride and dilation have to be positive, and padding not negative");
    const Checked added = Checked(2) * before - reach;
    TORCH_CHECK(added.fits(), name, ": kernel, padding and dilation go beyond 64 bits");
    const c10::SymInt size = input.sym_size(static_cast<int64_t>(2 + d));
    const c10::SymInt room = size + added.value();
    TORCH_CHECK(ceil || room >= 0, name, ": the kernel reaches beyond the padded input of size ",
                size + 2 * before);
    c10::SymInt count = (room + (ceil ? step - 1 : 0)) / step + 1;
    if (ceil && (count - 1) * step >= size + before) {
      count = count - 1;
    }
    TORCH_CHECK(count > 0, name, ": the kernel reaches beyond the padded input of size ", size + 2 * before);
    sizes.push_back(std::move(count));
  }
  return at::empty_symint(sizes, input.options(), at::MemoryFormat::ChannelsLast);
}

}  // namespace

at::Tensor conv2d_int8_meta(const at::Tensor& input, double /*input_scale*/, int64_t /*input_zero_point*/,
                            const at::Tensor& /*weight*/, const at::Tensor& /*weight_scales*/,
                            const std::optional<at::Tensor>& /*bias*/, int64_t out_channels,
                            at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding,
                            at::IntArrayRef dilation, int64_t /*groups*/, double /*output_scale*/,
                            int64_t /*output_zero_point*/, int64_t /*output_min*/, int64_t /*output_max*/) {
  return image("conv2d_int8", input, out_channels, kernel_size, stride, padding, dilation, false);
}

at::Tensor max_pool2d_int8_meta(const at::Tensor& input, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                                at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  return image("max_pool2d_int8", input, input.dim() > 1 ? input.sym_size(1) : 0, kernel_size,
               stride.empty() ? kernel_size : stride, padding, dilation, ceil_mode);
}

at::Tensor add_int8_meta(const at::Tensor& a, double /*a_scale*/, int64_t /*a_zero_point*/,
                         const at::Tensor& b, double /*b_scale*/, int64_t /*b_zero_point*/,
                         double /*output_scale*/, int64_t /*output_zero_point*/, int64_t /*output_min*/,
                         int64_t /*output_max*/) {
  TORCH_CHECK(a.sym_sizes() == b.sym_sizes(), "add_int8: `a` and `b` have to have one shape");
  return a.is_non_overlapping_and_dense()
             ? at::empty_strided_symint(a.sym_sizes(), a.sym_strides(), a.options())
             : at::empty_symint(a.sym_sizes(), a.options());
}

}  // namespace opsmith::quantized
