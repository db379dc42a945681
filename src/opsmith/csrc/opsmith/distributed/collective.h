// A collective while it runs: the CPU's tensors that stand for the device's, and how errors describe the
// call.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <opsmith/device/host_view.h>

namespace opsmith {

using Tensors = std::vector<at::Tensor>;

// A call of a collective, as errors describe it.
struct CollectiveCall {
  const char* name;            // a literal
  at::Tensor example;          // one of its tensors; undefined without
  const char* reduction = "";  // a literal
  int root = -1;
};

// The reduction's name; empty for one that has none.
const char* name_of(c10d::ReduceOp::RedOpType reduction);

class Collective {
 public:
  Collective(CollectiveCall call, int rank, int size) : call_(std::move(call)), rank_(rank), size_(size) {}

  at::Tensor host(const at::Tensor& tensor, Access access) { return views_.view(tensor, access); }
  template <class Nested>
  std::vector<Nested> host(const std::vector<Nested>& tensors, Access access) {
    std::vector<Nested> views;
    views.reserve(tensors.size());
    for (const Nested& each : tensors) {
      views.push_back(host(each, access));
    }
    return views;
  }

  // The reduction that the CPU's backend has, for `wanted`. A mean is a sum that finish() divides: `means`.
  c10d::ReduceOp reduction(const c10d::ReduceOp& wanted, const Tensors& means);

  // When the host's work is done.
  void finish();

  // Throws DistBackendError, with the call and the rank, for what the CPU's backend or the vendor's library
  // threw. The device's own errors stay what they are.
  [[noreturn]] void fail(const std::exception_ptr& error) const;

 private:
  const CollectiveCall call_;
  const int rank_;
  const int size_;
  HostViews views_;
  Tensors means_;
};

}  // namespace opsmith
