// A probe for every DispatchStub: it notes that the stub was called and lets the CPU's own kernel of the stub
// do the work, on the device's memory through the host window. So an operator that reaches a stub still
// computes what it should, and its result can be compared.
#pragma once

// As torch's wheels are built; DispatchStub.h needs to know what a call may choose from.
#ifdef __x86_64__
#define HAVE_AVX2_CPU_DEFINITION
#define HAVE_AVX512_CPU_DEFINITION
#endif

#include <opsmith/host_access.h>
#include <opsmith/device/host_view.h>
#include <opsmith/generated/stub.h>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <typeinfo>
#include <vector>

#include <ATen/TensorIterator.h>
#include <ATen/core/Generator.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/ReduceOps.h>

namespace probe {

// Notes a call of the stub `name`.
void note(const char* name);
// Whether the operands of a stub's iterator are cast to the common dtype, as opsmith::StubKernel does for
// most stubs.
extern bool casts;
// Makes known that there is a stub `name` of the function type whose mangled name is `type`.
bool declare(const char* name, const char* type);

// One argument of a stub as its CPU kernel takes it.
template <class T>
struct OnHost {
  OnHost(opsmith::HostViews&, T value) : value(value) {}
  T get() { return value; }
  T value;
};

template <class Iterator>
struct IteratorOnHost {
  IteratorOnHost(opsmith::HostViews&, Iterator& iter) : iter(iter) {
    for (int index = 0; index < iter.ntensors(); ++index) {
      devices.push_back(iter.data_ptr(index));
      iter.unsafe_replace_operand(index, opsmith::host_pointer(devices.back()));
    }
  }
  ~IteratorOnHost() {
    for (int index = 0; index < iter.ntensors(); ++index) {
      iter.unsafe_replace_operand(index, devices[index]);
    }
  }
  Iterator& get() { return iter; }
  Iterator& iter;
  std::vector<void*> devices;
};
template <>
struct OnHost<at::TensorIteratorBase&> : IteratorOnHost<at::TensorIteratorBase> {
  using IteratorOnHost::IteratorOnHost;
};
template <>
struct OnHost<at::TensorIterator&> : IteratorOnHost<at::TensorIterator> {
  using IteratorOnHost::IteratorOnHost;
};

inline at::Tensor view(opsmith::HostViews& views, const at::TensorBase& tensor) {
  return tensor.defined() ? views.view(at::Tensor(tensor), opsmith::Access::kWrite) : at::Tensor();
}

template <class T>
struct TensorOnHost {
  TensorOnHost(opsmith::HostViews& views, const at::TensorBase& tensor) : value(view(views, tensor)) {}
  T get() { return value; }
  at::Tensor value;
};
template <>
struct OnHost<const at::Tensor&> : TensorOnHost<const at::Tensor&> {
  using TensorOnHost::TensorOnHost;
};
template <>
struct OnHost<at::Tensor&> : TensorOnHost<at::Tensor&> {
  using TensorOnHost::TensorOnHost;
};
template <>
struct OnHost<const at::TensorBase&> : TensorOnHost<const at::TensorBase&> {
  using TensorOnHost::TensorOnHost;
};
template <>
struct OnHost<at::TensorBase&> : TensorOnHost<at::TensorBase&> {
  using TensorOnHost::TensorOnHost;
};
template <>
struct OnHost<at::Tensor*> {
  OnHost(opsmith::HostViews& views, at::Tensor* tensor)
      : given(tensor), value(tensor != nullptr ? view(views, *tensor) : at::Tensor()) {}
  at::Tensor* get() { return given != nullptr ? &value : nullptr; }
  at::Tensor* given;
  at::Tensor value;
};

template <class T>
struct OptionalOnHost {
  OptionalOnHost(opsmith::HostViews& views, const std::optional<at::Tensor>& tensor) {
    if (tensor.has_value()) {
      value = view(views, *tensor);
    }
  }
  T get() { return value; }
  std::optional<at::Tensor> value;
};
template <>
struct OnHost<const std::optional<at::Tensor>&> : OptionalOnHost<const std::optional<at::Tensor>&> {
  using OptionalOnHost::OptionalOnHost;
};
template <>
struct OnHost<std::optional<at::Tensor>> : OptionalOnHost<std::optional<at::Tensor>> {
  using OptionalOnHost::OptionalOnHost;
};

template <class T>
struct ListOnHost {
  ListOnHost(opsmith::HostViews& views, at::TensorList tensors) {
    for (const at::Tensor& tensor : tensors) {
      values.push_back(view(views, tensor));
    }
    list = values;
  }
  T get() { return list; }
  std::vector<at::Tensor> values;
  at::TensorList list;
};
template <>
struct OnHost<at::TensorList> : ListOnHost<at::TensorList> {
  using ListOnHost::ListOnHost;
};
template <>
struct OnHost<const at::TensorList&> : ListOnHost<const at::TensorList&> {
  using ListOnHost::ListOnHost;
};

using References = std::vector<std::reference_wrapper<const at::Tensor>>;
template <>
struct OnHost<const References&> {
  OnHost(opsmith::HostViews& views, const References& tensors) {
    values.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      list.emplace_back(values.emplace_back(view(views, tensor)));
    }
  }
  const References& get() { return list; }
  std::vector<at::Tensor> values;
  References list;
};

