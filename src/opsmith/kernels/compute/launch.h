// From a kernel's source to work on the current stream: sources are compiled once for each device and set of
// definitions, arguments are packed for the driver's own launch (opsmith_compute.h).
#pragma once

#include <opsmith_compute.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

#include <ATen/core/TensorBase.h>
#include <c10/util/Exception.h>

namespace opsmith::compute {

// Work-groups, and work-items in each.
struct Grid {
  std::array<size_t, 3> groups{1, 1, 1};
  std::array<size_t, 3> items{1, 1, 1};
};

// The limits of the current device.
const opsmith_compute_limits& limits();

// Numbers in the order of a kernel's struct of longs, where the lengths of its arrays vary.
class Words {
 public:
  Words& add(int64_t word) {
    if (C10_UNLIKELY(used_ == words_.size())) {
      refuse();
    }
    words_[used_++] = word;
    return *this;
  }
  // value(0), value(1), ...; where `count` is 0, `for_none`.
  template <class Value>
  Words& add_each(size_t count, const Value& value, int64_t for_none) {
    for (size_t i = 0; i < count; ++i) {
      add(value(i));
    }
    return count > 0 ? *this : add(for_none);
  }

  const int64_t* data() const { return words_.data(); }
  size_t bytes() const { return used_ * sizeof(int64_t); }

 private:
  [[noreturn]] static void refuse();

  std::array<int64_t, 112> words_;  // an argument of this size is within what every device takes
  size_t used_ = 0;
};

// The arguments of one launch, in the order of the kernel's parameters. Values are copied.
class Arguments {
 public:
  // For a parameter BUFFER(type, name). Undefined tensors are null there.
  Arguments& tensor(const at::TensorBase& tensor) {
    return address(tensor.defined() ? tensor.const_data_ptr() : nullptr);
  }
  Arguments& address(const void* device_address) {
    entries_[next()] = {device_address, 0};
    return *this;
  }
  template <class T>
  Arguments& value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return bytes(&value, sizeof(T));
  }
  Arguments& bytes(const void* value, size_t size) {
    TORCH_INTERNAL_ASSERT(used_ + size <= sizeof(bytes_));
    std::memcpy(bytes_ + used_, value, size);
    entries_[next()] = {bytes_ + used_, size};
    used_ += (size + 7) / 8 * 8;
    return *this;
  }

  Arguments& words(const Words& words) { return bytes(words.data(), words.bytes()); }

  const opsmith_compute_argument* data() const { return entries_.data(); }
  int count() const { return count_; }

  Arguments() = default;
  Arguments(const Arguments&) = delete;  // entries point into it
  Arguments& operator=(const Arguments&) = delete;

 private:
  size_t next() {
    TORCH_INTERNAL_ASSERT(static_cast<size_t>(count_) < entries_.size());
    return static_cast<size_t>(count_++);
  }

  std::array<opsmith_compute_argument, 40> entries_;
  int count_ = 0;
  alignas(16) std::byte bytes_[1024];
  size_t used_ = 0;
};

// The kernel `run` of `source` behind `definitions` and `prelude`. The two sources are literals, and with the
// definitions the key under which the kernel is found again.
opsmith_compute_kernel kernel(const char* source, const std::string& definitions, const char* prelude = "");

// The kernel `run` of `text`, which is compiled now.
opsmith_compute_kernel kernel_of(const std::string& text);

// Queues it on the current stream of the current device. `name` is for errors.
void launch(const char* name, opsmith_compute_kernel kernel, const Arguments& arguments, const Grid& grid);

// So many items in groups of a size that suits the device, for kernels that leave out what is above `count`.
Grid linear(int64_t count);

// The same where each item has much to do: on a CPU in groups of which each core gets some.
Grid spread(int64_t count);

// Items for `rows` times `count` elements, in two dimensions; short rows share a group. A kernel loops over
// the rows from its GLOBAL_ITEM(1) on.
Grid plane(int64_t count, int64_t rows);

inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace opsmith::compute
