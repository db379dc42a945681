// Kernels that generated code registers for AutogradPrivateUse1: of operators that are differentiated by a
// backward kernel, and of the in-place and out variants of differentiable ones.
//
// differentiable<Formula>() runs an operator below autograd and records a node that keeps its arguments and
// those of its results that the backward kernel takes. In the backward pass the node calls the operator that
// the kernel is registered as, with the gradients of the results, all that it kept, and which gradients are
// wanted. Formula is generated:
//
//   struct Relu {
//     using Forward = at::_ops::relu;
//     using Gradient = opsmith::Operator<"opsmith_chip::relu_backward", "", at::Tensor(...)>;
//     using Saved = std::index_sequence<0>;                   // the results that are kept
//     static constexpr const char* kName = "ReluBackward";    // grad_fn=<ReluBackward>
//     static constexpr const char* kNotTwice = "…";           // why it cannot be differentiated twice
//     static constexpr opsmith::DtypeSet kDtypes{at::kFloat};  // where the kernel does not take all:
//     static constexpr const char* kOtherDtypes = "…";        // the refusal, before the dtype
//   };
//
// Everything else follows from the two operators' C++ signatures.
#pragma once

#include <opsmith/generated/derived.h>
#include <opsmith/generated/dtype_set.h>
#include <opsmith/generated/operator.h>
#include <opsmith/autograd/saved.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

namespace opsmith {

namespace detail {

using torch::autograd::variable_list;

// ---- the Tensors of arguments and results, each optional and each element of a list counting

template <class Visit>
void each_slot(const at::Tensor& tensor, const Visit& visit) {
  visit(tensor);
}
template <class Visit>
void each_slot(const std::optional<at::Tensor>& tensor, const Visit& visit) {
  visit(tensor.has_value() ? *tensor : at::Tensor());
}
template <class Visit>
void each_slot(at::TensorList tensors, const Visit& visit) {
  for (const at::Tensor& tensor : tensors) {
    visit(tensor);
  }
}
template <class Visit>
void each_slot(const at::ITensorListRef& tensors, const Visit& visit) {
  for (const at::Tensor& tensor : tensors) {
    visit(tensor);
  }
}
template <class Visit>
void each_slot(const c10::List<std::optional<at::Tensor>>& tensors, const Visit& visit) {
  for (const std::optional<at::Tensor>& tensor : tensors) {
    each_slot(tensor, visit);
  }
}
template <class... Tensors, class Visit>
void each_slot(const std::tuple<Tensors...>& tensors, const Visit& visit) {
  std::apply([&](const auto&... each) { (each_slot(each, visit), ...); }, tensors);
}

template <class Argument>
inline constexpr bool kHoldsTensors = Saved<std::remove_cvref_t<Argument>>::kTensors;

// `visit` with each Tensor of those arguments that hold any, in order.
template <class Visit, class... Arguments>
void each_operand(const Visit& visit, const Arguments&... arguments) {
  const auto enter = [&](const auto& argument) {
    if constexpr (kHoldsTensors<decltype(argument)>) {
      each_slot(argument, visit);
    }
  };
  (enter(arguments), ...);
}

template <class... Arguments>
bool requires_grad(const Arguments&... arguments) {
  bool found = false;
  if (at::GradMode::is_enabled()) {
    each_operand([&](const at::Tensor& tensor) { found |= tensor.defined() && tensor.requires_grad(); },
                 arguments...);
  }
  return found;
}

// Raises NotImplementedError when the Tensor takes part in forward-mode differentiation.
void reject_forward_gradient(const char* operator_name, const at::Tensor& tensor);

[[noreturn]] void throw_out_requires_grad(const char* operator_name);

// The node's `number`-th result: gives it a gradient edge where its dtype has gradients.
void record_result(const NodeHandle& node, const char* operator_name, const at::Tensor& result,
                   const std::vector<at::Tensor>& operands);

// Gradients that raise `message` when they are differentiated in their turn.
variable_list not_twice(const char* message, variable_list&& gradients);

// Puts the gradient of an argument that holds Tensors into its places.
void put_gradient(variable_list& gradients, size_t& place, size_t count, const char* name,
                  at::Tensor&& gradient);
void put_gradient(variable_list& gradients, size_t& place, size_t count, const char* name,
                  std::vector<at::Tensor>&& gradient);

template <class Gradients>
struct IsTuple : std::false_type {};
template <class... Gradients>
struct IsTuple<std::tuple<Gradients...>> : std::true_type {};

template <class Schema>
struct SignatureOf;
template <class Returned, class... Parameters>
struct SignatureOf<Returned(Parameters...)> {
  using Result = Returned;
  using SavedArguments = std::tuple<Saved<std::remove_cvref_t<Parameters>>...>;
  static constexpr size_t kDifferentiable = (0 + ... + size_t{kHoldsTensors<Parameters>});
};

template <class Result>
struct ResultCount : std::integral_constant<size_t, 1> {};
template <class... Results>
struct ResultCount<std::tuple<Results...>> : std::integral_constant<size_t, sizeof...(Results)> {};

}  // namespace detail

// The node of the autograd graph behind the results of Formula::Forward.
template <class Formula>
class GradientNode final : public torch::autograd::Node {
  using Signature = detail::SignatureOf<typename Formula::Forward::schema>;
  static constexpr size_t kResults = detail::ResultCount<typename Signature::Result>::value;
  static constexpr size_t kDifferentiable = Signature::kDifferentiable;

