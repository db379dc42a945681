// CPU tensors that stand for device tensors. See host_view.h.
#include <opsmith/device/host_view.h>

#include <opsmith/device/capture.h>
#include <opsmith/device/copy_bytes.h>
#include <opsmith/device/device.h>
#include <opsmith/device/empty.h>
#include <opsmith/device/pinned.h>
#include <opsmith/device/result_memory.h>
#include <opsmith/device/staging.h>
#include <opsmith/on_host.h>
#include <opsmith/torch_version.h>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/COW.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace opsmith {
namespace {

// Up to so many entries a linear search is faster than hashing.
constexpr size_t kLinearSearch = 24;

// Without a window, storages up to this size are downloaded whole; of larger ones only the bytes that the
// tensors span.
constexpr size_t kWholeDownload = size_t{4} << 10;

const c10::Device kCpu(c10::DeviceType::CPU);

constexpr c10::DispatchKeySet kFlags({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

// Gives `tensor` the dtype, sizes, strides, offset and flags of `like`. It has none of the flags yet.
void make_like(const at::Tensor& tensor, const c10::TensorImpl* like) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->dtype() != like->dtype()) {
    impl->set_storage_and_dtype(impl->storage(), like->dtype());
  }
  if (impl->sizes() != like->sizes() || impl->strides() != like->strides()) {
    if (C10_UNLIKELY(like->dim() == 0)) {
      // CPU kernels such as linalg.vector_norm's look at the first size of a tensor that has none: let it be
      // that of a new tensor, not of the one that a spare view stood for last.
      const int64_t none = 0;
      impl->set_sizes_contiguous(none);
    }
    impl->set_sizes_and_strides(like->sizes(), like->strides());
  }
  impl->set_storage_offset(like->storage_offset());
  if (C10_UNLIKELY(like->key_set().has_any(kFlags))) {
    impl->_set_conj(like->is_conj());
    impl->_set_neg(like->is_neg());
  }
  if (C10_UNLIKELY(like->is_wrapped_number())) {
    impl->set_wrapped_number(true);
  }
}

bool is_quantized(const c10::TensorImpl* tensor) {
  return tensor->key_set().has(c10::DispatchKey::Quantized);
}

// The quantizer of `like` for a tensor on `device`, where scales and zero points of channels are tensors too.
at::QuantizerPtr quantizer_like(const c10::TensorImpl* like, c10::Device device) {
  // Nothing but a QTensorImpl has the key, and its quantizer() changes nothing.
  const at::QuantizerPtr quantizer =
      static_cast<at::QTensorImpl*>(const_cast<c10::TensorImpl*>(like))->quantizer();
  const auto* const channels = dynamic_cast<const at::PerChannelAffineQuantizer*>(quantizer.get());
  if (channels == nullptr) {
    return quantizer;
  }
  return at::make_per_channel_affine_quantizer(channels->scales().to(device),
                                               channels->zero_points().to(device), channels->axis(),
                                               channels->scalar_type());
}

// A tensor on `storage` with everything else like `like`.
at::Tensor tensor_like(c10::Storage storage, c10::DispatchKey key, const c10::TensorImpl* like) {
  const auto make = [&]() -> at::Tensor {
    if (C10_UNLIKELY(is_quantized(like))) {
      const c10::Device device = storage.device();
      const c10::DispatchKey quantized =
          device.is_cpu() ? c10::DispatchKey::QuantizedCPU : c10::DispatchKey::QuantizedPrivateUse1;
      return at::detail::make_tensor<at::QTensorImpl>(std::move(storage), c10::DispatchKeySet(quantized),
                                                      like->dtype(), quantizer_like(like, device));
    }
    return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key),
                                                    like->dtype());
  };
  at::Tensor tensor = make();
  make_like(tensor, like);
  return tensor;
}

// Note [Spare views]
// Making a CPU tensor for each argument and freeing it costs more than a small operator itself. So the CPU
// tensors of a call that nobody else has got hold of are kept, without memory and each with a storage of its
// own, for the next call of the thread.
constexpr size_t kSpareViews = 8;
thread_local c10::SmallVector<at::Tensor, kSpareViews> spare_views;

