// How drivers in C++ fail: inside by the exception Failure, at the table by a status and the text of
// last_error().
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

#include <opsmith_driver.h>

namespace driver_parts {

class Failure : public std::runtime_error {
 public:
  Failure(opsmith_status status, const std::string& text) : std::runtime_error(text), status(status) {}
  const opsmith_status status;
};

// Keeps the text for this thread's last_error().
opsmith_status remember(opsmith_status status, const char* text) noexcept;
const char* last_error() noexcept;

// Runs an entry's body and keeps its exceptions on this side of the C boundary.
template <class Body>
opsmith_status entry(Body&& body) noexcept {
  try {
    body();
    return OPSMITH_OK;
  } catch (const Failure& failure) {
    return remember(failure.status, failure.what());
  } catch (const std::exception& error) {
    return remember(OPSMITH_FAILED, error.what());
  }
}

// The meaning of a fault of opsmith_compute.h.
const char* fault_text(int fault) noexcept;

// Throws for what must not be null.
template <class Object>
Object* given(Object* object, const char* what) {
  if (object == nullptr) {
    throw Failure(OPSMITH_INVALID_ARGUMENT, std::string("the ") + what + " is null");
  }
  return object;
}

}  // namespace driver_parts
