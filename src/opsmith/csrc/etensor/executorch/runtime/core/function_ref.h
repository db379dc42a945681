// FunctionRef: a callable that lies elsewhere, and lives at least as long.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace executorch::runtime {

template <class Function>
class FunctionRef;

template <class Returned, class... Parameters>
class FunctionRef<Returned(Parameters...)> {
 public:
  FunctionRef() = default;
  FunctionRef(std::nullptr_t) {}
  template <class Callable, std::enable_if_t<!std::is_same_v<std::decay_t<Callable>, FunctionRef> &&
                                                 std::is_invocable_r_v<Returned, Callable&, Parameters...>,
                                             int> = 0>
  FunctionRef(Callable&& callable) {
    if constexpr (std::is_function_v<std::remove_reference_t<Callable>>) {
      target_.function = reinterpret_cast<void (*)()>(&callable);
    } else {
      target_.object = const_cast<void*>(static_cast<const void*>(std::addressof(callable)));
    }
    call_ = [](Target target, Parameters... parameters) -> Returned {
      using Called = std::remove_reference_t<Callable>;
      if constexpr (std::is_function_v<Called>) {
        return reinterpret_cast<Called*>(target.function)(std::forward<Parameters>(parameters)...);
      } else {
        return (*static_cast<Called*>(target.object))(std::forward<Parameters>(parameters)...);
      }
    };
  }

  Returned operator()(Parameters... parameters) const {
    return call_(target_, std::forward<Parameters>(parameters)...);
  }
  explicit operator bool() const { return call_ != nullptr; }

 private:
  union Target {
    void* object = nullptr;
    void (*function)();
  };

  Target target_;
  Returned (*call_)(Target, Parameters...) = nullptr;
};

}  // namespace executorch::runtime
