// Calls of lean kernels that may run after the call has returned, as work of the device's current stream:
//
//   opsmith::queue_lean_call(&::mylib::native::scale_out, {…}, self, factor, out);
//
// Tensors are passed by address. Nobody holds them meanwhile: memory that is freed serves the same stream
// again, after the kernel. What else the kernel reads is kept for it.
#pragma once

#include <bridge/lean_call.h>
#include <opsmith/device/device.h>
#include <opsmith/device/launch.h>
#include <opsmith/device/watched_streams.h>
#include <opsmith/generated/each_tensor.h>
#include <opsmith/generated/on_copies.h>
#include <opsmith/generated/pack.h>
#include <opsmith/on_host.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/util/SmallVector.h>

namespace opsmith {

namespace detail {

// An argument for as long as a queued kernel needs it, and what the kernel's caller would have given.
template <class Given>
struct Kept {
  explicit Kept(const Given& given) : value(given) {}
  const Given& get() const { return value; }

  const Given value;
};

// An argument that need not be kept: a lean argument does not refer to it once made.
template <class Given>
struct NotKept {
  explicit NotKept(const Given& given) : value(given) {}
  const Given& get() const { return value; }

  const Given& value;
};
template <>
struct Kept<at::Tensor> : NotKept<at::Tensor> {
  using NotKept::NotKept;
};
template <>
struct Kept<std::optional<at::Tensor>> : NotKept<std::optional<at::Tensor>> {
  using NotKept::NotKept;
};
template <>
struct Kept<at::TensorList> : NotKept<at::TensorList> {
  using NotKept::NotKept;
};
template <>
struct Kept<at::ITensorListRef> : NotKept<at::ITensorListRef> {
  using NotKept::NotKept;
};
template <>
struct Kept<c10::List<std::optional<at::Tensor>>> : NotKept<c10::List<std::optional<at::Tensor>>> {
  using NotKept::NotKept;
};

// Views of what the caller has.
template <class Element>
struct Kept<at::ArrayRef<Element>> {
  explicit Kept(at::ArrayRef<Element> given) : elements(given.begin(), given.end()) {}
  at::ArrayRef<Element> get() const { return elements; }

  const c10::SmallVector<Element, 6> elements;
};
template <class Element, class Given>
struct KeptOptionalList {
  explicit KeptOptionalList(const Given& given) {
    if (given.has_value()) {
      elements.emplace(given->begin(), given->end());
    }
  }
  Given get() const {
    if (!elements.has_value()) {
      return std::nullopt;
    }
    return at::ArrayRef<Element>(*elements);
  }

  std::optional<c10::SmallVector<Element, 6>> elements;
};
template <class Element>
struct Kept<at::OptionalArrayRef<Element>> : KeptOptionalList<Element, at::OptionalArrayRef<Element>> {
  using KeptOptionalList<Element, at::OptionalArrayRef<Element>>::KeptOptionalList;
};
template <class Element>
struct Kept<std::optional<at::ArrayRef<Element>>>
    : KeptOptionalList<Element, std::optional<at::ArrayRef<Element>>> {
  using KeptOptionalList<Element, std::optional<at::ArrayRef<Element>>>::KeptOptionalList;
};
template <>
struct Kept<std::string_view> {
  explicit Kept(std::string_view given) : text(given) {}
  std::string_view get() const { return text; }

  const std::string text;
};
template <>
struct Kept<std::optional<std::string_view>> {
  explicit Kept(std::optional<std::string_view> given) : text(given) {}
  std::optional<std::string_view> get() const { return text; }

  const std::optional<std::string> text;
};

// Copies that the bridge made for a kernel; those of outputs with where they belong.
struct Copies {
  std::vector<at::Tensor> read;
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
};

template <class Argument>
void take_copies(Argument& argument, Copies& copies) {
  if constexpr (std::is_base_of_v<LeanOutput, Argument>) {
    if (at::Tensor copy = argument.take_copy(); copy.defined()) {
      copies.written.emplace_back(argument.out(), std::move(copy));
    }
  } else if constexpr (std::is_base_of_v<LeanInput, Argument>) {
    if (at::Tensor copy = argument.take_copy(); copy.defined()) {
      copies.read.push_back(std::move(copy));
    }
  } else if constexpr (requires { argument.take_copies(copies.read); }) {
    argument.take_copies(copies.read);
  }
}

template <class Taken, class Given>
struct KeptArgument {
  KeptArgument(const LeanCall& call, const Given& value)
      : kept(value), given(kept.get()), lean(call, given) {}

  const Kept<Given> kept;
  decltype(std::declval<const Kept<Given>&>().get()) given;
  LeanArgument<Taken, Given> lean;
};

template <class Kernel, class... Given>
class QueuedLeanCall;

template <class Result, class... Taken, class... Given>
class QueuedLeanCall<Result(KernelRuntimeContext&, Taken...), Given...> final : public QueuedWork {
 public:
  using Kernel = Result(KernelRuntimeContext&, Taken...);

