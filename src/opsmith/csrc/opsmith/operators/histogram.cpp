// Histograms of integers, made of the device's own operators. See histogram.h.
#include <opsmith/operators/histogram.h>

#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/bincount.h>

#include <limits>

namespace opsmith {

at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  TORCH_CHECK(bins > 0, "torch.histc(): bins must be > 0, but got ", bins, " for dimension 0");
  const at::Tensor values = self.reshape(-1).to(at::kLong);
  int64_t lowest = min.to<int64_t>();
  int64_t highest = max.to<int64_t>();
  if (lowest == highest && values.numel() > 0) {
    const auto [least, greatest] = at::aminmax(values);
    lowest = least.item<int64_t>();
    highest = greatest.item<int64_t>();
  }
  if (lowest == highest) {
    lowest -= lowest > std::numeric_limits<int64_t>::min();
    highest += highest < std::numeric_limits<int64_t>::max();
  }
  TORCH_CHECK(lowest < highest, "torch.histc(): max must be larger than min, but got min ", lowest,
              " and max ", highest);
  int64_t width = 0;
  int64_t scaled = 0;
  TORCH_CHECK(
      !__builtin_sub_overflow(highest, lowest, &width) && !__builtin_mul_overflow(width, bins, &scaled),
      "torch.histc(): the range from ", lowest, " to ", highest, " in ", bins,
      " bins is more than 64-bit integers can count\n  remedy: count self.double()");
  const at::Tensor counted = values.masked_select(values.ge(lowest).logical_and_(values.le(highest)));
  // The greatest value belongs to the last bin.
  const at::Tensor bin = counted.sub(lowest).mul_(bins).div_(width, "trunc").clamp_max_(bins - 1);
  return at::bincount(bin, /*weights=*/{}, /*minlength=*/bins).to(self.scalar_type());
}

at::Tensor& histc_out(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max,
                      at::Tensor& out) {
  const at::Tensor counts = opsmith::histc(self, bins, min, max);
  at::native::resize_output(out, counts.sizes());
  return out.copy_(counts);
}

}  // namespace opsmith
