// A recorded graph: the driver's graph, and all that its work needs when it runs.
#pragma once

#include <opsmith/device/capture.h>
#include <opsmith/device/philox_generator.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace opsmith {

// The numbers that a graph draws from one generator.
struct RecordedDraws {
  std::shared_ptr<PhiloxState> state;
  std::shared_ptr<PhiloxNumbers> first;  // of the run: written before it, on its stream
  uint64_t count = 0;                    // that each run takes
};

// A capture while it lasts, and what came of it.
class Recorded final : public Capture {
 public:
  // Captures the current stream of the current device; `pool` is of its memory. Throws c10::Error where
  // another capture is under way, and what the driver says.
  static std::shared_ptr<Recorded> begin(uint64_t pool);
  ~Recorded() override;
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  // Ends the capture. Throws c10::Error where it was refused, or the driver refuses it.
  void end();

  // Queues the work on the current stream.
  void replay();

  void dump(const std::string& path) const;

  // ---- while it lasts; see capture.h ----

  void refuse(std::string why) noexcept override;
  void keep(std::shared_ptr<void> memory) override { kept_.push_back(std::move(memory)); }
  uint64_t pool() const override { return pool_; }
  RecordedDraws& draws_of(const std::shared_ptr<PhiloxState>& state);

 private:
  Recorded(c10::DeviceIndex device, opsmith_stream stream, uint64_t pool);

  opsmith_status end_of_driver() noexcept;

  const c10::DeviceIndex device_;
  const opsmith_stream stream_;
  const uint64_t pool_;
  opsmith_graph graph_ = nullptr;
  std::string refusal_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<RecordedDraws> draws_;
  std::mutex launching_;
  std::vector<opsmith_stream> launched_on_;
};

}  // namespace opsmith