bool is_ours_alone(const at::Tensor& host, const c10::intrusive_ptr<c10::StorageImpl>& storage) {
  const c10::TensorImpl* impl = host.unsafeGetTensorImpl();
  return host.use_count() == 1 && host.weak_use_count() == 1 && !has_python_object(*impl->pyobj_slot()) &&
         !is_quantized(impl) && impl->autograd_meta() == nullptr && !impl->key_set().has_any(kFlags) &&
         !(impl->is_wrapped_number() && impl->dim() != 0) &&
         impl->unsafe_storage().unsafeGetStorageImpl() == storage.get() && storage.use_count() == 2 &&
         storage.weak_use_count() == 1 && !has_python_object(*storage->pyobj_slot());
}

bool is_copied_on_write(const c10::StorageImpl* storage) {
  return c10::impl::cow::is_cow_data_ptr(storage->data_ptr());
}

// The window of a device storage as CPU memory, which keeps the storage alive: host code may keep what it is
// given. Memory that is copied on write is copied where it is lent to be written; else another clone keeps it
// as it is.
c10::DataPtr lend(c10::StorageImpl* storage, bool written) {
  if (C10_UNLIKELY(!written && is_copied_on_write(storage))) {
    storage = c10::impl::cow::lazy_clone_storage(*storage).release();
  } else {
    storage->mutable_data();
    c10::raw::intrusive_ptr::incref(storage);
  }
  void* const pointer = host_pointer(storage->data());
  return {pointer, storage,
          [](void* context) {
            c10::intrusive_ptr<c10::StorageImpl>::reclaim(static_cast<c10::StorageImpl*>(context));
          },
          kCpu};
}

c10::intrusive_ptr<c10::StorageImpl> shared(c10::StorageImpl* storage) {
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
}

// Writes the elements of `tensor`, with its strides, to memory whose first byte stands for the first byte of
// its span.
void copy_elements(const at::Tensor& tensor, char* memory) {
  // All of an expanded dimension is one element, which copy_() would refuse to write more than once.
  c10::DimVector sizes(tensor.sizes());
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (tensor.strides()[dim] == 0) {
      sizes[dim] = 1;
    }
  }
  // Without the flags of conjugated and negated ones, so that elements are copied as they are.
  const auto elements = [&](void* first) {
    return at::from_blob(first, sizes, tensor.strides(), tensor.options());
  };
  at::Tensor to = elements(memory);
  at::native::copy_(to, elements(tensor.data_ptr()), /*non_blocking=*/false);
}

}  // namespace

void give_quantizer(const at::Tensor& from, const at::Tensor& to) {
  TORCH_CHECK(from.qscheme() == to.qscheme(), "Quantized Copy only works with same qscheme");
  at::get_qtensorimpl(to)->set_quantizer_(quantizer_like(from.unsafeGetTensorImpl(), to.device()));
}

std::pair<size_t, size_t> byte_span(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return {0, 0};
  }
  const size_t itemsize = tensor.dtype().itemsize();
  return {static_cast<size_t>(tensor.storage_offset()) * itemsize,
          at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), itemsize,
                                           static_cast<size_t>(tensor.storage_offset()))};
}

at::Tensor HostViews::view(const at::Tensor& tensor, Access access) {
  if (!tensor.is_privateuseone()) {  // undefined ones included
    return tensor;
  }
  const bool written = access != Access::kRead;
  if (TensorEntry* known = find_tensor(tensor.unsafeGetTensorImpl(), /*on_host=*/false)) {
    known->written |= written;
    note_access(storages_[known->storage], written);
    return known->host;
  }
  size_t storage = 0;
  at::Tensor host = make_view(tensor.unsafeGetTensorImpl(), written, storage);
  StorageEntry& entry = storages_[storage];
  note_access(entry, written);
  if (!has_host_window() && access != Access::kOverwrite) {
    download(entry, tensor);
  }
  add(TensorEntry{tensor, host, storage, written, access != Access::kOverwrite});
  return host;
}

// Memory that was lent to be read, and is written too, is lent anew: copy-on-write memory is copied for that.
void HostViews::note_access(StorageEntry& entry, bool written) {
  if (written && !entry.written && has_host_window() &&
      C10_UNLIKELY(is_copied_on_write(entry.device.get()))) {
    entry.host->set_data_ptr_noswap(host_memory(entry.device.get(), written));
    entry.host_pointer = entry.host->mutable_data();
  }
  entry.written |= written;
}

