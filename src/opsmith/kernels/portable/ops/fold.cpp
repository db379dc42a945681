// im2col and col2im: sliding windows as columns, and columns added up to a feature map again.
#include <algorithm>

#include "../../common/feature_map.h"
#include "../movement.h"

namespace opsmith::portable {
namespace {

constexpr char kCol2im[] = "col2im.out";

// Two numbers each: rows, then columns.
struct Windows {
  IntList kernel;
  IntList dilation;
  IntList padding;
  IntList stride;

  Checked places(int64_t size, int64_t d) const {
    return SlidingWindow{kernel[d], stride[d], padding[d], dilation[d]}.places(size);
  }
  int64_t count(int64_t size, int64_t d) const { return places(size, d).value(); }
};

bool valid(KernelRuntimeContext& context, const char* name, const Windows& windows, int64_t height,
           int64_t width) {
  for (const IntList list : {windows.kernel, windows.dilation, windows.padding, windows.stride}) {
    OPSMITH_CHECK(context, list.size() == 2, InvalidArgument, false,
                  "%s: It is expected kernel_size, dilation, padding and stride equal to 2, but got size %zu",
                  name, list.size());
  }
  const int64_t sizes[] = {height, width};
  Checked columns = 1;
  for (int64_t d = 0; d < 2; ++d) {
    OPSMITH_CHECK(context, windows.kernel[d] > 0 && windows.dilation[d] > 0 && windows.stride[d] > 0,
                  InvalidArgument, false, "%s: kernel, dilation and stride should be greater than zero",
                  name);
    OPSMITH_CHECK(context, windows.padding[d] >= 0, InvalidArgument, false,
                  "%s: padding should be non-negative", name);
    columns = columns * windows.kernel[d] * windows.places(sizes[d], d);
    OPSMITH_CHECK(context, columns.fits(), InvalidArgument, false,
                  "%s: sizes, kernel, padding and dilation go beyond 64 bits", name);
    OPSMITH_CHECK(context, windows.count(sizes[d], d) >= 1, InvalidArgument, false,
                  "%s: the calculated shape of the array of sliding blocks must be positive, but %" PRId64
                  " elements give %" PRId64,
                  name, sizes[d], windows.count(sizes[d], d));
  }
  return true;
}

// f(map offset, columns offset, count) for every row of elements of a contiguous plane that windows show,
// which lie windows.stride[1] apart in the map and side by side in the columns; those are (kernel, blocks).
template <class F>
void for_each_shown(const Windows& windows, int64_t height, int64_t width, const F& f) {
  const int64_t down = windows.count(height, 0);
  const int64_t across = windows.count(width, 1);
  const int64_t step = windows.stride[1];
  for (int64_t place = 0; place < windows.kernel[0] * windows.kernel[1]; ++place) {
    const int64_t shift_y = place / windows.kernel[1] * windows.dilation[0] - windows.padding[0];
    const int64_t shift_x = place % windows.kernel[1] * windows.dilation[1] - windows.padding[1];
    const int64_t first = shift_x < 0 ? ceil_divided(-shift_x, step) : 0;
    const int64_t end = shift_x < width ? std::min(across, (width - 1 - shift_x) / step + 1) : 0;
    for (int64_t i = 0; i < down && first < end; ++i) {
      const int64_t y = i * windows.stride[0] + shift_y;
      if (y >= 0 && y < height) {
        f(y * width + first * step + shift_x, (place * down + i) * across + first, end - first);
      }
    }
  }
}

}  // namespace

namespace native {

// Contiguous tensors, as the manifest says. Half and BFloat16 are added up as such, as in ATen.
Tensor& col2im_out(KernelRuntimeContext& context, const Tensor& self, IntList output_size,
                   IntList kernel_size, IntList dilation, IntList padding, IntList stride, Tensor& out) {
  const Windows windows{kernel_size, dilation, padding, stride};
  OPSMITH_CHECK(context, output_size.size() == 2, InvalidArgument, out,
                "It is expected output_size equals to 2, but got size %zu", output_size.size());
  const int64_t height = output_size[0];
  const int64_t width = output_size[1];
  OPSMITH_CHECK(context, self.dim() == 2 || self.dim() == 3, InvalidArgument, out,
                "Expected 2D or 3D input tensor, but got %d dimensions", static_cast<int>(self.dim()));
  if (!valid(context, "col2im", windows, height, width)) {
    return out;
  }
  const int64_t kernel = kernel_size[0] * kernel_size[1];
  const int64_t blocks = windows.count(height, 0) * windows.count(width, 1);
  Dims sizes = sizes_of(self);
  const int64_t channel = sizes.rank - 2;
  OPSMITH_CHECK(
      context, sizes[channel] % kernel == 0, InvalidArgument, out,
      "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got %" PRId64
      " and %" PRId64,
      sizes[channel], kernel);
  OPSMITH_CHECK(
      context, sizes[channel + 1] == blocks, InvalidArgument, out,
      "Expected size of input's dimension 2 to match the calculated number of sliding blocks %" PRId64
      ", but got %" PRId64,
      blocks, sizes[channel + 1]);
  if (!same_dtype(context, self, out)) {
    return out;
  }
  sizes[channel] /= kernel;
  sizes[channel + 1] = height;
  sizes.push_back(width);
  if (!resize(context, out, sizes) || out.numel() == 0) {
    return out;
  }
  const int64_t planes = out.numel() / (height * width), step = stride[1];
  std::memset(out.mutable_data_ptr(), 0, out.nbytes());
  with_dtype<kCol2im>(context, RealB{}, out.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    parallel(planes, grain_size(kernel * blocks), [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        const T* const from = self.const_data_ptr<T>() + plane * kernel * blocks;
        T* const to = out.mutable_data_ptr<T>() + plane * height * width;
        for_each_shown(windows, height, width, [=](int64_t map, int64_t column, int64_t count) {
          for (int64_t j = 0; j < count; ++j) {
            T* const sum = to + map + j * step;
            store_element(sum, load_element(sum) + load_element(from + column + j));
          }
        });
      }
    });
  });
  return out;
}

