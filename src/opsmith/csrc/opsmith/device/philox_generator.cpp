// See philox_generator.h.
#include <opsmith/device/philox_generator.h>

#include <cstring>
#include <utility>

#include <ATen/Utils.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <opsmith/device/driver.h>

namespace opsmith {

namespace {

constexpr int64_t kStateBytes = 16;

void check_offset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "the offset of a generator counts numbers that are made four at a time, and ",
              offset, " is not a multiple of 4");
}

}  // namespace

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device)
    : PhiloxGenerator(device, std::make_shared<PhiloxState>()) {}

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device, std::shared_ptr<PhiloxState> state)
    : c10::GeneratorImpl(c10::Device(c10::kPrivateUse1, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::move(state)) {}

PhiloxNumbers PhiloxState::take(uint64_t count) {
  const std::lock_guard lock(mutex);
  const PhiloxNumbers taken = next;
  next.offset += rounded_draw(count);
  return taken;
}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  set_next({seed, 0});
}

uint64_t PhiloxGenerator::current_seed() const {
  return next().seed;
}

uint64_t PhiloxGenerator::seed() {
  const uint64_t seed = c10::detail::getNonDeterministicRandom();
  set_next({seed, 0});
  return seed;
}

void PhiloxGenerator::set_offset(uint64_t offset) {
  check_offset(offset);
  const std::lock_guard lock(state_->mutex);
  state_->next.offset = offset;
}

uint64_t PhiloxGenerator::get_offset() const {
  return next().offset;
}

void PhiloxGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == kStateBytes, "the state of a ", device_type_name(), " generator has ",
              kStateBytes, " bytes, a seed and an offset, and this one has ", state.numel(),
              ": it is of a generator of another kind");
  PhiloxNumbers next;
  static_assert(sizeof(next) == kStateBytes);
  std::memcpy(&next, state.data(), sizeof(next));
  check_offset(next.offset);
  set_next(next);
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  at::Tensor state = at::empty({kStateBytes}, at::TensorOptions(at::kByte).device(at::kCPU));
  const PhiloxNumbers next = this->next();
  std::memcpy(state.mutable_data_ptr(), &next, sizeof(next));
  return state.getIntrusivePtr();
}

void PhiloxGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  const auto given = c10::dynamic_intrusive_pointer_cast<PhiloxGenerator>(other);
  TORCH_CHECK(given, "graphsafe_set_state takes a generator of the ", device_type_name(),
              " device, and this one is of ", other->device());
  state_ = given->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> PhiloxGenerator::graphsafe_get_state() const {
  return c10::intrusive_ptr<PhiloxGenerator>::unsafe_steal_from_new(
      new PhiloxGenerator(device_.index(), state_));
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto state = std::make_shared<PhiloxState>();
  state->next = next();
  return new PhiloxGenerator(device_.index(), std::move(state));
}

PhiloxNumbers PhiloxGenerator::next() const {
  const std::lock_guard lock(state_->mutex);
  return state_->next;
}

void PhiloxGenerator::set_next(PhiloxNumbers next) {
  const std::lock_guard lock(state_->mutex);
  state_->next = next;
}

}  // namespace opsmith