void HostViews::wait_for(c10::DeviceIndex device) {
  static_assert(kMostDevices <= 64, "a bit for each device");
  const uint64_t bit = uint64_t{1} << static_cast<unsigned>(device);
  if ((waited_ & bit) == 0) {
    is_recorded_ = of_graphs_ == OfGraphs::kRecorded && current_stream_is_captured(device);
    if (!is_recorded_) {
      wait_for_device(device);
    }
    waited_ |= bit;
  }
}

// Behind the window or for a copy; a graph's work may not own the memory that it uses.
c10::DataPtr HostViews::host_memory(c10::StorageImpl* device, bool written) {
  if (!has_host_window()) {
    return staging(device->nbytes(), device->device().index());
  }
  return is_recorded_ ? c10::DataPtr(host_pointer(device->mutable_data()), kCpu) : lend(device, written);
}

c10::DataPtr HostViews::staging(size_t bytes, c10::DeviceIndex device) {
  return is_recorded_ ? c10::DataPtr(graph_memory(bytes, device), kCpu) : allocate_staging(bytes);
}

void HostViews::move(void* destination, int destination_device, const void* source, int source_device,
                     size_t bytes) {
  count_moved(bytes);
  (is_recorded_ ? record_copy : copy_bytes)(destination, destination_device, source, source_device, bytes);
}

// A CPU tensor like `tensor`, on the CPU storage of its device storage, whose position in storages_ it sets.
at::Tensor HostViews::make_view(const c10::TensorImpl* tensor, bool written, size_t& storage) {
  c10::StorageImpl* device = tensor->unsafe_storage().unsafeGetStorageImpl();
  if (const StorageEntry* known = find_storage(device, /*on_host=*/false)) {
    storage = static_cast<size_t>(known - storages_.data());
    return tensor_like(c10::Storage(known->host), c10::DispatchKey::CPU, tensor);
  }
  wait_for(device->device().index());
  const size_t bytes = device->nbytes();
  c10::DataPtr memory = host_memory(device, written);
  void* host_pointer = memory.get();
  c10::intrusive_ptr<c10::StorageImpl> host_storage;
  at::Tensor host;
  if (auto& spare = spare_views; !spare.empty() && !is_quantized(tensor)) {
    host = std::move(spare.back());
    spare.pop_back();
    host_storage = shared(host.storage().unsafeGetStorageImpl());
    host_storage->set_data_ptr_noswap(std::move(memory));
    host_storage->set_nbytes(bytes);
    host_storage->set_resizable(device->resizable());
    make_like(host, tensor);
  } else {
    host_storage =
        c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(memory),
                                              c10::GetCPUAllocator(), device->resizable());
    host = tensor_like(c10::Storage(host_storage), c10::DispatchKey::CPU, tensor);
  }
  storage = storages_.size();
  add(StorageEntry{shared(device), std::move(host_storage), host_pointer, 0, 0, false});
  return host;
}

HostViews::~HostViews() {
  auto& spare = spare_views;
  for (TensorEntry& entry : tensors_) {
    if (spare.size() == kSpareViews) {
      break;
    }
    const c10::intrusive_ptr<c10::StorageImpl>& storage = storages_[entry.storage].host;
    if (is_ours_alone(entry.host, storage)) {
      storage->_mutable_data_ptr_no_checks().clear();
      if (entry.host.unsafeGetTensorImpl()->is_wrapped_number()) {
        entry.host.unsafeGetTensorImpl()->set_wrapped_number(false);
      }
      spare.push_back(std::move(entry.host));
    }
  }
}

void HostViews::download(StorageEntry& entry, const at::Tensor& tensor) {
  auto [begin, end] = byte_span(tensor);
  if (begin == end) {
    return;
  }
  if (const size_t whole = entry.device->nbytes(); whole <= kWholeDownload) {
    begin = 0;
    end = whole;
  }
  if (entry.valid_begin == entry.valid_end) {  // nothing yet
    entry.valid_begin = entry.valid_end = begin;
  }
  const c10::DeviceIndex index = entry.device->device().index();
  const auto fetch = [&](size_t from, size_t to) {
    move(static_cast<char*>(entry.host_pointer) + from, OPSMITH_HOST,
         static_cast<const char*>(entry.device->data()) + from, index, to - from);
  };
  if (begin < entry.valid_begin) {
    fetch(begin, entry.valid_begin);
    entry.valid_begin = begin;
  }
  if (end > entry.valid_end) {
    fetch(entry.valid_end, end);
    entry.valid_end = end;
  }
}

