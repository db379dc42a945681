// The device's random number generators.
#pragma once

#include <ATen/core/Generator.h>

#include <c10/core/Device.h>

namespace opsmith {

// The generator that random operators on `device` use when the caller gives none. -1 is the current device.
const at::Generator& default_generator(c10::DeviceIndex device);

// A new one, with the default seed.
at::Generator new_generator(c10::DeviceIndex device);

// The CPU generator whose engine `device_generator` shares: what the CPU draws from it advances the device's,
// and the other way round. Throws when `device_generator` is not of this device type.
at::Generator cpu_generator(const at::Generator& device_generator);

}  // namespace opsmith
