// Feature maps as convolutions and pools see them: batch, channels and one to three spatial dimensions.
#pragma once

#include <cstdint>

#include <executorch/runtime/kernel/kernel_includes.h>

namespace opsmith {

constexpr int64_t kSpatial = 3;

// Strides in elements. Spatial dimensions stand at the end: missing ones, in front, have one element.
template <class T>
struct FeatureMap {
  T* data;
  int64_t batch;
  int64_t channels;
  int64_t size[kSpatial];
  int64_t batch_stride;
  int64_t channel_stride;
  int64_t stride[kSpatial];

  int64_t pixels() const { return size[0] * size[1] * size[2]; }
  int64_t planes() const { return batch * channels; }
  // Where the plane begins, planes being counted through the channels.
  int64_t plane(int64_t index) const {
    return index / channels * batch_stride + index % channels * channel_stride;
  }
};

// A tensor of (batch, channels, spatial dimensions), the batch dimension missing or not, with its elements at
// `data`.
template <class T>
FeatureMap<T> feature_map_at(T* data, const executorch::aten::Tensor& t, int64_t spatial) {
  const int64_t channel = t.dim() - spatial - 1;
  const bool batched = channel == 1;
  FeatureMap<T> map{data, batched ? t.sizes()[0] : 1,   t.sizes()[channel],
                    {},   batched ? t.strides()[0] : 0, t.strides()[channel],
                    {}};
  for (int64_t d = 0; d < kSpatial; ++d) {
    const int64_t own = d - (kSpatial - spatial);
    map.size[d] = own < 0 ? 1 : t.sizes()[channel + 1 + own];
    map.stride[d] = own < 0 ? 0 : t.strides()[channel + 1 + own];
  }
  return map;
}

// Of any dtype, by its bytes.
using ByteFeatureMap = FeatureMap<char>;

inline ByteFeatureMap feature_map_of(const executorch::aten::Tensor& t, int64_t spatial) {
  return feature_map_at(static_cast<char*>(t.mutable_data_ptr()), t, spatial);
}

// The number of a list for spatial dimension d: one number stands for all.
inline int64_t entry(executorch::aten::ArrayRef<int64_t> list, int64_t d) {
  return list.size() == 1 ? list[0] : list[static_cast<size_t>(d)];
}

inline int64_t floor_divided(int64_t a, int64_t b) {
  if (b == 1) {
    return a;  // the common stride, which needs no division
  }
  return a / b - (a % b < 0 ? 1 : 0);
}

}  // namespace opsmith
