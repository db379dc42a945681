// Indices as operators read them: Long or Int, checked against the size that they index, negative ones where
// an operator counts them from the end.
#pragma once

#include <algorithm>
#include <atomic>
#include <cinttypes>

#include "../common/dtypes.h"
#include "../common/short_copy.h"

namespace opsmith::portable {

// An index tensor's elements, and the first wrong one that any thread has met.
class Indices {
 public:
  explicit Indices(const Tensor& t)
      : data_(t.const_data_ptr()), narrow_(t.scalar_type() == ScalarType::Int) {}

  static bool accepts(KernelRuntimeContext& context, const char* name, const Tensor& t) {
    OPSMITH_CHECK(context, t.scalar_type() == ScalarType::Long || t.scalar_type() == ScalarType::Int,
                  InvalidArgument, false, "%s(): Expected dtype int32/int64 for index, but got %s", name,
                  name_of(t.scalar_type()));
    return true;
  }

  int64_t at(int64_t offset) const {
    return narrow_ ? static_cast<const int32_t*>(data_)[offset] : static_cast<const int64_t*>(data_)[offset];
  }

  // f(place, index) for the places from `begin` to `end`.
  template <class F>
  void read(int64_t begin, int64_t end, const F& f) const {
    const auto read_all = [&](const auto* indices) {
      for (int64_t place = begin; place < end; ++place) {
        f(place, static_cast<int64_t>(indices[place]));
      }
    };
    if (narrow_) {
      read_all(static_cast<const int32_t*>(data_));
    } else {
      read_all(static_cast<const int64_t*>(data_));
    }
  }

 private:
  const void* data_;
  bool narrow_;
};

// Copies the rows of `bytes` that the indices from `begin` to `end` name. Pitches are in bytes.
inline void copy_rows(const Indices& indices, int64_t begin, int64_t end, int64_t bytes, const char* from,
                      int64_t from_pitch, char* to, int64_t to_pitch) {
  constexpr int64_t kAhead = 8;  // rows that are fetched, since the processor would not foresee them
  for (int64_t i = begin; i < end; ++i) {
    __builtin_prefetch(from + indices.at(std::min(i + kAhead, end - 1)) * from_pitch);
    copy_short(to + i * to_pitch, from + indices.at(i) * from_pitch, bytes);
  }
}

// Checks indices in threads: they note a wrong one, and the kernel rejects the call when they are done.
class IndexCheck {
 public:
  explicit IndexCheck(int64_t size) : size_(size) {}

  // `index`, or 0 where it is out of range, with that noted.
  int64_t checked(int64_t index) {
    if (index >= 0 && index < size_) {
      return index;
    }
    note(index);
    return 0;
  }
  // The same, counted from the end where it is negative.
  int64_t wrapped(int64_t index) {
    if (index >= -size_ && index < size_) {
      return index < 0 ? index + size_ : index;
    }
    note(index);
    return 0;
  }
  // Notes one of the first `count` of `indices` that is out of range.
  void check(const Indices& indices, int64_t count) {
    bool wrong = false;
    indices.read(0, count, [&](int64_t, int64_t index) {
      wrong |= static_cast<uint64_t>(index) >= static_cast<uint64_t>(size_);
    });
    if (wrong) {
      indices.read(0, count, [&](int64_t, int64_t index) { checked(index); });
    }
  }
  bool found_wrong() const { return wrong_.load(std::memory_order_relaxed); }
  int64_t wrong() const { return index_.load(std::memory_order_relaxed); }

  // Rejects the call where an index was wrong: ATen's text for gather, scatter, index and index_put, of which
  // the last two raise IndexError.
  bool passed(KernelRuntimeContext& context, int64_t dim, Error error) const {
    return !found_wrong() ||
           reject(context, error,
                  "index %" PRId64 " is out of bounds for dimension %" PRId64 " with size %" PRId64, wrong(),
                  dim, size_);
  }

 private:
  void note(int64_t index) {
    if (!wrong_.exchange(true)) {
      index_.store(index);
    }
  }

  int64_t size_;
  std::atomic<bool> wrong_{false};
  std::atomic<int64_t> index_{0};
};

}  // namespace opsmith::portable
