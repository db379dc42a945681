// A vendor's library of collectives, by the table of opsmith_collectives.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <opsmith_collectives.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <memory>
#include <mutex>
#include <vector>

namespace opsmith {

// The table of the library that OPSMITH_COLLECTIVES names, or else of the driver; null where there is none,
// and where the variable is `off`. Throws c10::Error for a library or a table that does not fit.
const opsmith_collectives* vendor_collectives();

// A rank's part in a group of the vendor's library, on one device: that of the first tensor.
//
// Calls are queued on a stream of the group's own, so that they have one order on all ranks, between what the
// current stream had pending and what is queued there next. What the library has depends on its entries, the
// dtype and the reduction, so it is the same for all ranks that make the same call. A mean is a sum here.
// Throws c10::Error with the library's name and words.
class VendorGroup {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Reduction = c10d::ReduceOp::RedOpType;

  VendorGroup(const opsmith_collectives& table, c10::intrusive_ptr<c10d::Store> store, int rank, int size);
  ~VendorGroup();
  VendorGroup(const VendorGroup&) = delete;
  VendorGroup& operator=(const VendorGroup&) = delete;

  // Ends what is pending; every later call throws. May come from another thread.
  void leave() noexcept;

  bool has_broadcast() const { return table_.broadcast != nullptr; }
  bool has_all_reduce(const Tensors& tensors, Reduction reduction) const;
  bool has_all_gather() const { return table_.all_gather != nullptr; }
  bool has_reduce_scatter(const Tensors& outputs, Reduction reduction) const;
  bool has_all_to_all() const { return table_.all_to_all != nullptr; }

  void broadcast(const Tensors& tensors, int64_t root);
  void all_reduce(const Tensors& tensors, Reduction reduction);
  // Each output has the ranks' elements one after the other.
  void all_gather(const Tensors& outputs, const Tensors& inputs);
  void all_gather(const std::vector<Tensors>& outputs, const Tensors& inputs);
  // Each input has those for the ranks one after the other.
  void reduce_scatter(const Tensors& outputs, const Tensors& inputs, Reduction reduction);
  void reduce_scatter(const Tensors& outputs, const std::vector<Tensors>& inputs, Reduction reduction);
  // Each pair of ranks passes as many elements.
  void all_to_all(const at::Tensor& output, const at::Tensor& input);

 private:
  // Has `call` queue work on `example` with the communicator and the stream.
  template <class Call>
  void queue(const at::Tensor& example, const Call& call);
  void join(c10::DeviceIndex device);
  void check(opsmith_status status) const;

  const opsmith_collectives& table_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  std::mutex mutex_;
  opsmith_communicator communicator_ = nullptr;
  c10::Stream stream_;  // on the device that the rank has joined with
  bool has_left_ = false;
};

// The group's part in the vendor's library; null without a library.
std::unique_ptr<VendorGroup> vendor_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);

}  // namespace opsmith
