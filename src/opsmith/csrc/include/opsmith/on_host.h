// Work on the host of a kernel on at::Tensor, as a function that opsmith calls: at once, when the device's
// work is done; or, while a graph is captured, whenever the graph runs.
//
// A library whose kernels do all that they do on the host in such functions says `capture: true` in its
// manifest. A function has what it needs by value, addresses of elements among it, and holds no Tensor: the
// memory is the graph's.
#pragma once

#include <opsmith/host_access.h>

#include <functional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace opsmith {

namespace detail {
// Waits for the current device; false where work is recorded for a graph instead.
bool wait_unless_captured();
void record_on_host(const char* name, std::function<void()> work);
}  // namespace detail

// Calls `work`, which is shown to people as `name`, a string that is never freed.
template <class Work>
void on_host(const char* name, Work work) {
  if (C10_LIKELY(detail::wait_unless_captured())) {
    work();
  } else {
    detail::record_on_host(name, std::move(work));
  }
}

// Copies elements in the order of the stream. Tensors on the CPU are copies of the device's.
void copy_in_order(const at::Tensor& to, const at::Tensor& from);

// `tensor`, or what it holds in a contiguous one.
at::Tensor contiguous_in_order(const at::Tensor& tensor);

}  // namespace opsmith
