// Copies of tensors. A copy that is one run of bytes is the driver's; any other runs on the CPU, through
// HostViews.
#include <opsmith/device/copy.h>

#include <opsmith/device/capture.h>
#include <opsmith/device/copy_bytes.h>
#include <opsmith/device/device_scope.h>
#include <opsmith/device/device_work.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/driver_result.h>
#include <opsmith/device/host_view.h>
#include <opsmith/device/pinned.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/waiting.h>
#include <opsmith/host_access.h>
#include <opsmith/on_host.h>

#include <ATen/Dispatch_v2.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/copy_native.h>
#include <torch/library.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>

namespace opsmith {
namespace {

// An event of the driver that orders streams. Needs a driver with events.
class Event {
 public:
  explicit Event(c10::DeviceIndex device) : device_(device) {
    check(driver().event_create(device, /*timing=*/0, &event_), "create an event", device);
    checked_result(event_, "event_create", device);
  }
  ~Event() {
    if (event_ != nullptr) {
      driver().event_destroy(event_);
    }
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(opsmith_stream stream) {
    check(driver().event_record(event_, stream), "record an event", device_);
  }
  void block(opsmith_stream stream) {
    check(driver().stream_wait_event(stream, event_), "wait for an event", device_);
  }

 private:
  opsmith_event event_ = nullptr;
  c10::DeviceIndex device_;
};

// Makes what is queued on `later` from now on wait for what is queued on `earlier`.
void order(opsmith_stream earlier, c10::DeviceIndex earlier_device, opsmith_stream later) {
  if (driver().event_create != nullptr) {
    Event event(earlier_device);
    event.record(earlier);
    event.block(later);
  } else {
    wait_for_stream(earlier, earlier_device, "synchronise a stream");
  }
}

void check_copyable(const at::Tensor& tensor, const at::Tensor& self, const at::Tensor& destination) {
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided && !tensor.is_nested() && !tensor.is_mkldnn(),
                              "copy from ", self.device(), " to ", destination.device(),
                              ": strided (dense) tensors are copied to strided ones, not ",
                              tensor.is_nested() ? "nested" : c10::str(tensor.layout()),
                              " ones. Convert with .to_dense() first.");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.is_cpu() || tensor.is_privateuseone(), "copy from ", self.device(),
                              " to ", destination.device(), ": ", device_type_name(),
                              " can only exchange data with the CPU. Copy through a CPU tensor.");
}

// Of a copy that goes into a graph, from or to `host`.
void check_recorded(const at::Tensor& host, bool non_blocking, c10::DeviceIndex device) {
  if (!non_blocking || !is_pinned(host.const_data_ptr())) {
    refuse_capture("aten::_copy_from",
                   "a copy between the host and the device waits, unless it is of pinned memory and "
                   "non_blocking=True",
                   device);
  }
  keep_for_graph(std::make_shared<c10::Storage>(host.storage()));
}

void copy_run(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  const size_t bytes = self.nbytes();
  void* to = destination.mutable_data_ptr();
  const void* from = self.const_data_ptr();
  if (self.is_privateuseone() && destination.is_privateuseone()) {
    const c10::DeviceIndex source = self.device().index();
    const c10::DeviceIndex target = destination.device().index();
    const opsmith_stream stream = current_stream(source);
    const opsmith_stream other = source == target ? stream : current_stream(target);
    if (other != stream) {
      refuse_if_captured("aten::_copy_from", "a graph is of one device, and the copy is between two", source);
      refuse_if_captured("aten::_copy_from", "a graph is of one device, and the copy is between two", target);
      order(other, target, stream);  // the destination may still be in use
    }
    queue_copy(to, target, from, source, bytes, "copy a tensor", target);
    if (other != stream) {
      order(stream, source, other);
    }
    return;
  }
  const bool to_device = destination.is_privateuseone();
  const c10::DeviceIndex device = (to_device ? destination : self).device().index();
  const bool is_recorded = current_stream_is_captured(device);
  if (C10_UNLIKELY(is_recorded)) {
    check_recorded(to_device ? self : destination, non_blocking, device);
  }
  queue_copy(to, to_device ? device : OPSMITH_HOST, from, to_device ? OPSMITH_HOST : device, bytes,
             to_device ? "copy a tensor to the device" : "copy a tensor to the host", device);
  const at::Tensor& host = to_device ? self : destination;
  // The record keeps the pinned memory until the copy is done, should PyTorch drop the tensor before.
  const bool may_return_early =
      non_blocking && is_pinned(host.const_data_ptr()) &&
      pinned_allocator().record_event(host.storage().mutable_data(), nullptr,
                                      c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, device),
                                                  current_stream_id(device)));
  if (!may_return_early && !is_recorded) {
    wait_for_device(device);
  }
}

void copy_on_host(at::Tensor to, const at::Tensor& from) {
  at::native::copy_(to, from, /*non_blocking=*/false);
}

constinit CopyObserver copy_observer = [](c10::DeviceIndex, c10::function_ref<void()> copy) { copy(); };

}  // namespace