void HostViews::commit() {
  bool only_elements = true;
  for (const StorageEntry& entry : storages_) {
    only_elements &= !(entry.written && is_resized(entry));
  }
  for (const TensorEntry& entry : tensors_) {
    only_elements &= !(entry.written && has_new_metadata(entry));
  }
  if (C10_UNLIKELY(!only_elements)) {
    commit_metadata();
  } else if (!has_host_window()) {
    upload_written();
  }
}

void HostViews::commit_despite_error() noexcept {
  has_raised_ = true;
  try {
    for (const TensorEntry& entry : tensors_) {
      if (byte_span(entry.host).second > entry.host.storage().nbytes()) {
        return;  // it raised while it resized this one
      }
    }
    commit();
  } catch (const std::exception&) {  // the error of the host code is the one to tell
  }
}

// Whether host code gave the storage other memory, which it does to resize it.
bool HostViews::is_resized(const StorageEntry& entry) {
  return entry.host->data() != entry.host_pointer || entry.host->nbytes() != entry.device->nbytes();
}

bool HostViews::has_other_storage(const TensorEntry& entry) const {
  return entry.host.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() !=
         storages_[entry.storage].host.get();
}

// Whether host code changed anything but elements, or may have: out variants give their result another
// quantizer.
bool HostViews::has_new_metadata(const TensorEntry& entry) const {
  const c10::TensorImpl* device = entry.device.unsafeGetTensorImpl();
  const c10::TensorImpl* host = entry.host.unsafeGetTensorImpl();
  return has_other_storage(entry) || is_quantized(host) || device->sizes() != host->sizes() ||
         device->strides() != host->strides() || device->storage_offset() != host->storage_offset() ||
         (device->key_set() ^ host->key_set()).has_any(kFlags);
}

// Note [What can fail comes first]
// Whatever may raise for want of memory does so before anything that the caller can see has changed: the new
// memory of storages is allocated and filled. Then, without a window, elements are uploaded into memory that
// the caller has, which may fail as well and cannot be undone; the error says so. Sizes, strides and storages
// change at the end, where nothing can fail.
void HostViews::commit_metadata() {
  std::vector<std::pair<size_t, c10::Storage>> storages;  // of tensors that have another one now
  std::vector<std::pair<size_t, at::QuantizerPtr>> quantizers;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor& host = tensors_[i].host;
    const c10::Device device = tensors_[i].device.device();
    if (tensors_[i].written && has_other_storage(tensors_[i])) {
      storages.emplace_back(i, device_storage(host.storage(), device.index()));
    }
    if (C10_UNLIKELY(tensors_[i].written && is_quantized(host.unsafeGetTensorImpl()))) {
      quantizers.emplace_back(i, quantizer_like(host.unsafeGetTensorImpl(), device));
    }
  }
  std::vector<std::pair<size_t, c10::DataPtr>> memories;  // of storages that were resized
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (storages_[i].written && is_resized(storages_[i])) {
      memories.emplace_back(i, memory_of_resized(i));
    }
  }
  if (!has_host_window()) {
    upload_written();
  }

  for (auto& [index, memory] : memories) {
    StorageEntry& entry = storages_[index];
    entry.device->set_data_ptr_noswap(std::move(memory));
    entry.device->set_nbytes(entry.host->nbytes());
    if (has_host_window()) {
      entry.host->set_data_ptr_noswap(lend(entry.device.get(), /*written=*/true));
    }
    entry.host_pointer = entry.host->mutable_data();
  }
  for (auto& [index, storage] : storages) {
    tensors_[index].device.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  }
  for (auto& [index, quantizer] : quantizers) {
    at::get_qtensorimpl(tensors_[index].device)->set_quantizer_(std::move(quantizer));
  }
  for (const TensorEntry& entry : tensors_) {
    if (entry.written) {
      c10::TensorImpl* device = entry.device.unsafeGetTensorImpl();
      const c10::TensorImpl* host = entry.host.unsafeGetTensorImpl();
      // A tensor that comes from .data may be resized, yet set_sizes_and_strides() refuses it.
      const bool allowed = device->allow_tensor_metadata_change();
      device->set_allow_tensor_metadata_change(true);
      device->set_sizes_and_strides(host->sizes(), host->strides(), host->storage_offset());
      device->set_allow_tensor_metadata_change(allowed);
      device->_set_conj(host->is_conj());  // linalg.lu_solve leaves its result conjugated lazily
      device->_set_neg(host->is_neg());
    }
  }
}

