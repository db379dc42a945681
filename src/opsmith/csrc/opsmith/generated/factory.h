// The prologue of generated factory functions, whose kernels are told the layout and the device of the
// result: refuses what the device has not, and makes the result's device current.
#pragma once

#include <opsmith/device/empty.h>
#include <opsmith/generated/call.h>

namespace opsmith {

template <Operands kOperands, Runs kRuns>
class FactoryCall {
 public:
  // `arguments` are the operator's Tensors: without a `device` the result is on theirs.
  template <class... Arguments>
  FactoryCall(const char* operator_name, std::optional<at::Layout> layout, std::optional<at::Device> device,
              std::optional<bool> pin_memory, const Arguments&... arguments)
      : serving_(operator_name),
        operands_(operands_device(operator_name, arguments...)),
        elsewhere_(device.has_value() && !device->is_privateuseone()),
        device_(device.has_value() && !elsewhere_ ? checked_device(device->index()) : operands_),
        work_((check(operator_name, layout, pin_memory), elsewhere() ? nullptr : operator_name)) {}

  // Whether the result is asked for on another device than the operands': torch.zeros_like(x, device="cpu").
  bool elsewhere() const { return elsewhere_ || operands_ != current_device(); }

 private:
  template <class... Arguments>
  static c10::DeviceIndex operands_device(const char* operator_name, const Arguments&... arguments) {
    if constexpr (sizeof...(Arguments) > 0) {
      return detail::common_device<kOperands>(operator_name, arguments...);
    } else {
      return current_device();
    }
  }

  void check(const char* operator_name, std::optional<at::Layout> layout,
             std::optional<bool> pin_memory) const {
    if (C10_LIKELY(!elsewhere_)) {
      reject_options(operator_name, layout, pin_memory);
    }
    detail::prepare_host<kRuns>(operator_name);
    if constexpr (kRuns == Runs::kOnHost) {
      wait_for_device(current_device());
    }
  }

  const Serving serving_;
  c10::DeviceIndex operands_;
  bool elsewhere_;
  DeviceScope device_;
  const MeasuredWork<kRuns> work_;
};

}  // namespace opsmith
