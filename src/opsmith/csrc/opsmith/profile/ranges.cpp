// See ranges.h.
#include <opsmith/profile/ranges.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>

#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace opsmith::profile {
namespace {

constinit thread_local int64_t open_ranges = 0;

// A range around each operator and each node of the backward that this thread runs, or autograd for it.
thread_local std::optional<at::CallbackHandle> emitting;

struct Opened final : at::ObserverContext {};

// Not for opsmith's own, by which a program opens and closes ranges.
std::unique_ptr<at::ObserverContext> open_range(const at::RecordFunction& function) {
  if (std::string_view(function.name()).starts_with("opsmith::")) {
    return nullptr;
  }
  push_range(function.name());
  return std::make_unique<Opened>();
}

void close_range(const at::RecordFunction& /*function*/, at::ObserverContext* opened) {
  if (opened != nullptr) {
    pop_range();
  }
}

void emit_ranges(bool on) {
  if (emitting.has_value()) {
    at::removeCallback(*emitting);
    emitting.reset();
  }
  if (on) {
    emitting =
        at::addThreadLocalCallback(at::RecordFunctionCallback(&open_range, &close_range)
                                       .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                                at::RecordScope::USER_SCOPE}));
  }
}

}  // namespace

int64_t push_range(const char* text) {
  if (driver().range_push != nullptr) {
    check(driver().range_push(text), "open a range", current_device());
  }
  return open_ranges++;
}

int64_t pop_range() {
  TORCH_CHECK(open_ranges > 0, "range_pop() closes what range_push() opened, and no range is open in this ",
              "thread. Use `with range(...):`, which closes its own.");
  if (driver().range_pop != nullptr) {
    check(driver().range_pop(), "close a range", current_device());
  }
  return --open_ranges;
}

void mark(const char* text) {
  push_range(text);
  pop_range();
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("range_push(str text) -> int", [](const std::string& text) { return push_range(text.c_str()); });
  m.def("range_pop() -> int", &pop_range);
  m.def("emit_ranges(bool on) -> ()", &emit_ranges);
  m.def("mark(str text) -> ()", [](const std::string& text) { mark(text.c_str()); });
}

}  // namespace opsmith::profile