// Whether host code wrote elements to the storage that it was lent.
bool HostViews::is_uploaded(const TensorEntry& entry) const {
  return entry.written && (entry.has_elements || !has_raised_) && !has_other_storage(entry);
}

// Without a window: the elements that were written, into storages that the caller has.
void HostViews::upload_written() {
  try {
    for (const TensorEntry& entry : tensors_) {
      StorageEntry& storage = storages_[entry.storage];
      if (is_uploaded(entry) && !is_resized(storage)) {
        upload(entry, storage.device->mutable_data());
      }
    }
  } catch (c10::Error& error) {
    error.add_context(
        "this happened while results were written back to the device: the tensors that the operator writes "
        "to may hold new elements, old ones or some of each");
    throw;
  }
}

// Note [Elements between those of a tensor]
// Between the elements of a strided tensor lie others, which another thread may be writing: those must not be
// replaced by what they were when they were downloaded. So the elements of such a tensor are put into what
// the device has now, and all uploads take turns, lest one comes in between.
void HostViews::upload(const TensorEntry& tensor, void* memory) {
  static auto* const turn = new std::mutex;  // never destroyed: threads may run while the process ends
  const auto [begin, end] = byte_span(tensor.host);
  if (begin == end) {
    return;
  }
  const StorageEntry& entry = storages_[tensor.storage];
  const c10::DeviceIndex index = entry.device->device().index();
  char* const to = static_cast<char*>(memory) + begin;
  const char* from = static_cast<const char*>(entry.host->data()) + begin;
  const std::lock_guard lock(*turn);
  c10::DataPtr merged;
  if (!tensor.host.is_non_overlapping_and_dense()) {
    merged = staging(end - begin, index);
    move(merged.get(), OPSMITH_HOST, to, index, end - begin);
    if (is_recorded_) {
      on_host("an upload", [host = tensor.host, memory = static_cast<char*>(merged.get())] {
        copy_elements(host, memory);
      });
    } else {
      copy_elements(tensor.host, static_cast<char*>(merged.get()));
    }
    from = static_cast<const char*>(merged.get());
  }
  move(to, index, from, OPSMITH_HOST, end - begin);
}

// Memory on the device with what a resized storage holds.
c10::DataPtr HostViews::memory_of_resized(size_t storage) {
  const StorageEntry& entry = storages_[storage];
  const c10::DeviceIndex index = entry.device->device().index();
  const size_t bytes = entry.host->nbytes();
  if (has_host_window()) {
    if (c10::DataPtr memory = ResultMemory::take(entry.host->_mutable_data_ptr_no_checks(), index)) {
      return memory;
    }
  }
  c10::DataPtr memory = allocate_on(index, bytes);
  if (has_host_window()) {
    count_moved(bytes);
    copy_bytes(memory.get(), index, entry.host->data(), OPSMITH_HOST, bytes);
    return memory;
  }
  // Bytes that were not downloaded are only on the device.
  copy_bytes(memory.get(), index, entry.device->data(), index, std::min(bytes, entry.device->nbytes()));
  for (const TensorEntry& tensor : tensors_) {
    if (tensor.storage == storage && is_uploaded(tensor)) {
      upload(tensor, memory.get());
    }
  }
  return memory;
}

