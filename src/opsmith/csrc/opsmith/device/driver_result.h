// The driver's results with OPSMITH_OK and its texts of failures, checked: either may be NULL, of a driver
// with a mistake.
#pragma once

#include <opsmith_driver.h>

#include <string>

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

namespace opsmith {

// "OPSMITH_FAILED"
const char* status_name(opsmith_status status);

// The driver's text for this thread's last failure.
std::string last_error();

namespace detail {
[[noreturn]] void throw_null_result(const char* entry, c10::DeviceIndex device);
}

// `given`, which `entry` of the driver wrote and called right. Throws c10::AcceleratorError for nullptr,
// which would be taken for a tensor without elements, a stream that is not made yet or an event not recorded.
template <class T>
T* checked_result(T* given, const char* entry, c10::DeviceIndex device) {
  if (C10_UNLIKELY(given == nullptr)) {
    detail::throw_null_result(entry, device);
  }
  return given;
}

}  // namespace opsmith
