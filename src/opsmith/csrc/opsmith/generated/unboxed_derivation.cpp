// The signatures that have an unboxed path. See unboxed_derivation.h.
#include <opsmith/generated/unboxed_derivation.h>
#include <opsmith/fallback/written_argument.h>

#include <ATen/core/jit_type.h>

#include <array>
#include <string>
#include <type_traits>
#include <unordered_map>

namespace opsmith {
namespace {

UnboxedArgument argument(const at::Tensor& tensor) {
  return {&tensor, nullptr};
}
UnboxedArgument argument(const at::Scalar& number) {
  return {nullptr, &number};
}

template <class Signature>
class UnboxedDerivation;

template <class Result, class... Arguments>
class UnboxedDerivation<Result(Arguments...)> final : public c10::OperatorKernel {
 public:
  UnboxedDerivation(c10::OperatorHandle op, c10::intrusive_ptr<UnboxedServer> server, c10::BoxedKernel boxed)
      : op_(std::move(op)), server_(std::move(server)), boxed_(std::move(boxed)) {}

  Result operator()(c10::DispatchKeySet keys, Arguments... arguments) {
    const auto server = server_;  // a kernel may remove its own registration
    std::array<UnboxedArgument, kMostUnboxedArguments> given{argument(arguments)...};
    at::Tensor result;
    if (C10_LIKELY(server->serve_unboxed(given.data(), sizeof...(Arguments), result))) {
      if constexpr (std::is_same_v<Result, at::Tensor>) {
        return result;
      } else {
        return written(arguments...);
      }
    }
    return c10::impl::BoxedKernelWrapper<Result(Arguments...)>::call(boxed_, op_, keys,
                                                                     std::forward<Arguments>(arguments)...);
  }

 private:
  // The argument that the operator writes to and returns: the only one that is not const.
  template <class First, class... Others>
  static at::Tensor& written(First& first, Others&... others) {
    if constexpr (std::is_const_v<First>) {
      return written(others...);
    } else {
      return first;
    }
  }

  c10::OperatorHandle op_;
  c10::intrusive_ptr<UnboxedServer> server_;
  c10::BoxedKernel boxed_;
};

using Factory = c10::KernelFunction (*)(const c10::OperatorHandle&, c10::intrusive_ptr<UnboxedServer>,
                                        c10::BoxedKernel);

template <class Signature>
c10::KernelFunction unboxed(const c10::OperatorHandle& op, c10::intrusive_ptr<UnboxedServer> server,
                            c10::BoxedKernel boxed) {
  return c10::KernelFunction::makeFromUnboxedFunctor<false, UnboxedDerivation<Signature>>(
      std::make_unique<UnboxedDerivation<Signature>>(op, std::move(server), std::move(boxed)));
}

// T stands for a Tensor, W for one that is written to, N for a number.
const std::unordered_map<std::string, Factory>& factories() {
  using T = const at::Tensor&;
  using W = at::Tensor&;
  using N = const at::Scalar&;
  static const std::unordered_map<std::string, Factory> all{
      {"T", &unboxed<at::Tensor(T)>},
      {"TT", &unboxed<at::Tensor(T, T)>},
      {"TTT", &unboxed<at::Tensor(T, T, T)>},
      {"TN", &unboxed<at::Tensor(T, N)>},
      {"TTN", &unboxed<at::Tensor(T, T, N)>},
      {"W", &unboxed<W(W)>},
      {"WT", &unboxed<W(W, T)>},
      {"WTT", &unboxed<W(W, T, T)>},
      {"WN", &unboxed<W(W, N)>},
      {"WTN", &unboxed<W(W, T, N)>},
      {"TW", &unboxed<W(T, W)>},
      {"TTW", &unboxed<W(T, T, W)>},
      {"TTTW", &unboxed<W(T, T, T, W)>},
      {"TNW", &unboxed<W(T, N, W)>},
      {"TTNW", &unboxed<W(T, T, N, W)>},
  };
  return all;
}

// The key of a schema's signature in that table; empty where it has none.
std::string signature_key(const c10::FunctionSchema& schema) {
  if (schema.returns().size() != 1 || schema.returns()[0].type()->kind() != c10::TypeKind::TensorType) {
    return "";
  }
  std::string key;
  for (const c10::Argument& argument : schema.arguments()) {
    switch (argument.type()->kind()) {
      case c10::TypeKind::TensorType:
        key += is_written(argument) ? 'W' : 'T';
        break;
      case c10::TypeKind::NumberType:
        key += 'N';
        break;
      default:
        return "";
    }
  }
  return key;
}

}  // namespace

c10::KernelFunction with_unboxed_path(const c10::OperatorHandle& op, c10::intrusive_ptr<UnboxedServer> server,
                                      c10::BoxedKernel boxed) {
  const auto found = factories().find(signature_key(op.schema()));
  return found != factories().end() ? found->second(op, std::move(server), std::move(boxed))
                                    : c10::KernelFunction::makeFromBoxedKernel(std::move(boxed));
}

}  // namespace opsmith