// The device storage behind a CPU storage, which is one of this object's or else new.
c10::intrusive_ptr<c10::StorageImpl> HostViews::device_storage(const c10::Storage& host,
                                                               c10::DeviceIndex device) {
  c10::StorageImpl* impl = host.unsafeGetStorageImpl();
  if (const StorageEntry* known = find_storage(impl, /*on_host=*/true)) {
    return known->device;
  }
  c10::Allocator* allocator = c10::GetAllocator(c10::DeviceType::PrivateUse1);
  const size_t bytes = impl->nbytes();
  c10::DataPtr memory;
  if (has_host_window()) {
    memory = ResultMemory::take(impl->_mutable_data_ptr_no_checks(), device);
  }
  const bool taken = memory.get() != nullptr;
  if (taken && host.use_count() == 1) {
    // Nobody else sees the CPU storage: it becomes the device's.
    impl->set_data_ptr_noswap(std::move(memory));
    impl->set_allocator(allocator);
    return shared(impl);
  }
  if (!taken) {
    memory = allocate_on(device, bytes);
    const void* from = impl->data();
    c10::DataPtr pinned;
    if (C10_UNLIKELY(is_recorded_) && bytes > 0) {
      pinned = staging(bytes, device);
      on_host("an upload", [host, to = pinned.get(), bytes] { std::memcpy(to, host.data(), bytes); });
      from = pinned.get();
    }
    move(memory.get(), device, from, OPSMITH_HOST, bytes);
  }
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       std::move(memory), allocator, /*resizable=*/true);
  if (taken) {
    impl->set_data_ptr_noswap(lend(storage.get(), /*written=*/true));
  }
  // Other results may share it.
  add(StorageEntry{storage, shared(impl), nullptr, 0, 0, false});
  return storage;
}

at::Tensor HostViews::on_device(const at::Tensor& host, c10::DeviceIndex device) {
  if (!host.defined()) {
    return host;
  }
  const c10::TensorImpl* impl = host.unsafeGetTensorImpl();
  if (const TensorEntry* entry = find_tensor(impl, /*on_host=*/true)) {
    return entry->device;
  }
  return tensor_like(c10::Storage(device_storage(host.storage(), device)), c10::DispatchKey::PrivateUse1,
                     impl);
}

at::Tensor HostViews::part_on_device(const at::Tensor& host, c10::DeviceIndex device) {
  at::Tensor part = on_device(host, device);
  if (host.defined() && find_tensor(host.unsafeGetTensorImpl(), /*on_host=*/true) == nullptr) {
    const StorageEntry* const known = find_storage(host.storage().unsafeGetStorageImpl(), /*on_host=*/true);
    if (known != nullptr && known->written) {
      add(TensorEntry{part, host, static_cast<size_t>(known - storages_.data()), true, true});
    }
  }
  return part;
}

HostViews::StorageEntry* HostViews::find_storage(const c10::StorageImpl* key, bool on_host) {
  if (C10_UNLIKELY(!positions_.empty())) {
    const auto found = positions_.find(key);
    return found != positions_.end() ? &storages_[found->second] : nullptr;
  }
  for (StorageEntry& entry : storages_) {
    if ((on_host ? entry.host : entry.device).get() == key) {
      return &entry;
    }
  }
  return nullptr;
}

HostViews::TensorEntry* HostViews::find_tensor(const c10::TensorImpl* key, bool on_host) {
  if (C10_UNLIKELY(!positions_.empty())) {
    const auto found = positions_.find(key);
    return found != positions_.end() ? &tensors_[found->second] : nullptr;
  }
  for (TensorEntry& entry : tensors_) {
    if ((on_host ? entry.host : entry.device).unsafeGetTensorImpl() == key) {
      return &entry;
    }
  }
  return nullptr;
}

HostViews::StorageEntry& HostViews::add(StorageEntry entry) {
  storages_.push_back(std::move(entry));
  if (C10_UNLIKELY(storages_.size() > kLinearSearch || !positions_.empty())) {
    index();
  }
  return storages_.back();
}

HostViews::TensorEntry& HostViews::add(TensorEntry entry) {
  tensors_.push_back(std::move(entry));
  if (C10_UNLIKELY(tensors_.size() > kLinearSearch || !positions_.empty())) {
    index();
  }
  return tensors_.back();
}

// Enters what is not yet in positions_.
void HostViews::index() {
  for (; indexed_storages_ < storages_.size(); ++indexed_storages_) {
    positions_.emplace(storages_[indexed_storages_].device.get(), indexed_storages_);
    positions_.emplace(storages_[indexed_storages_].host.get(), indexed_storages_);
  }
  for (; indexed_tensors_ < tensors_.size(); ++indexed_tensors_) {
    positions_.emplace(tensors_[indexed_tensors_].device.unsafeGetTensorImpl(), indexed_tensors_);
    positions_.emplace(tensors_[indexed_tensors_].host.unsafeGetTensorImpl(), indexed_tensors_);
  }
}

}  // namespace opsmith
