// CPU tensors that stand for device tensors while host code works on them: one operator of the fallback, or a
// copy.
//
// For each distinct device storage there is one CPU storage, so whatever aliases on the device aliases on the
// host. With a host window the CPU storage is the same bytes; without one it is a copy, which commit() writes
// back.
#pragma once

#include <opsmith/host_access.h>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <unordered_map>

namespace opsmith {

// The access of host code to a tensor.
enum class Access {
  kRead,
  kWrite,      // changes elements, and perhaps sizes, strides and storage
  kOverwrite,  // writes every element and reads none: no download when there is no window
};

// Whether the host code hands its work to on_host() (opsmith/on_host.h), so that a graph can record it; then
// the views are of memory that the graph keeps, and copies are recorded too. Else a captured stream is
// refused.
enum class OfGraphs { kRefused, kRecorded };

class HostViews {
 public:
  explicit HostViews(OfGraphs of_graphs = OfGraphs::kRefused) : of_graphs_(of_graphs) {}
  ~HostViews();
  HostViews(const HostViews&) = delete;
  HostViews& operator=(const HostViews&) = delete;

  // Waits, once, until this thread's stream on `device` is idle; view() does it by itself.
  void wait_for(c10::DeviceIndex device);

  // The CPU tensor that stands for `tensor`, with its sizes, strides, offset, dtype, conj, neg and
  // wrapped-number flags, once this thread's stream on the tensor's device is idle. The same tensor gives the
  // same CPU tensor. Undefined and CPU tensors come back unchanged.
  at::Tensor view(const at::Tensor& tensor, Access access = Access::kRead);

  // After host code ran: gives the device tensors what was written through their views, which is elements
  // (without a window), sizes, strides, and the storage when it was resized or set. All of it or, if memory
  // runs out, nothing; only where an upload fails may the elements be new in part.
  void commit();

  // As commit(), after host code that raised: what it changed until then stays changed, but for elements lent
  // with kOverwrite, which it may never have written. Where that fails, for want of memory, nothing changes.
  void commit_despite_error() noexcept;

  // The counterpart on `device` of a tensor that host code returned: for a view of this object, the very
  // tensor that it stands for; for an alias of one, a device tensor that aliases the same storage; for
  // anything else a new device tensor, without a copy when its memory came from ResultMemory. What was
  // resized or set has its new memory after commit().
  at::Tensor on_device(const at::Tensor& host, c10::DeviceIndex device);

  // The same of a part of a sparse tensor that host code returned or wrote to. It may be a longer alias of
  // the part that it was lent: commit() writes back all of it.
  at::Tensor part_on_device(const at::Tensor& host, c10::DeviceIndex device);

 private:
  struct StorageEntry {
    c10::intrusive_ptr<c10::StorageImpl> device;
    c10::intrusive_ptr<c10::StorageImpl> host;
    void* host_pointer;  // where `host` began: resized when it no longer does
    size_t valid_begin;  // without a window: the bytes that were downloaded
    size_t valid_end;
    bool written;
  };
  struct TensorEntry {
    at::Tensor device;
    at::Tensor host;
    size_t storage;  // in storages_
    bool written;
    bool has_elements;  // that count: else host code is to write them all first
  };

  at::Tensor make_view(const c10::TensorImpl* tensor, bool written, size_t& storage);
  c10::DataPtr host_memory(c10::StorageImpl* device, bool written);
  c10::DataPtr staging(size_t bytes, c10::DeviceIndex device);
  void move(void* destination, int destination_device, const void* source, int source_device, size_t bytes);
  void download(StorageEntry& entry, const at::Tensor& tensor);
  void note_access(StorageEntry& entry, bool written);
  static bool is_resized(const StorageEntry& entry);
  bool has_other_storage(const TensorEntry& entry) const;
  bool has_new_metadata(const TensorEntry& entry) const;
  bool is_uploaded(const TensorEntry& entry) const;
  void commit_metadata();
  void upload_written();
  void upload(const TensorEntry& tensor, void* memory);
  c10::DataPtr memory_of_resized(size_t storage);
  c10::intrusive_ptr<c10::StorageImpl> device_storage(const c10::Storage& host, c10::DeviceIndex device);

  StorageEntry* find_storage(const c10::StorageImpl* key, bool on_host);
  TensorEntry* find_tensor(const c10::TensorImpl* key, bool on_host);
  StorageEntry& add(StorageEntry entry);
  TensorEntry& add(TensorEntry entry);
  void index();

  c10::SmallVector<StorageEntry, 4> storages_;
  c10::SmallVector<TensorEntry, 5> tensors_;
  // Positions in the two vectors by address (of the device's and the host's storages and tensors: all alive,
  // so all distinct). Filled once linear search would be slow, as for _foreach_ operators.
  std::unordered_map<const void*, size_t> positions_;
  size_t indexed_storages_ = 0;
  size_t indexed_tensors_ = 0;
  OfGraphs of_graphs_;
  bool is_recorded_ = false;
  bool has_raised_ = false;
  uint64_t waited_ = 0;  // a bit for each device whose stream is known to be idle
};

// Gives the quantized tensor `to` the quantizer of `from`, wherever both are.
void give_quantizer(const at::Tensor& from, const at::Tensor& to);

// Bytes [begin, end) of its storage that the elements of a strided tensor lie in; empty when it has none.
std::pair<size_t, size_t> byte_span(const at::Tensor& tensor);

}  // namespace opsmith
