// Operators that move elements. Where PyTorch's meta kernels say other things than its CPU does, of empty
// Tensors and of channels-last ones, these say what the CPU does.
#include "meta_tensors.h"
#include "result_sizes.h"

#include <ATen/InferSize.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/Padding.h>
#include <ATen/native/TypeProperties.h>
#include <c10/util/irange.h>

#include <opsmith/torch_version.h>

#include <optional>

namespace opsmith::meta_functions {
namespace {

// A copy of what `view` shows.
at::Tensor copy_of(const at::Tensor& view) {
  return contiguous(view.sizes(), view.scalar_type());
}

}  // namespace

// The views check their arguments, and have meta kernels in C++.
at::Tensor alias_copy(const at::Tensor& self) {
  return copy_of(self);
}

at::Tensor permute_copy(const at::Tensor& self, at::IntArrayRef dims) {
  return copy_of(self.permute(dims));
}

at::Tensor transpose_copy(const at::Tensor& self, int64_t dim0, int64_t dim1) {
  return copy_of(self.transpose(dim0, dim1));
}

at::Tensor t_copy(const at::Tensor& self) {
  return copy_of(self.t());
}

at::Tensor expand_copy(const at::Tensor& self, at::IntArrayRef size, bool implicit) {
  return copy_of(self.expand(size, implicit));
}

at::Tensor slice_copy(const at::Tensor& self, int64_t dim, std::optional<int64_t> start,
                      std::optional<int64_t> end, int64_t step) {
  return copy_of(self.slice(dim, start, end, step));
}

at::Tensor narrow_copy(const at::Tensor& self, int64_t dim, int64_t start, int64_t length) {
  return copy_of(self.narrow(dim, start, length));
}

at::Tensor select_copy(const at::Tensor& self, int64_t dim, int64_t index) {
  return copy_of(self.select(dim, index));
}

at::Tensor squeeze_copy(const at::Tensor& self) {
  return copy_of(self.squeeze());
}

at::Tensor squeeze_copy_dim(const at::Tensor& self, int64_t dim) {
  return copy_of(self.squeeze(dim));
}

at::Tensor squeeze_copy_dims(const at::Tensor& self, at::IntArrayRef dims) {
  return copy_of(self.squeeze(dims));
}

at::Tensor unsqueeze_copy(const at::Tensor& self, int64_t dim) {
  return copy_of(self.unsqueeze(dim));
}

at::Tensor diagonal_copy(const at::Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  return copy_of(self.diagonal(offset, dim1, dim2));
}

at::Tensor unfold_copy(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return copy_of(self.unfold(dimension, size, step));
}

at::Tensor view_copy(const at::Tensor& self, at::IntArrayRef size) {
  return contiguous(at::infer_size_dv(size, self.numel()), self.scalar_type());
}

at::Tensor stack(at::TensorList tensors, int64_t dim) {
  TORCH_CHECK(!tensors.empty(), "stack expects a non-empty TensorList");
  const at::Tensor& first = tensors[0];
  dim = at::maybe_wrap_dim(dim, first.dim() + 1);
  for (const size_t i : c10::irange(tensors.size())) {
    TORCH_CHECK(tensors[i].sizes() == first.sizes(), "stack expects each tensor to be equal size, but got ",
                first.sizes(), " at entry 0 and ", tensors[i].sizes(), " at entry ", i);
  }
  // A concatenation, which keeps a format that all parts have: along a dimension that is split afterwards, or
  // along one that is new, the last.
  const bool splits = dim < first.dim();
  const auto part = [&](const at::Tensor& tensor) { return splits ? tensor : tensor.unsqueeze(dim); };
  const at::Tensor model = part(first);
  at::MemoryFormat format = model.suggest_memory_format();
  for (const at::Tensor& tensor : tensors) {
    if (part(tensor).suggest_memory_format() != format) {
      format = at::MemoryFormat::Contiguous;
    }
  }
  const int64_t count = static_cast<int64_t>(tensors.size());
  at::DimVector sizes(model.sizes());
  sizes[static_cast<size_t>(dim)] = value_of(Checked(model.size(dim)) * count, "stack");
  const at::Tensor joined = contiguous(sizes, at::native::result_type(tensors), format);
  if (!splits) {
    return joined;
  }
  sizes = at::DimVector(first.sizes());
  sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(dim), count);
  return joined.view(sizes);
}

// An `out` is resized without a look at the parts' formats, unless the new dimension is the last.
at::Tensor stack_out(at::TensorList tensors, int64_t dim) {
  at::Tensor result = stack(tensors, dim);
  const bool splits = at::maybe_wrap_dim(dim, result.dim()) < result.dim() - 1;
  return splits ? contiguous(result.sizes(), result.scalar_type()) : result;
}

