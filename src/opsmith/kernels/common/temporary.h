// Memory that a kernel needs while it runs.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "checked_sizes.h"
#include "checks.h"

namespace opsmith {

// Elements of T, without values, which stands for their address: null where the call was rejected. The
// runtime's memory lives until the kernel returns, the heap's as long as any copy of this.
template <class T>
class Temporary {
 public:
  Temporary() = default;
  explicit Temporary(T* elements, std::shared_ptr<void> owner = nullptr)
      : elements_(elements), owner_(std::move(owner)) {}

  operator T*() const& { return elements_; }  // NOLINT: it stands for its address
  operator T*() const&& = delete;             // its memory would not outlive the statement
  T* get() const { return elements_; }

 private:
  T* elements_ = nullptr;
  std::shared_ptr<void> owner_;
};

// `count` elements from the runtime, aligned to a cache line, or from the heap where the runtime was given
// nothing to take them from; null, with the call rejected, where there are not so many, or no such number.
template <class T>
Temporary<T> temporary(KernelRuntimeContext& context, Checked count) {
  constexpr std::align_val_t kLine{64};
  const Checked bytes = count * static_cast<int64_t>(sizeof(T));
  if (!bytes.fits() || bytes.value() < 0) {
    reject(context, Error::MemoryAllocationFailed, "temporary memory goes beyond 64 bits");
    return {};
  }
  const size_t size = std::max(static_cast<size_t>(bytes.value()), sizeof(T));
  const auto memory = context.allocate_temp(size, static_cast<size_t>(kLine));
  if (memory.ok()) {
    return Temporary<T>(static_cast<T*>(memory.get()));
  }
  if (memory.error() == Error::NotFound) {
    if (void* const own = ::operator new(size, kLine, std::nothrow)) {
      return Temporary<T>(static_cast<T*>(own),
                          std::shared_ptr<void>(own, [](void* p) { ::operator delete(p, kLine); }));
    }
  }
  reject(context, memory.error(), "no temporary memory for %" PRId64 " elements of %zu bytes", count.value(),
         sizeof(T));
  return {};
}

}  // namespace opsmith