Tensor& im2col_out(KernelRuntimeContext& context, const Tensor& self, IntList kernel_size, IntList dilation,
                   IntList padding, IntList stride, Tensor& out) {
  const Windows windows{kernel_size, dilation, padding, stride};
  OPSMITH_CHECK(context, self.dim() == 3 || self.dim() == 4, InvalidArgument, out,
                "Expected 3D or 4D input tensor, but got %d dimensions", static_cast<int>(self.dim()));
  Dims sizes = sizes_of(self);
  const int64_t height = sizes[sizes.rank - 2];
  const int64_t width = sizes[sizes.rank - 1];
  if (!valid(context, "im2col", windows, height, width)) {
    return out;
  }
  if (!same_dtype(context, self, out)) {
    return out;
  }
  const int64_t kernel = kernel_size[0] * kernel_size[1];
  const int64_t blocks = windows.count(height, 0) * windows.count(width, 1);
  const int64_t planes = sizes.product(0, sizes.rank - 2), step = stride[1];
  sizes.erase(sizes.rank - 1);
  sizes[sizes.rank - 2] *= kernel;
  sizes[sizes.rank - 1] = blocks;
  if (!resize(context, out, sizes) || out.numel() == 0) {
    return out;
  }
  std::memset(out.mutable_data_ptr(), 0, out.nbytes());
  with_width(self.element_size(), [&](auto element) {
    using U = decltype(element);
    parallel(planes, grain_size(kernel * blocks), [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        const U* const from = static_cast<const U*>(self.const_data_ptr()) + plane * height * width;
        U* const to = static_cast<U*>(out.mutable_data_ptr()) + plane * kernel * blocks;
        for_each_shown(windows, height, width, [=](int64_t map, int64_t column, int64_t count) {
          for (int64_t j = 0; j < count; ++j) {
            to[column + j] = from[map + j * step];
          }
        });
      }
    });
  });
  return out;
}

}  // namespace native
}  // namespace opsmith::portable