at::Tensor roll(const at::Tensor& self, at::IntArrayRef shifts, at::IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  const bool flat = dims.empty() && shifts.size() == 1;
  TORCH_CHECK(flat || shifts.size() == dims.size(),
              "shifts and dimensions must align. shifts: ", shifts.size(), ", dims:", dims.size());
  if (self.numel() == 0 && (!flat || self.dim() == 1)) {
    return like(self);
  }
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  for (const size_t i : c10::irange(dims.size())) {
    // Each shift is a concatenation, which keeps a format that both parts have.
    const int64_t dim = at::maybe_wrap_dim(dims[i], self.dim(), /*wrap_scalar=*/false);
    if (self.dim() < 4) {
      continue;
    }
    const at::Tensor from = i == 0 ? self : contiguous(self.sizes(), self.scalar_type(), format);
    const int64_t size = self.size(dim);
    const int64_t start = (size - shifts[i] % size) % size;
    format = from.narrow(dim, start, size - start).suggest_memory_format();
    if (from.narrow(dim, 0, start).suggest_memory_format() != format) {
      format = at::MemoryFormat::Contiguous;
    }
  }
  return contiguous(self.sizes(), self.scalar_type(), format);
}

at::Tensor flip(const at::Tensor& self, at::IntArrayRef dims) {
  // Refuses dimensions that are out of range or named twice.
  static_cast<void>(at::dim_list_to_bitset(dims, static_cast<size_t>(self.dim())));
  return like(self);
}

at::Tensor pixel_shuffle(const at::Tensor& self, int64_t factor) {
  TORCH_CHECK(self.dim() >= 3,
              "pixel_shuffle expects input to have at least 3 dimensions, but got input with ", self.dim(),
              " dimension(s)");
  TORCH_CHECK(factor > 0, "pixel_shuffle expects a positive upscale_factor, but got ", factor);
  const int64_t square = value_of(Checked(factor) * factor, "pixel_shuffle");
  TORCH_CHECK(self.size(-3) % square == 0,
              "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
              "upscale_factor, but input.size(-3)=",
              self.size(-3), " is not divisible by ", square);
  at::DimVector sizes(self.sizes());
  const size_t rank = sizes.size();
  sizes[rank - 3] /= square;
  sizes[rank - 2] = value_of(Checked(sizes[rank - 2]) * factor, "pixel_shuffle");
  sizes[rank - 1] = value_of(Checked(sizes[rank - 1]) * factor, "pixel_shuffle");
  return contiguous(sizes, self.scalar_type(), self.suggest_memory_format());
}

at::Tensor pixel_unshuffle(const at::Tensor& self, int64_t factor) {
  TORCH_CHECK(self.dim() >= 3,
              "pixel_unshuffle expects input to have at least 3 dimensions, but got input with ", self.dim(),
              " dimension(s)");
  TORCH_CHECK(factor > 0, "pixel_unshuffle expects a positive downscale_factor, but got ", factor);
  TORCH_CHECK(self.size(-2) % factor == 0,
              "pixel_unshuffle expects height to be divisible by downscale_factor, but input.size(-2)=",
              self.size(-2), " is not divisible by ", factor);
  TORCH_CHECK(self.size(-1) % factor == 0,
              "pixel_unshuffle expects width to be divisible by downscale_factor, but input.size(-1)=",
              self.size(-1), " is not divisible by ", factor);
  if (self.numel() == 0) {
    return like(self);
  }
  at::DimVector sizes(self.sizes());
  const size_t rank = sizes.size();
  sizes[rank - 3] *= factor * factor;
  sizes[rank - 2] /= factor;
  sizes[rank - 1] /= factor;
  return contiguous(sizes, self.scalar_type(), self.suggest_memory_format());
}

at::Tensor reflection_pad2d(const at::Tensor& self, at::IntArrayRef padding) {
  OPSMITH_CHECK_PADDING(self, padding, 2);
  const int64_t left = padding[0], right = padding[1], top = padding[2], bottom = padding[3];
  TORCH_CHECK(
      left < self.size(-1) && right < self.size(-1),
      "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding (",
      left, ", ", right, ") at dimension ", self.dim() - 1, " of input ", self.dim());
  TORCH_CHECK(
      top < self.size(-2) && bottom < self.size(-2),
      "Argument #6: Padding size should be less than the corresponding input dimension, but got: padding (",
      top, ", ", bottom, ") at dimension ", self.dim() - 2, " of input ", self.dim());
  at::DimVector sizes(self.sizes());
  const auto padded = [&](int64_t dim, int64_t before, int64_t behind) {
    return value_of(Checked(self.size(dim)) + before + behind, "reflection_pad2d");
  };
  sizes[sizes.size() - 2] = padded(-2, top, bottom);
  sizes[sizes.size() - 1] = padded(-1, left, right);
  TORCH_CHECK(sizes[sizes.size() - 1] >= 1 || sizes[sizes.size() - 2] >= 1, "input (H: ", self.size(-2),
              ", W: ", self.size(-1), ") is too small. Calculated output H: ", sizes[sizes.size() - 2],
              " W: ", sizes[sizes.size() - 1]);
  return contiguous(sizes, self.scalar_type(), self.suggest_memory_format());
}

}  // namespace opsmith::meta_functions
