// Work on the host of a kernel on at::Tensor, as a function that opsmith calls: at once, when the device's
// work is done; or, while a graph is captured, whenever the graph runs.
//
// A library whose kernels do all that they do on the host in such functions says `capture: true` in its
// manifest. A function has what it needs by value, addresses of elements among it, and holds no Tensor: the
// memory is the graph's.
#pragma once

#include <opsmith/device/capture.h>
#include <opsmith/device/device.h>
#include <opsmith/device/launch.h>
#include <opsmith/host_access.h>

#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>

namespace opsmith {

namespace detail {

template <class Work>
class WorkOnHost final : public QueuedWork {
 public:
  WorkOnHost(const char* name, c10::DeviceIndex device, Work work)
      : QueuedWork(name, device), work_(std::move(work)) {}

 private:
  void run() override { work_(); }

  const Work work_;
};

}  // namespace detail

// Calls `work`, which is shown to people as `name`, a string that is never freed.
template <class Work>
void on_host(const char* name, Work work) {
  const c10::DeviceIndex device = current_device();
  if (C10_UNLIKELY(current_stream_is_captured(device))) {
    return record_on_host(std::make_unique<detail::WorkOnHost<Work>>(name, device, std::move(work)),
                          current_stream(device), device);
  }
  wait_for_device(device);
  work();
}

// Copies elements in the order of the stream. Tensors on the CPU are copies of the device's.
void copy_in_order(const at::Tensor& to, const at::Tensor& from);

// `tensor`, or what it holds in a contiguous one.
at::Tensor contiguous_in_order(const at::Tensor& tensor);

}  // namespace opsmith