 public:
  template <class... Arguments>
  explicit GradientNode(const Arguments&... arguments) : arguments_(std::in_place, arguments...) {
    const auto count = [this]<class Argument>(const Argument& argument) {
      if constexpr (detail::kHoldsTensors<Argument>) {
        size_t places = 0;
        detail::each_slot(argument, [&](const at::Tensor& tensor) {
          add_next_edge(tensor.defined() ? torch::autograd::impl::gradient_edge(tensor)
                                         : torch::autograd::Edge());
          ++places;
        });
        places_.push_back(places);
      }
    };
    (count(arguments), ...);
  }

  void save_results(const typename Signature::Result& results) {
    std::vector<at::Tensor> all;
    detail::each_slot(results, [&](const at::Tensor& result) { all.push_back(result); });
    [&]<size_t... kSaved>(std::index_sequence<kSaved...>) {
      (results_.emplace_back(all[kSaved], true), ...);
    }(typename Formula::Saved());
  }

  std::string name() const override { return Formula::kName; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (arguments_.has_value()) {
      std::apply([](auto&... each) { (each.release(), ...); }, *arguments_);
    }
    arguments_.reset();
    results_.clear();
  }

 protected:
  detail::variable_list apply(detail::variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(arguments_.has_value(), torch::autograd::ERR_BACKWARD_TWICE);
    detail::variable_list gradients(num_outputs());
    const std::array<bool, kDifferentiable> needs = needed();
    if (std::none_of(needs.begin(), needs.end(), [](bool need) { return need; })) {
      return gradients;
    }
    for (size_t index = 0; index < kResults; ++index) {
      if constexpr (requires { Formula::kDtypes; }) {
        TORCH_CHECK_NOT_IMPLEMENTED(!grads[index].defined() || Formula::kDtypes.has(grads[index]),
                                    Formula::kOtherDtypes, grads[index].scalar_type());
      }
      // The places of results without gradients have no metadata to make zeros of.
      if (!grads[index].defined() && !input_metadata(index).was_default_constructed()) {
        grads[index] = input_metadata(index).zeros_like();
      }
    }
    auto computed = compute(grads, needs, std::make_index_sequence<kResults>(),
                            std::make_index_sequence<Formula::Saved::size()>());
    size_t place = 0;
    size_t argument = 0;
    const auto put = [&](auto& gradient) {
      detail::put_gradient(gradients, place, places_[argument++], Formula::kName, std::move(gradient));
    };
    if constexpr (detail::IsTuple<decltype(computed)>::value) {
      std::apply([&](auto&... each) { (put(each), ...); }, computed);
    } else {
      put(computed);
    }
    return at::GradMode::is_enabled() ? detail::not_twice(Formula::kNotTwice, std::move(gradients))
                                      : gradients;
  }

 private:
  // Of each argument that holds Tensors, whether the gradient of any is asked for.
  std::array<bool, kDifferentiable> needed() const {
    std::array<bool, kDifferentiable> needs{};
    size_t edge = 0;
    for (size_t argument = 0; argument < kDifferentiable; ++argument) {
      for (size_t place = 0; place < places_[argument]; ++place, ++edge) {
        needs[argument] = needs[argument] || task_should_compute_output(edge);
      }
    }
    return needs;
  }

