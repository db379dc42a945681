// The device's random number generators: Philox ones, or with `rng: cpu` the CPU's under the device's name.
#pragma once

#include <ATen/core/Generator.h>

#include <c10/core/Device.h>

namespace opsmith {

// Applies the description's `rng: cpu`; called once the driver is loaded, before the first generator is made.
void draw_numbers_of_the_cpu();

// The generator that random operators on `device` use when the caller gives none. -1 is the current device.
const at::Generator& default_generator(c10::DeviceIndex device);

// A new one, with the default seed.
at::Generator new_generator(c10::DeviceIndex device);

// A CPU generator from which one operator that runs on the CPU may draw in the place of `device_generator`.
// With `rng: cpu` it is the very one that the device's stands for. Else it is new, its numbers depend on
// nothing but the device generator's state, and that one is advanced, whether they are drawn or not. Throws
// when `device_generator` is not of this device type.
at::Generator cpu_generator(const at::Generator& device_generator);

// For a Generator of the device by which a call came here whose Tensors are all on the CPU.
[[noreturn]] void throw_generator_of_other_device();

}  // namespace opsmith
