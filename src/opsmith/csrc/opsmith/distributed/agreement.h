// Ranks tell each other what they call before they do it, so that a mistake is an error on all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <opsmith/distributed/mesh.h>

namespace opsmith {

// A call of a collective, as one rank makes it.
struct CollectiveCall {
  const char* name;            // a literal
  at::Tensor example;          // one of its tensors, for errors; undefined without
  int64_t elements = -1;       // that all ranks have to have; negative where they may differ
  const char* reduction = "";  // a literal
  int root = -1;
  std::chrono::milliseconds timeout{};
};

std::string described(const CollectiveCall& call);

struct CallRecord;

// What ranks say to each other in a group, in turn. Throws DistBackendError, which names ranks and calls;
// after one for a rank that does not answer, every later call throws it again.
class Agreement {
 public:
  explicit Agreement(std::unique_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}

  // All ranks make the same call. More than a few learn that in log2(size) rounds of a message each, Hensgen,
  // Finkel and Manber, Two Algorithms for Barrier Synchronization, 1988; and only where they do not, from all
  // others. `payload` of `bytes` goes to each rank with it, and `payloads` of the ranks
  // comes back, each of as many, if it is not null.
  void reach(const CollectiveCall& call, const char* payload = nullptr, size_t bytes = 0,
             char* payloads = nullptr);

  // Mesh::run() in the midst of `call`.
  void run(const CollectiveCall& call, const std::vector<Transfer>& transfers);

  void close() noexcept { mesh_->close(); }

 private:
  bool all_fit(const CollectiveCall& call, const CallRecord& own);
  // Throws where a rank's call does not fit.
  void tell_all(const CollectiveCall& call, const CallRecord& own, const char* payload, char* payloads);
  [[noreturn]] void fail(const CollectiveCall& call, const Silence& silence);

  std::unique_ptr<Mesh> mesh_;
  uint64_t calls_ = 0;
  std::string last_ = "nothing";
  std::string failure_;
};

}  // namespace opsmith
