// Which generators the device has. See generator.h.
#include <opsmith/device/generator.h>

#include <array>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>

#include <opsmith/device/capture.h>
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/generator_of_cpu.h>
#include <opsmith/device/philox_generator.h>
#include <opsmith/random_numbers.h>
#include <opsmith_random.h>

namespace opsmith {

namespace {

bool draws_numbers_of_the_cpu = false;

void check_generator(const at::Generator& generator) {
  TORCH_CHECK(generator.defined() && generator.device().is_privateuseone(), "Expected a '",
              device_type_name(), "' device type for generator but found '",
              generator.defined() ? c10::DeviceTypeName(generator.device().type(), true) : "no generator",
              "'. Make one with torch.Generator(device=\"", device_type_name(), "\").");
}

// A Mersenne Twister whose state is the next numbers of `generator`.
at::Generator cpu_generator_for_one_call(PhiloxGenerator& generator) {
  at::mt19937_data_pod twister{};
  const PhiloxNumbers taken = generator.take(twister.state_.size());
  for (size_t i = 0; i < twister.state_.size(); i += 4) {
    const std::array<uint32_t, 4> numbers = philox(taken.seed, (taken.offset + i) / 4);
    std::copy(numbers.begin(), numbers.end(), twister.state_.begin() + static_cast<ptrdiff_t>(i));
  }
  twister.seed_ = taken.seed;
  twister.left_ = 1;  // all of the state is new
  twister.seeded_ = true;
  at::Generator made = at::detail::createCPUGenerator();
  at::mt19937 engine;
  engine.set_data(twister);
  made.get<at::CPUGeneratorImpl>()->set_engine(engine);
  return made;
}

}  // namespace

void draw_numbers_of_the_cpu() {
  draws_numbers_of_the_cpu = true;
}

at::Generator new_generator(c10::DeviceIndex device) {
  device = checked_device(device);
  if (draws_numbers_of_the_cpu) {
    return at::make_generator<GeneratorOfCpu>(device, at::detail::createCPUGenerator());
  }
  return at::make_generator<PhiloxGenerator>(device);
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  device = checked_device(device);
  // Never destroyed, and made when first asked for, since their number is known only once a driver is loaded.
  static const auto* const generators = [] {
    auto* const made = new std::vector<at::Generator>;
    for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
      made->push_back(new_generator(index));
    }
    return made;
  }();
  return (*generators)[device];
}

void throw_generator_of_other_device() {
  TORCH_CHECK(false, "Expected a 'cpu' device type for generator but found '", device_type_name(),
              "'. Make one with torch.Generator().");
}

at::Generator cpu_generator(const at::Generator& device_generator) {
  check_generator(device_generator);
  return draws_numbers_of_the_cpu ? device_generator.get<GeneratorOfCpu>()->cpu()
                                  : cpu_generator_for_one_call(*device_generator.get<PhiloxGenerator>());
}

namespace {

// The one that a call draws from.
PhiloxGenerator& used_generator(const std::optional<at::Generator>& generator) {
  const bool given = generator.has_value() && generator->defined();
  const at::Generator& used = given ? *generator : default_generator(current_device());
  check_generator(used);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !draws_numbers_of_the_cpu, "a kernel of ", device_type_name(),
      " draws Philox numbers, and the backend's description asks for the CPU's (`rng: cpu`). "
      "Remove that, or say `rng: philox` of the kernel in its manifest: then the operator is "
      "left to the CPU");
  return *used.get<PhiloxGenerator>();
}

}  // namespace

PhiloxNumbers take_philox_numbers(uint64_t count, const std::optional<at::Generator>& generator) {
  PhiloxGenerator& used = used_generator(generator);
  refuse_if_captured("a kernel that draws random numbers", "each run of the graph would draw the same ones",
                     current_device());
  return used.take(count);
}

PhiloxDraw draw_philox_numbers(uint64_t count, const std::optional<at::Generator>& generator) {
  return {used_generator(generator).state(), count, current_device()};
}

}  // namespace opsmith

extern "C" __attribute__((visibility("default"))) int opsmith_take_random_numbers(uint64_t count,
                                                                                  uint64_t* seed,
                                                                                  uint64_t* offset) {
  if (opsmith::draws_numbers_of_the_cpu) {
    return 0;
  }
  const opsmith::PhiloxNumbers taken = opsmith::take_philox_numbers(count, std::nullopt);
  *seed = taken.seed;
  *offset = taken.offset;
  return 1;
}
