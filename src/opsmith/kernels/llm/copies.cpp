// Copies: llama::fallback, where a model is cut into parts, and preprocess::tile_crop, an image as tiles.
#include <cstring>

#include "../common/dtypes.h"
#include "../common/resize.h"

namespace opsmith::llm::native {

Tensor& fallback_out(KernelRuntimeContext& context, const Tensor& input, Tensor& output) {
  if (same_dtype(context, input, output) && resize_like(context, output, input) &&
      are_contiguous(context, {&input, &output}) && input.nbytes() > 0) {
    std::memcpy(output.mutable_data_ptr(), input.const_data_ptr(), input.nbytes());
  }
  return output;
}

// [channels, height, width] → [tiles, channels, tile_size, tile_size], the tiles of the first row first.
Tensor& tile_crop_out(KernelRuntimeContext& context, const Tensor& input, int64_t tile_size, Tensor& out) {
  OPSMITH_CHECK(context, input.dim() == 3, InvalidArgument, out,
                "tile_crop: an image is [channels, height, width], not of %d dimensions",
                static_cast<int>(input.dim()));
  const int64_t channels = input.sizes()[0], height = input.sizes()[1], width = input.sizes()[2];
  OPSMITH_CHECK(context, tile_size > 0 && height % tile_size == 0 && width % tile_size == 0, InvalidArgument,
                out, "tile_crop: tiles of %" PRId64 " do not divide an image of %" PRId64 " x %" PRId64,
                tile_size, height, width);
  const int64_t rows = height / tile_size, columns = width / tile_size;
  if (!same_dtype(context, input, out) ||
      !resize(context, out, {rows * columns, channels, tile_size, tile_size}) ||
      !are_contiguous(context, {&input, &out}) || out.numel() == 0) {
    return out;
  }
  const size_t line = static_cast<size_t>(tile_size) * input.element_size();
  const auto* const from = static_cast<const char*>(input.const_data_ptr());
  char* to = static_cast<char*>(out.mutable_data_ptr());
  for (int64_t tile = 0; tile < rows * columns; ++tile) {
    const int64_t top = tile / columns * tile_size, left = tile % columns;
    for (int64_t channel = 0; channel < channels; ++channel) {
      for (int64_t y = top; y < top + tile_size; ++y, to += line) {
        std::memcpy(to, from + ((channel * height + y) * columns + left) * line, line);
      }
    }
  }
  return out;
}

}  // namespace opsmith::llm::native
