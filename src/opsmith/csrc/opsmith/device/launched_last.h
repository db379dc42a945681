// The operator launched last, and whether launches block: the errors of drivers tell of both.
#pragma once

#include <opsmith/device/device.h>

#include <array>
#include <atomic>

namespace opsmith {

namespace detail {
inline constinit bool launches_block = false;
inline constinit std::array<std::atomic<const char*>, kMostDevices> launched_last{};
}  // namespace detail

// Whether OPSMITH_LAUNCH_BLOCKING has every kernel done before its call returns.
inline bool launches_block() {
  return detail::launches_block;
}

// The operator that launched a kernel on `device` last; null where none has.
inline const char* launched_last(c10::DeviceIndex device) {
  return device >= 0 ? detail::launched_last[device].load(std::memory_order_relaxed) : nullptr;
}

}  // namespace opsmith