  QueuedLeanCall(Kernel* kernel, const LeanCall& call, c10::DeviceIndex device, const Given&... given)
      : QueuedWork(call.operator_name, device),
        kernel_(kernel),
        call_(call),
        arguments_{{KeptArgument<Taken, Given>(call_, given)}...} {}

  Copies take_copies() {
    Copies copies;
    arguments_.apply([&](auto&... argument) { (detail::take_copies(argument.lean, copies), ...); });
    return copies;
  }

 private:
  void run() override {
    const Error error = run_lean([&](KernelRuntimeContext& context) {
      arguments_.apply([&](auto&... argument) { kernel_(context, argument.lean.get()...); });
    });
    if (error != Error::Ok) {
      throw_failed(call_, error);
    }
  }

  Kernel* const kernel_;
  const LeanCall call_;
  Pack<KeptArgument<Taken, Given>...> arguments_;
};

// Calls `visit` with each defined Tensor of an argument, which may be of a type that holds none.
template <class Given, class Visit>
C10_ALWAYS_INLINE void each_tensor_in(const Given& given, const Visit& visit) {
  if constexpr (requires { each_tensor(given, visit); }) {
    each_tensor(given, visit);
  }
}

// The size and place of a call's Tensors, which decide when its kernel may run.
struct Amount {
  C10_ALWAYS_INLINE void add(const at::TensorBase& tensor) {
    elements += tensor.numel();
    of_host |= tensor.is_cpu() && tensor.dim() > 0;
  }
  template <class Given>
  C10_ALWAYS_INLINE void look_into(const Given& given) {
    each_tensor_in(given, [this](const at::TensorBase& tensor) { add(tensor); });
  }

  int64_t elements = 0;
  bool of_host = false;  // some lie in the host's memory, which the caller may free when the call returns
};

// Notes that queued work uses a Tensor.
struct NoteUse {
  void operator()(const at::TensorBase& tensor) const { note_use(tensor, operator_name); }

  const char* operator_name;
};

// The graph that is captured keeps what the host owns of a call's operands.
template <class Given>
void keep_host_memory(const Given& given) {
  each_tensor_in(given, [](const at::TensorBase& tensor) {
    keep_for_graph(std::make_shared<c10::Storage>(tensor.storage()));
  });
}

template <class Kernel, class... Given>
C10_NOINLINE void queue_lean(Kernel* kernel, const LeanCall& call, c10::DeviceIndex device,
                             const Given&... given) {
  auto* const work = new QueuedLeanCall<Kernel, Given...>(kernel, call, device, given...);
  std::unique_ptr<QueuedWork> owned(work);
  const Copies copies = work->take_copies();
  queue_on_host(std::move(owned));
  const NoteUse note{call.operator_name};
  (each_tensor_in(given, note), ...);
  for (const auto& [out, copy] : copies.written) {
    copy_in_order(out, copy);
  }
}

}  // namespace detail

// lean_call(), now or when the current stream's earlier work is done. What the kernel's failure throws is
// then raised where the device is next waited for.
template <class Kernel, class... Given>
C10_ALWAYS_INLINE void queue_lean_call(Kernel* kernel, const LeanCall& call, const Given&... given) {
  const c10::DeviceIndex device = current_device();
  detail::Amount amount;
  (amount.look_into(given), ...);
  if (C10_UNLIKELY(amount.of_host)) {
    refuse_if_captured(call.operator_name, "an operand lies in the host's memory", device);
    wait_for_device(device);
  } else if (C10_UNLIKELY(!runs_at_once(device, amount.elements))) {
    LeanCall queued = call;
    queued.queued = true;
    return detail::queue_lean(kernel, queued, device, given...);
  }
  const profile::HostWork work(call.operator_name, device);
  lean_call(kernel, call, given...);
}

// lean_call(), now or within a graph.
template <class Kernel, class... Given>
void lean_call_in_order(Kernel* kernel, const LeanCall& call, const Given&... given) {
  const c10::DeviceIndex device = current_device();
  if (C10_UNLIKELY(current_stream_is_captured(device))) {
    (detail::keep_host_memory(given), ...);
    return detail::queue_lean(kernel, call, device, given...);
  }
  lean_call(kernel, call, given...);
}

// Both on copies of what the device has: see on_copies().
template <class Kernel, class... Given>
void lean_call_on_copies(Kernel* kernel, const LeanCall& call, const Given&... given) {
  on_copies([&](const auto&... copies) { lean_call(kernel, call, copies...); }, given...);
}
template <class Kernel, class... Given>
void lean_call_in_order_on_copies(Kernel* kernel, const LeanCall& call, const Given&... given) {
  on_copies([&](const auto&... copies) { lean_call_in_order(kernel, call, copies...); }, given...);
}

}  // namespace opsmith
