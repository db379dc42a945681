// The checks of a pool's arguments, and the size of its result: the same for every library, texts of
// rejections included.
#pragma once

#include <cinttypes>

#include "dtypes.h"
#include "feature_map.h"
#include "parallel.h"
#include "resize.h"

namespace opsmith {

// No stride means the kernel's size.
struct PoolWindow {
  IntList kernel;
  IntList stride;
  IntList padding;
  IntList dilation;
  bool ceil_mode;
};

// The first index of a window that is not before the plane, along a dimension in which it begins at `begin`.
inline int64_t first_inside(int64_t begin, int64_t dilation) {
  return begin < 0 ? begin + ceil_divided(-begin, dilation) * dilation : begin;
}

// The output's sizes after those of the leading dimensions. False with the call rejected.
inline bool pooled_sizes(KernelRuntimeContext& context, const char* name, const Tensor& self, int64_t spatial,
                         const PoolWindow& window, Dims& sizes) {
  const int64_t rank = self.dim();
  const auto fits = [spatial](IntList list, bool optional) {
    return list.size() == 1 || static_cast<int64_t>(list.size()) == spatial || (optional && list.empty());
  };
  OPSMITH_CHECK(context, fits(window.kernel, false), InvalidArgument, false,
                "%s: kernel_size must either be a single int, or a tuple of %d ints", name,
                static_cast<int>(spatial));
  OPSMITH_CHECK(context, fits(window.stride, true), InvalidArgument, false,
                "%s: stride must either be omitted, a single int, or a tuple of %d ints", name,
                static_cast<int>(spatial));
  OPSMITH_CHECK(context, fits(window.padding, false) && fits(window.dilation, false), InvalidArgument, false,
                "%s: padding and dilation must be either a single int, or a tuple of %d ints", name,
                static_cast<int>(spatial));
  OPSMITH_CHECK(context, rank == spatial + 1 || rank == spatial + 2, InvalidArgument, false,
                "%s: Expected %dD or %dD input, but got %d dimensions", name, static_cast<int>(spatial + 1),
                static_cast<int>(spatial + 2), static_cast<int>(rank));
  sizes = sizes_of(self);
  Checked shown = 1;  // by one window, the padding included
  for (int64_t d = 0; d < spatial; ++d) {
    const int64_t kernel = entry(window.kernel, d);
    const int64_t stride = window.stride.empty() ? kernel : entry(window.stride, d);
    const int64_t padding = entry(window.padding, d);
    const int64_t dilation = entry(window.dilation, d);
    OPSMITH_CHECK(context, kernel > 0, InvalidArgument, false,
                  "kernel size should be greater than zero, but got %" PRId64, kernel);
    OPSMITH_CHECK(context, stride > 0, InvalidArgument, false, "stride should not be zero");
    OPSMITH_CHECK(context, dilation > 0, InvalidArgument, false,
                  "dilation should be greater than zero, but got %" PRId64, dilation);
    OPSMITH_CHECK(context, padding >= 0, InvalidArgument, false,
                  "pad must be non-negative, but got pad: %" PRId64, padding);
    const SlidingWindow along{kernel, stride, padding, dilation};
    shown = shown * kernel;
    OPSMITH_CHECK(context, along.is_taken() && shown.fits(), InvalidArgument, false,
                  "kernel size, stride, padding or dilation is beyond %" PRId64
                  ", or the kernel's elements go beyond 64 bits",
                  SlidingWindow::kMost);
    const int64_t in = sizes[rank - spatial + d];
    OPSMITH_CHECK(context, padding <= along.reach().value() / 2, InvalidArgument, false,
                  "pad should be at most half of effective kernel size, but got pad=%" PRId64
                  ", kernel_size=%" PRId64 " and dilation=%" PRId64,
                  padding, kernel, dilation);
    int64_t& size = sizes[rank - spatial + d];
    size = along.places(in, window.ceil_mode).value();
    OPSMITH_CHECK(context, size >= 1, InvalidArgument, false,
                  "Given input size: %" PRId64 ", the calculated output size: %" PRId64
                  " at spatial dimension %" PRId64 ". Output size is too small",
                  in, size, d);
  }
  return true;
}

// Gives both results of a pool of largest elements their shape. False with the call rejected.
inline bool resize_max_pool(KernelRuntimeContext& context, const char* name, const Tensor& self,
                            int64_t spatial, const PoolWindow& window, Tensor& out, Tensor& indices) {
  Dims sizes;
  OPSMITH_CHECK(context, out.scalar_type() == self.scalar_type() && indices.scalar_type() == ScalarType::Long,
                InvalidArgument, false, "%s: out must have self's dtype, and indices Long", name);
  return pooled_sizes(context, name, self, spatial, window, sizes) && resize(context, out, sizes) &&
         one_layout(context, {&out, &self}) && resize(context, indices, sizes);
}

// Gives the result of an adaptive pool its shape. False with the call rejected.
inline bool resize_adaptive_pool(KernelRuntimeContext& context, const char* name, const Tensor& self,
                                 int64_t spatial, IntList output_size, Tensor& out) {
  const int64_t rank = self.dim();
  OPSMITH_CHECK(context, static_cast<int64_t>(output_size.size()) == spatial, InvalidArgument, false,
                "%s: output_size must be %d numbers", name, static_cast<int>(spatial));
  OPSMITH_CHECK(context, rank == spatial + 1 || rank == spatial + 2, InvalidArgument, false,
                "%s: Expected %dD or %dD tensor, but got %d dimensions", name, static_cast<int>(spatial + 1),
                static_cast<int>(spatial + 2), static_cast<int>(rank));
  OPSMITH_CHECK(context, out.scalar_type() == self.scalar_type(), InvalidArgument, false,
                "%s: out and self must have one dtype", name);
  Dims sizes = sizes_of(self);
  for (int64_t d = 0; d < spatial; ++d) {
    int64_t& size = sizes[rank - spatial + d];
    OPSMITH_CHECK(context, size > 0, InvalidArgument, false,
                  "%s: Expected input to have non-zero size for non-batch dimensions", name);
    OPSMITH_CHECK(context, output_size[d] >= 0, InvalidArgument, false,
                  "%s: elements of output_size must be greater than or equal to 0", name);
    size = output_size[d];
  }
  return resize(context, out, sizes) && one_layout(context, {&out, &self});
}

}  // namespace opsmith
