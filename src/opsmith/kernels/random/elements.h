// The elements of a tensor, drawn: an element's place in logical order decides which numbers make it,
// whatever the tensor's strides, the number of threads and the device.
#pragma once

#include <opsmith/device/device.h>
#include <opsmith/on_host.h>
#include <opsmith/random_numbers.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "vectors.h"

namespace opsmith::random_kernels {

using Generator = std::optional<at::Generator>;

// Numbers of a part: a multiple of what is made at once, and small enough to stay in the nearest cache.
inline constexpr int64_t kPart = 8 * kNumbersAtOnce;

// Calls f(numbers, first, count) for parts of `elements` elements, each of which is made of `each` numbers, 1
// or 2. `numbers` are those of element `first` and of what follows; behind the last element's there are
// numbers up to the end of the part. Several threads call f.
template <class F>
void each_part(PhiloxNumbers taken, int64_t elements, int64_t each, const F& f) {
  const int64_t part = kPart / each;
  const int64_t parts = (elements + part - 1) / part;
  at::parallel_for(0, parts, /*grain_size=*/64, [&](int64_t begin, int64_t end) {
    std::array<uint32_t, kPart> numbers;
    for (int64_t index = begin; index < end; ++index) {
      const int64_t count = std::min(part, elements - index * part);
      const int64_t needed = (count * each + kNumbersAtOnce - 1) / kNumbersAtOnce * kNumbersAtOnce;
      philox_numbers(taken.seed, (taken.offset + static_cast<uint64_t>(index * kPart)) / 4, numbers.data(),
                     needed);
      f(numbers.data(), index * part, count);
    }
  });
}

// Where the elements of `self` are written in logical order: there, if it is contiguous.
class InOrder {
 public:
  explicit InOrder(const at::Tensor& self)
      : self_(self),
        written_(self.is_contiguous()
                     ? self
                     : at::empty(self.sizes(), self.options(), at::MemoryFormat::Contiguous)) {}

  template <class T>
  T* data() const {
    return host_data<T>(written_);
  }

  void finish() const {
    if (!written_.is_same(self_)) {
      copy_in_order(self_, written_);
    }
  }

 private:
  const at::Tensor& self_;
  at::Tensor written_;
};

// Draws self: f(numbers, out, count) writes elements of type T, each made of `each` numbers. Graphs keep f.
template <class T, class F>
void draw(const at::Tensor& self, const Generator& generator, int64_t each, const F& f) {
  const int64_t elements = self.numel();
  const PhiloxDraw drawn = draw_philox_numbers(static_cast<uint64_t>(elements * each), generator);
  const InOrder written(self);
  on_host("random numbers", [=, out = written.data<T>()] {
    each_part(drawn.numbers(), elements, each,
              [&](const uint32_t* numbers, int64_t first, int64_t count) { f(numbers, out + first, count); });
  });
  written.finish();
}

// A number of 64 bits.
inline uint64_t wide(const uint32_t* numbers) {
  return uint64_t{numbers[0]} << 32 | numbers[1];
}

// Uniform in [0, 1), and in (0, 1], in multiples of 2^-53.
inline double below_one(const uint32_t* numbers) {
  return static_cast<double>(wide(numbers) >> 11) * 0x1p-53;
}
inline double above_zero(const uint32_t* numbers) {
  return static_cast<double>((wide(numbers) >> 11) + 1) * 0x1p-53;
}

}  // namespace opsmith::random_kernels