bool is_same_run(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.is_conj() != b.is_conj() || a.is_neg() != b.is_neg() ||
      a.sizes() != b.sizes()) {
    return false;
  }
  return (a.is_contiguous() && b.is_contiguous()) ||
         (a.strides() == b.strides() && a.is_non_overlapping_and_dense());
}

at::Tensor _copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  check_copyable(self, self, destination);
  check_copyable(destination, self, destination);
  if (self.sizes() != destination.sizes()) {
    const std::vector<int64_t> shape = at::infer_size(destination.sizes(), self.sizes());
    TORCH_CHECK(destination.sizes() == at::IntArrayRef(shape), "output with shape ", destination.sizes(),
                " doesn't match the broadcast shape ", at::IntArrayRef(shape));
  }
  if (C10_UNLIKELY(self.is_quantized() && destination.is_quantized())) {
    TORCH_CHECK(self.scalar_type() == destination.scalar_type(),
                "Quantized Copy only works with Tensors of same dtype");
    give_quantizer(self, destination);
  }
  if (destination.numel() == 0) {
    return destination;
  }
  const bool run = is_same_run(self, destination);
  if (self.is_alias_of(destination)) {
    if (run && self.storage_offset() == destination.storage_offset()) {
      return destination;
    }
    at::assert_no_partial_overlap(destination, self);
  }
  if (run) {
    copy_run(self, destination, non_blocking);
    return destination;
  }
  const c10::DeviceIndex device = (self.is_privateuseone() ? self : destination).device().index();
  if (self.device() != destination.device()) {
    refuse_if_captured("aten::_copy_from",
                       "it casts or changes the layout on the way from or to another device", device);
  }
  const DeviceScope scope(device);
  const auto copy = [&] {
    HostViews views(OfGraphs::kRecorded);
    const at::Tensor from = views.view(self);
    at::Tensor to = views.view(
        destination, destination.is_non_overlapping_and_dense() ? Access::kOverwrite : Access::kWrite);
    on_host("aten::_copy_from", [to, from] { copy_on_host(to, from); });
    views.commit();
  };
  if (!has_host_window() && self.is_privateuseone() && destination.is_privateuseone()) {
    copy_observer(device, copy);
    return destination;
  }
  const profile::HostWork work("aten::_copy_from", device,
                               has_host_window() ? profile::Kind::kKernel : profile::Kind::kHostKernel);
  copy();
  return destination;
}

void observe_copies(CopyObserver observer) {
  copy_observer = observer;
}

at::Tensor _copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  if (destination.sizes() != self.sizes()) {
    destination.resize_(self.sizes());
  }
  return opsmith::_copy_from(self, destination, /*non_blocking=*/false);
}

namespace {

at::Scalar number_of(const void* element, at::ScalarType dtype) {
  return AT_DISPATCH_V2(dtype, "_local_scalar_dense",
                        AT_WRAP([&]() -> at::Scalar { return *static_cast<const scalar_t*>(element); }),
                        AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), at::kBool, at::kHalf, at::kBFloat16,
                        at::kComplexHalf, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), AT_EXPAND(AT_FLOAT8_TYPES));
}

}  // namespace

at::Scalar _local_scalar_dense(const at::Tensor& self) {
  // Of more elements it gives the first, as PyTorch's own do: item() refuses them before.
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported (shape ", self.sizes(),
              " on ", self.device(), ")");
  const c10::DeviceIndex device = self.device().index();
  refuse_if_captured("aten::_local_scalar_dense", "item() reads a value, which the graph has yet to compute",
                     device);
  alignas(std::max_align_t) std::array<std::byte, sizeof(c10::complex<double>)> element;
  if (has_host_window()) {
    wait_for_device(device);
    const profile::HostWork work("Memcpy DtoH", device, profile::Kind::kCopy, self.itemsize());
    std::memcpy(element.data(), host_pointer(self.const_data_ptr()), self.itemsize());
  } else {
    copy_bytes(element.data(), OPSMITH_HOST, self.const_data_ptr(), device, self.itemsize());
  }
  const at::Scalar number = number_of(element.data(), self.scalar_type());
  const at::Scalar signed_number = self.is_neg() ? -number : number;
  return self.is_conj() ? signed_number.conj() : signed_number;
}

void copy_in_order(const at::Tensor& to, const at::Tensor& from) {
  if (to.is_cpu() && from.is_cpu()) {
    on_host("aten::_copy_from", [to, from] { copy_on_host(to, from); });
  } else {
    to.copy_(from);
  }
}

at::Tensor contiguous_in_order(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.is_contiguous()) {
    return tensor.contiguous();
  }
  const at::Tensor made = at::detail::empty_cpu(tensor.sizes(), tensor.options());
  copy_in_order(made, tensor);
  return made;
}

TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("_copy_from", &opsmith::_copy_from);
  m.impl("_copy_from_and_resize", &opsmith::_copy_from_and_resize);
}

// PyTorch's copy_ passes conj and neg tensors on to _copy_from, which heeds the flags. Without these, the two
// keys' own fallbacks would resolve them with a copy_, which calls _copy_from, and so on until the stack is
// full.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace opsmith
