// Random numbers for kernels on at::Tensor. Each call takes its numbers from a generator, whose state is
// (seed, offset); what they are is opsmith/philox.h's to say. For kernels without PyTorch: opsmith_random.h.
#pragma once

#include <opsmith/philox.h>

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Generator.h>

namespace opsmith {

// Takes the next `count` numbers of 32 bits, and up to three more that nobody gets, from `generator`, or from
// the default generator of the current device where none is given. The kernel does so once a call, on the
// thread that called it, so that the order of calls decides which numbers each gets. Throws c10::Error where
// the generator is not of this device, and c10::NotImplementedError with `rng: cpu`.
// Throws NotImplementedError while a graph is captured: use draw_philox_numbers() there.
PhiloxNumbers take_philox_numbers(uint64_t count, const std::optional<at::Generator>& generator);

struct PhiloxState;

// The numbers of a call whose work may be part of a graph (opsmith/on_host.h): each run has others.
class PhiloxDraw {
 public:
  PhiloxDraw(const std::shared_ptr<PhiloxState>& state, uint64_t count, c10::DeviceIndex device);

  // Of this run; asked for by the work itself.
  PhiloxNumbers numbers() const;

 private:
  PhiloxNumbers taken_{};                              // counted from the run's first, within a graph
  std::shared_ptr<const PhiloxNumbers> first_of_run_;  // null: it is no part of a graph
};

// The same as take_philox_numbers() for such work.
PhiloxDraw draw_philox_numbers(uint64_t count, const std::optional<at::Generator>& generator);

}  // namespace opsmith
