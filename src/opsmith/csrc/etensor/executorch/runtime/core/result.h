// A value, or why there is none.
#pragma once

#include <utility>
#include <variant>

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/platform/assert.h>

namespace executorch::runtime {

template <class T>
class Result final {
 public:
  using value_type = T;

  Result(Error error) : held_(std::in_place_index<1>, error == Error::Ok ? Error::Internal : error) {}
  Result(const T& value) : held_(std::in_place_index<0>, value) {}
  Result(T&& value) : held_(std::in_place_index<0>, std::move(value)) {}
  Result(Result&&) noexcept = default;
  Result& operator=(Result&&) = delete;

  ET_NODISCARD bool ok() const { return held_.index() == 0; }
  ET_NODISCARD Error error() const { return ok() ? Error::Ok : *std::get_if<1>(&held_); }

  T& get() {
    ET_CHECK(ok());
    return *std::get_if<0>(&held_);
  }
  const T& get() const {
    ET_CHECK(ok());
    return *std::get_if<0>(&held_);
  }
  T& operator*() & { return get(); }
  const T& operator*() const& { return get(); }
  T* operator->() { return &get(); }
  const T* operator->() const { return &get(); }

 private:
  std::variant<T, Error> held_;
};

}  // namespace executorch::runtime

namespace torch::executor {
using ::executorch::runtime::Result;
}  // namespace torch::executor

// The value of `result`; returns its error where it has none. A message that is logged then may follow.
#define ET_UNWRAP(result, ...)             \
  ({                                       \
    auto opsmith_result = (result);        \
    if (!opsmith_result.ok()) {            \
      OPSMITH_LOG_MESSAGE("" __VA_ARGS__); \
      return opsmith_result.error();       \
    }                                      \
    std::move(*opsmith_result);            \
  })

// Defines `variable` as the value of `result`, or returns as ET_UNWRAP does.
#define ET_ASSIGN_OR_RETURN(variable, result, ...) auto variable = ET_UNWRAP(result, ##__VA_ARGS__)