using Optionals = c10::List<std::optional<at::Tensor>>;
template <>
struct OnHost<const Optionals&> {
  OnHost(opsmith::HostViews& views, const Optionals& tensors) {
    for (const std::optional<at::Tensor>& tensor : tensors) {
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(view(views, *tensor)) : std::nullopt);
    }
  }
  const Optionals& get() { return list; }
  Optionals list;
};

// The device's generator means nothing to a CPU kernel; the CPU's default one gives what the CPU would have
// drawn.
template <>
struct OnHost<std::optional<at::Generator>> {
  OnHost(opsmith::HostViews&, const std::optional<at::Generator>&) {}
  std::optional<at::Generator> get() { return std::nullopt; }
};

template <class T>
T on_device(opsmith::HostViews& views, const T& value) {
  if constexpr (std::is_same_v<std::remove_cvref_t<T>, at::Tensor>) {
    return value.defined() ? views.on_device(value, opsmith::current_device()) : value;
  } else {
    return value;
  }
}
template <class... T>
std::tuple<T...> on_device(opsmith::HostViews& views, const std::tuple<T...>& values) {
  return std::apply([&](const T&... each) { return std::make_tuple(on_device(views, each)...); }, values);
}

template <class T>
inline constexpr bool kIsBarePointer =
    std::is_pointer_v<T> && !std::is_same_v<std::remove_cvref_t<T>, at::Tensor*>;

// mean_stub, which the CPU does not fill: its own kernel for the operator divides a sum.
inline void mean(at::TensorIterator& iter) {
  at::native::sum_stub(c10::kCPU, iter);
  const at::Tensor& out = iter.tensor(0);
  out.div_(iter.tensor(1).numel() / out.numel());
}

template <class Function, auto* kStub, opsmith::Literal kName>
struct Probe;

template <class Result, class... Args, auto* kStub, opsmith::Literal kName>
struct Probe<Result (*)(Args...), kStub, kName> {
  static Result call(Args... args) {
    note(kName.text);
    if constexpr ((kIsBarePointer<Args> || ...)) {
      TORCH_CHECK(false, kName.text, " has arguments whose device nobody can tell");
    } else if constexpr (opsmith::takes_iterator<Args...>()) {
      on_iterator(args...);
    } else {
      return on_host(std::forward<Args>(args)...);
    }
  }

 private:
  template <class Iterator, class... Rest>
  static void on_iterator(Iterator& iter, Rest&... rest) {
    if (!casts) {
      return on_host(iter, rest...);
    }
    opsmith::run_iterator(
        iter, [&](at::TensorIteratorBase& promised) { on_host(static_cast<Iterator&>(promised), rest...); });
  }

  static Result on_host(Args... args) {
    opsmith::HostViews views;
    views.wait_for(opsmith::current_device());
    if constexpr (std::is_void_v<Result>) {
      run(OnHost<Args>(views, args)...);
      views.commit();
    } else if constexpr (std::is_same_v<Result, at::Tensor&>) {
      run(OnHost<Args>(views, args)...);
      views.commit();
      return std::get<0>(std::forward_as_tuple(args...));  // the result comes first
    } else {
      const Result result = run(OnHost<Args>(views, args)...);
      views.commit();
      return on_device(views, result);
    }
  }

  static Result run(OnHost<Args>&&... host) {
    if constexpr (std::string_view(kName.text) == "mean_stub") {
      return mean(host.get()...);
    } else {
      return (*kStub)(c10::kCPU, host.get()...);
    }
  }
};

}  // namespace probe

// Fills one stub with its probe, and declares it. To be used in the stub's namespace.
#define PROBE(stub, text)                                                                                \
  REGISTER_PRIVATEUSE1_DISPATCH(stub,                                                                    \
                                (&probe::Probe<stub##_DECLARE_DISPATCH_type::FnPtr, &stub, text>::call)) \
  PROBE_DECLARE(stub, text)

// Only declares it: for stubs that libtorch does not export.
#define PROBE_DECLARE(stub, text)               \
  [[maybe_unused]] const bool stub##_declared = \
      probe::declare(text, typeid(stub##_DECLARE_DISPATCH_type::FnPtr).name());
