// The device's generator of random numbers by Philox: a seed, and how many numbers of its stream were taken
// (opsmith/philox.h). All devices' are alike, so that a seed gives the same numbers on each of them.
#pragma once

#include <opsmith/philox.h>

#include <memory>
#include <mutex>

#include <c10/core/GeneratorImpl.h>

namespace opsmith {

// How many numbers are taken for `count`: they are made four at a time.
inline uint64_t rounded_draw(uint64_t count) {
  return (count + 3) / 4 * 4;
}

// Generators may share one.
struct PhiloxState {
  std::mutex mutex;
  PhiloxNumbers next{c10::default_rng_seed_val, 0};

  // Takes the next `count` numbers. May be called by several threads.
  PhiloxNumbers take(uint64_t count);
};

class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(c10::DeviceIndex device);

  // Takes the next `count` numbers. May be called by several threads, with or without the mutex of
  // GeneratorImpl.
  PhiloxNumbers take(uint64_t count) { return state_->take(count); }

  const std::shared_ptr<PhiloxState>& state() const { return state_; }

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override;
  uint64_t seed() override;

  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;

  // 16 bytes: the seed, then the offset, as CUDA's and XPU's generators have them.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // Generators that share one state: what one draws advances both.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

 private:
  PhiloxGenerator(c10::DeviceIndex device, std::shared_ptr<PhiloxState> state);
  PhiloxGenerator* clone_impl() const override;
  PhiloxNumbers next() const;
  void set_next(PhiloxNumbers next);

  std::shared_ptr<PhiloxState> state_;
};

}  // namespace opsmith
