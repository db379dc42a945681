// A Generator of the device brings a call to the device's functions, though all its Tensors are on the CPU.
#pragma once

#include <opsmith/device/generator.h>
#include <opsmith/generated/each_tensor.h>

#include <optional>

namespace opsmith {

// Throws RuntimeError where that is so.
template <class... Arguments>
void check_generator_of(const std::optional<at::Generator>& generator, const Arguments&... arguments) {
  if (!generator.has_value() || !generator->defined()) {
    return;
  }
  bool on_cpu = true;
  (each_tensor(arguments, [&](const at::TensorBase& tensor) { on_cpu &= tensor.is_cpu(); }), ...);
  if (C10_UNLIKELY(on_cpu && generator->device().is_privateuseone())) {
    throw_generator_of_other_device();
  }
}

}  // namespace opsmith
