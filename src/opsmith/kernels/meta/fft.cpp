// Discrete Fourier transforms: the strides of PyTorch's results on the CPU, which differ with the library
// that computes them.
#include "meta_tensors.h"

#include <ATen/Context.h>

#include <algorithm>
#include <numeric>

namespace opsmith::meta_functions {
namespace {

void check_dims(const at::Tensor& self, at::IntArrayRef dims) {
  for (const int64_t dim : dims) {
    TORCH_CHECK_INDEX(dim >= 0 && dim < self.dim(),
                      "a transform's dimensions are counted from the front: ", dim,
                      " is none of a Tensor of ", self.dim());
  }
}

bool is_among(at::IntArrayRef dims, int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

// `dims`, those with larger strides first; of `kept` ones at the end, the order stays.
at::DimVector by_strides(const at::Tensor& self, at::IntArrayRef dims, int64_t kept) {
  at::DimVector sorted(dims);
  std::sort(sorted.begin(), sorted.end() - kept,
            [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
  return sorted;
}

// A result of `sizes` of a transform of `self` along `dims`: MKL's lies with these innermost, in their order,
// and the others by self's strides. Other libraries' are contiguous.
at::Tensor transformed(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef dims,
                       at::ScalarType dtype) {
  if (!at::hasMKL()) {
    return contiguous(sizes, dtype);
  }
  at::DimVector order(self.dim());
  std::iota(order.begin(), order.end(), 0);
  // Not stable, as PyTorch's: the order of equal strides comes of it.
  const auto batch_end =
      std::partition(order.begin(), order.end(), [&](int64_t dim) { return !is_among(dims, dim); });
  std::sort(order.begin(), batch_end, [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
  std::copy(dims.begin(), dims.end(), batch_end);
  at::DimVector strides(self.dim());
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = stride;
    stride *= sizes[*dim];
  }
  return at::detail::empty_strided_meta(sizes, strides, dtype);
}

at::DimVector with_size(const at::Tensor& self, int64_t dim, int64_t size) {
  at::DimVector sizes(self.sizes());
  sizes[dim] = size;
  return sizes;
}

}  // namespace

at::Tensor fft_c2c(const at::Tensor& self, at::IntArrayRef dims, int64_t /*normalization*/,
                   bool /*forward*/) {
  check_dims(self, dims);
  return dims.empty() ? like(self)
                      : transformed(self, self.sizes(), by_strides(self, dims, 0), self.scalar_type());
}

at::Tensor fft_r2c(const at::Tensor& self, at::IntArrayRef dims, int64_t /*normalization*/, bool onesided) {
  check_dims(self, dims);
  TORCH_CHECK(!dims.empty(), "_fft_r2c: no dimension is transformed");
  const int64_t length = self.size(dims.back());
  return transformed(self, with_size(self, dims.back(), onesided ? length / 2 + 1 : length),
                     by_strides(self, dims, 1), at::toComplexType(self.scalar_type()));
}

at::Tensor fft_c2r(const at::Tensor& self, at::IntArrayRef dims, int64_t normalization,
                   int64_t last_dim_size) {
  check_dims(self, dims);
  TORCH_CHECK(!dims.empty(), "_fft_c2r: no dimension is transformed");
  const int64_t last = dims.back();
  TORCH_CHECK(last_dim_size >= 1, "Invalid number of data points (", last_dim_size, ") specified");
  TORCH_CHECK(self.size(last) >= last_dim_size / 2 + 1, "_fft_c2r: ", last_dim_size / 2 + 1,
              " numbers are needed for ", last_dim_size, " results, and there are ", self.size(last));
  // The other dimensions are transformed first, to complex numbers.
  const at::Tensor& lines =
      dims.size() > 1 ? fft_c2c(self, dims.slice(0, dims.size() - 1), normalization, false) : self;
  return transformed(lines, with_size(self, last, last_dim_size), last,
                     at::toRealValueType(self.scalar_type()));
}

}  // namespace opsmith::meta_functions
