// Connections between the ranks of a group: one to each other rank, by TCP.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <opsmith/sharing/descriptor.h>

namespace opsmith {

// What goes to a rank and comes from it at the same time.
struct Transfer {
  int peer;
  const char* out;
  size_t out_bytes;
  char* in;
  size_t in_bytes;
};

// Why no bytes come from some of the ranks.
struct Silence {
  enum class Reason { kLate, kEnded };
  Reason reason;
  std::vector<int> ranks;
};

// One thread at a time uses it; close() may come from another.
class Mesh {
 public:
  using Clock = std::chrono::steady_clock;

  // Meets the other ranks, each of which does the same with a store of the same keys.
  Mesh(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Sends and receives all of it. Throws Silence; nobody can go on with the mesh then.
  void run(std::vector<Transfer> transfers, Clock::time_point deadline);

  // Ends every transfer, here and at the others.
  void close() noexcept;

 private:
  int rank_;
  int size_;
  std::vector<Descriptor> peers_;  // by rank; none for this one
  std::atomic<bool> is_closed_ = false;
};

// The address of this machine that other ranks connect to: that of the interface that GLOO_SOCKET_IFNAME
// names, or the host name's, or else the loopback's. Throws c10::Error, with what there is, if there is none.
std::string network_address();

}  // namespace opsmith
