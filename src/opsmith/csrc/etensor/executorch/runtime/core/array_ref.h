// ArrayRef: elements that lie elsewhere, which are read only.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <executorch/runtime/platform/assert.h>

namespace executorch::runtime {

template <class T>
class ArrayRef final {
 public:
  using iterator = const T*;
  using const_iterator = const T*;
  using size_type = size_t;
  using value_type = T;

  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& element) : data_(&element), size_(1) {}
  ArrayRef(const T* data, size_t size) : data_(data), size_(size) {
    ET_DCHECK(data_ != nullptr || size_ == 0);
  }
  ArrayRef(const T* begin, const T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  template <size_t kSize>
  constexpr ArrayRef(const std::array<T, kSize>& array) : data_(array.data()), size_(kSize) {}
  template <size_t kSize>
  constexpr ArrayRef(const T (&array)[kSize]) : data_(array), size_(kSize) {}

  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr iterator begin() const { return data_; }
  constexpr iterator end() const { return data_ + size_; }
  constexpr const_iterator cbegin() const { return begin(); }
  constexpr const_iterator cend() const { return end(); }

  constexpr const T& operator[](size_t index) const { return data_[index]; }
  const T& at(size_t index) const {
    ET_CHECK(index < size_);
    return data_[index];
  }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }

  bool equals(ArrayRef other) const {
    return size_ == other.size_ && std::equal(begin(), end(), other.begin());
  }
  // The `length` elements from `start` on, or all from there.
  ArrayRef slice(size_t start, size_t length) const {
    ET_CHECK(start <= size_ && length <= size_ - start);
    return {data_ + start, length};
  }
  ArrayRef slice(size_t start) const { return slice(start, size_ - start); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

template <class T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) {
  return a.equals(b);
}
template <class T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) {
  return !a.equals(b);
}

template <class T>
ArrayRef<T> makeArrayRef(const T& element) {
  return element;
}
template <class T>
ArrayRef<T> makeArrayRef(const ArrayRef<T>& elements) {
  return elements;
}
template <class T>
ArrayRef<T> makeArrayRef(const T* data, size_t size) {
  return {data, size};
}
template <class T>
ArrayRef<T> makeArrayRef(const T* begin, const T* end) {
  return {begin, end};
}
template <class T, size_t kSize>
ArrayRef<T> makeArrayRef(const std::array<T, kSize>& array) {
  return array;
}
template <class T, size_t kSize>
ArrayRef<T> makeArrayRef(const T (&array)[kSize]) {
  return array;
}

using IntArrayRef = ArrayRef<int64_t>;

}  // namespace executorch::runtime

namespace torch::executor {
using ::executorch::runtime::ArrayRef;
using ::executorch::runtime::IntArrayRef;
using ::executorch::runtime::makeArrayRef;
}  // namespace torch::executor