  template <size_t... kGrads, size_t... kSaved>
  auto compute(const detail::variable_list& grads, const std::array<bool, kDifferentiable>& needs,
               std::index_sequence<kGrads...>, std::index_sequence<kSaved...>) {
    const NodeHandle node = getptr();
    const std::array<at::Tensor, sizeof...(kSaved)> results{results_[kSaved].unpack(node)...};
    return std::apply(
        [&](const auto&... saved) {
          std::optional<at::AutoDispatchBelowADInplaceOrView> below;
          if (!at::GradMode::is_enabled()) {
            below.emplace();
          }
          return Formula::Gradient::call(grads[kGrads]..., saved.unpack(node)..., results[kSaved]..., needs);
        },
        *arguments_);
  }

  std::mutex mutex_;
  std::optional<typename Signature::SavedArguments> arguments_;
  std::vector<torch::autograd::SavedVariable> results_;
  std::vector<size_t> places_;
};

// Runs Formula::Forward below autograd and makes its results differentiable.
template <class Formula, class... Arguments>
auto differentiable(c10::DispatchKeySet keys, const Arguments&... arguments) {
  using Forward = typename Formula::Forward;
  detail::each_operand(
      [](const at::Tensor& tensor) { detail::reject_forward_gradient(Forward::name, tensor); }, arguments...);
  NodePtr<GradientNode<Formula>> node;
  if (detail::requires_grad(arguments...)) {
    node = make_node<GradientNode<Formula>>(arguments...);
  }
  auto results = [&] {
    const at::AutoDispatchBelowADInplaceOrView below;
    return Forward::redispatch(keys & c10::after_autograd_keyset, arguments...);
  }();
  if (node) {
    std::vector<at::Tensor> operands;
    detail::each_operand([&](const at::Tensor& tensor) { operands.push_back(tensor); }, arguments...);
    detail::each_slot(results, [&](const at::Tensor& result) {
      detail::record_result(node, Forward::name, result, operands);
    });
    node->save_results(results);
  }
  return results;
}

// An in-place operator through its functional variant, which has a gradient of its own. That one may keep its
// arguments, so where a gradient is needed it gets a copy of the self that is overwritten here.
template <class Functional, class... Arguments>
at::Tensor& inplace_by_copy(const char* operator_name, at::Tensor& self, const Arguments&... arguments) {
  const at::Tensor operand = detail::requires_grad(self, arguments...) ? at::clone(self) : self;
  write_inplace(operator_name, Functional::call(operand, arguments...), self);
  return self;
}

// The same where the device has an in-place kernel, which serves whatever needs no gradient.
template <class Inplace, class Functional, class... Arguments>
at::Tensor& inplace_or_copy(c10::DispatchKeySet keys, const char* operator_name, at::Tensor& self,
                            const Arguments&... arguments) {
  if (detail::requires_grad(self, arguments...)) {
    return inplace_by_copy<Functional>(operator_name, self, arguments...);
  }
  const at::AutoDispatchBelowAutograd below;
  return Inplace::redispatch(keys & c10::after_autograd_keyset, self, arguments...);
}

// An out variant: raises when an argument requires a gradient, as PyTorch's own do.
template <class Out, class... Arguments>
decltype(auto) out_without_gradient(c10::DispatchKeySet keys, const char* operator_name,
                                    Arguments&... arguments) {
  if (detail::requires_grad(arguments...)) {
    detail::throw_out_requires_grad(operator_name);
  }
  const at::AutoDispatchBelowAutograd below;
  return Out::redispatch(keys & c10::after_autograd_keyset, arguments...);
}

// A Tensor like the gradient of an argument, for the gradient operator's kernel for the meta device.
inline at::Tensor gradient_like(const at::Tensor& argument, bool needed) {
  return needed && argument.defined() ? at::empty_like(argument) : at::Tensor();
}
inline at::Tensor gradient_like(const std::optional<at::Tensor>& argument, bool needed) {
  return argument.has_value() ? gradient_like(*argument, needed) : at::Tensor();
}
template <class Tensors>
  requires(!std::is_convertible_v<const Tensors&, std::optional<at::Tensor>>)
std::vector<at::Tensor> gradient_like(const Tensors& arguments, bool needed) {
  std::vector<at::Tensor> gradients;
  detail::each_slot(arguments,
                    [&](const at::Tensor& each) { gradients.push_back(gradient_like(each, needed)); });
  return gradients;
}

}  // namespace opsmith
