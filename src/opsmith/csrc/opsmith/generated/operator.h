// Calls of an operator that torch's headers do not know, in the form of torch's own at::_ops::add_Tensor:
// what is written for one serves the other.
//
//   using Scale = opsmith::Operator<"myop::scale", "", at::Tensor(const at::Tensor&, double)>;
//   at::Tensor scaled = Scale::call(tensor, 2.0);
#pragma once

#include <opsmith/generated/literal.h>

#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>

namespace opsmith {

template <Literal kName, Literal kOverload, class Schema>
struct Operator;

template <Literal kName, Literal kOverload, class Result, class... Parameters>
struct Operator<kName, kOverload, Result(Parameters...)> {
  using schema = Result(Parameters...);
  static constexpr const char* name = kName.text;
  static constexpr const char* overload_name = kOverload.text;

  static Result call(Parameters... arguments) {
    return handle().call(std::forward<Parameters>(arguments)...);
  }

  static Result redispatch(c10::DispatchKeySet keys, Parameters... arguments) {
    return handle().redispatch(keys, std::forward<Parameters>(arguments)...);
  }

 private:
  static const c10::TypedOperatorHandle<schema>& handle() {
    static const auto found =
        c10::Dispatcher::singleton().findSchemaOrThrow(name, overload_name).typed<schema>();
    return found;
  }
};

}  // namespace opsmith
