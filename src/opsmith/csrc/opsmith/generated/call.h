// The prologue of generated functions: the operands' devices are checked, the common one is made current for
// the call, and, where the kernel runs on the host, the device's pending work is waited for.
//
// One line opens each generated function:
//   const opsmith::Call<opsmith::Operands::kScalarsFromCpu, opsmith::Runs::kOnHost> call("aten::add.Tensor",
//   self, other);
#pragma once

#include <opsmith/device/device_scope.h>
#include <opsmith/device/launch.h>
#include <opsmith/device/watched_streams.h>
#include <opsmith/generated/each_tensor.h>
#include <opsmith/host_access.h>
#include <opsmith/device/device_work.h>

#include <ATen/core/Tensor.h>

#include <exception>
#include <type_traits>

namespace opsmith {

// Which Tensors an operator takes beside those of the device.
enum class Operands {
  kOneDevice,       // none
  kScalarsFromCpu,  // 0-dim CPU tensors, as TensorIterator does: x + torch.tensor(2)
  kAny,             // the kernel itself looks at the devices
};

enum class Runs {
  kOnDevice,
  kOnHost,    // through the host window
  kQueued,    // so too, when the stream's earlier work is done (see bridge/queued_call.h)
  kInOrder,   // on the host, in functions that it hands to on_host() (see opsmith/on_host.h)
  kOnCopies,  // see on_copies.h
  kOnCopiesInOrder,
};

constexpr bool is_on_copies(Runs runs) {
  return runs == Runs::kOnCopies || runs == Runs::kOnCopiesInOrder;
}

// The object that shows a kernel to a profiler; a kernel that may be queued does that itself, and
// CountedHostKernel shows one on copies.
struct NotMeasured {
  explicit NotMeasured(const char*) {}
};
template <Runs kRuns>
using MeasuredWork = std::conditional_t<
    kRuns == Runs::kOnDevice, profile::StreamWork,
    std::conditional_t<kRuns == Runs::kQueued || is_on_copies(kRuns), NotMeasured, profile::HostWork>>;

namespace detail {

// Refuses to record what runs on the host at once.
template <Runs kRuns>
C10_ALWAYS_INLINE void prepare_host([[maybe_unused]] const char* operator_name) {
  if constexpr (kRuns == Runs::kOnHost || kRuns == Runs::kOnCopies) {
    refuse_if_captured(operator_name, "its kernel runs on the host at once", current_device());
  }
}

[[noreturn]] void throw_mixed_devices(const char* operator_name, c10::Device device,
                                      const at::TensorBase& other);

// Whether an operator writes to the argument: schemas declare at::Tensor& for those, and const& for others.
template <class Argument>
inline constexpr bool kIsWritten = std::is_same_v<Argument, at::Tensor>;

// The device of the first Tensor that is not on the CPU; throws when another Tensor may not take part with
// it. One that is written to may not, whatever the operator reads.
template <Operands kOperands, class... Arguments>
C10_NOINLINE c10::DeviceIndex mixed_device(const char* operator_name, Arguments&... arguments) {
  c10::Device device(c10::kCPU);
  const auto find = [&](const at::TensorBase& tensor) {
    if (device.is_cpu()) {
      device = tensor.device();
    }
  };
  (each_tensor(arguments, find), ...);
  const auto compare = [&](const at::TensorBase& tensor, bool written) {
    const bool is_scalar = tensor.device().is_cpu() && tensor.dim() == 0;
    const bool may_differ =
        !written && (kOperands == Operands::kAny || (kOperands == Operands::kScalarsFromCpu && is_scalar));
    if (tensor.device() != device && !may_differ) {
      throw_mixed_devices(operator_name, device, tensor);
    }
  };
  (each_tensor(arguments, [&](const at::TensorBase& tensor) { compare(tensor, kIsWritten<Arguments>); }),
   ...);
  return device.is_cpu() ? current_device() : device.index();
}

// The same, in one look at each Tensor where all are on one device of this type.
template <Operands kOperands, class... Arguments>
inline c10::DeviceIndex common_device(const char* operator_name, Arguments&... arguments) {
  c10::Device device(c10::kCPU);
  bool mixed = false;
  const auto look = [&](const at::TensorBase& tensor) {
    const c10::Device here = tensor.device();
    mixed |= here != device && !device.is_cpu();
    mixed |= here.is_cpu();
    device = here;
  };
  (each_tensor(arguments, look), ...);
  if (C10_UNLIKELY(mixed || device.is_cpu())) {
    return mixed_device<kOperands>(operator_name, arguments...);
  }
  return device.index();
}

}  // namespace detail

template <Operands kOperands, Runs kRuns>
class Call {
 public:
  // Throws RuntimeError when the Tensors among `arguments` are not on one device.
  template <class... Arguments>
  explicit Call(const char* operator_name, Arguments&&... arguments)
      : serving_(operator_name),
        device_(detail::common_device<kOperands>(operator_name, arguments...)),
        work_((prepare(operator_name, device_.device()), operator_name)) {
    if constexpr (kRuns == Runs::kOnDevice) {
      const auto note = [operator_name](const at::TensorBase& tensor) { note_use(tensor, operator_name); };
      (each_tensor(arguments, note), ...);
    }
  }
  // Throws what the device says of its kernel, where launches block.
  ~Call() noexcept(kRuns != Runs::kOnDevice) {
    if constexpr (kRuns == Runs::kOnDevice) {
      if (C10_UNLIKELY(launches_block() && std::uncaught_exceptions() == 0) &&
          !current_stream_is_captured(current_device())) {
        wait_for_device(current_device());
      }
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  C10_ALWAYS_INLINE static void prepare([[maybe_unused]] const char* operator_name,
                                        [[maybe_unused]] c10::DeviceIndex device) {
    detail::prepare_host<kRuns>(operator_name);
    if constexpr (kRuns == Runs::kOnHost) {
      wait_for_device(device);
    } else if constexpr (kRuns == Runs::kOnDevice) {
      note_launch(operator_name, device);
    }
  }

  const Serving serving_;
  DeviceScope device_;
  const MeasuredWork<kRuns> work_;
};

}  // namespace opsmith
