// Span: elements that lie elsewhere, which may be written.
#pragma once

#include <cstddef>

#include <executorch/runtime/platform/assert.h>

namespace executorch::runtime {

template <class T>
class Span final {
 public:
  using iterator = T*;
  using size_type = size_t;
  using value_type = T;

  constexpr Span() noexcept = default;
  constexpr Span(T& element) : data_(&element), size_(1) {}
  Span(T* data, size_t size) : data_(data), size_(size) { ET_DCHECK(data_ != nullptr || size_ == 0); }
  Span(T* begin, T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  template <size_t kSize>
  constexpr Span(T (&array)[kSize]) : data_(array), size_(kSize) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  iterator begin() const noexcept { return data_; }
  iterator end() const noexcept { return data_ + size_; }
  T& operator[](size_t index) const { return data_[index]; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace executorch::runtime

namespace torch::executor {
using ::executorch::runtime::Span;
}  // namespace torch::executor
