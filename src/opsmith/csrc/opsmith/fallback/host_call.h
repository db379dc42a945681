// One operator call on the CPU: what the fallback is made of.
#pragma once

#include <opsmith/fallback/unrecorded.h>
#include <opsmith/device/host_view.h>
#include <opsmith/device/result_memory.h>

#include <ATen/core/operator_name.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace opsmith {

// CPU tensors for one operator call, with the state of the thread that a CPU kernel needs: autograd and
// autocast are left (the device's own ran already), and results are allocated in the device's memory.
class HostCall {
 public:
  // Results belong on `device`; -1 leaves them on the CPU. `operator_name` is for error messages.
  HostCall(c10::DeviceIndex device, const c10::OperatorName& operator_name);

  // The CPU tensor for an argument, of the same layout; undefined and CPU tensors come back unchanged.
  at::Tensor view(const at::Tensor& tensor, Access access = Access::kRead);
  std::optional<at::Tensor> view(const std::optional<at::Tensor>& tensor);

  // The device tensor for something that the CPU kernel returned. What was written shows after commit().
  at::Tensor result(const at::Tensor& host);

  // Writes back, after the last result(): what may raise without having changed anything comes first.
  void commit();

  // After the CPU kernel raised: what it changed stays changed, as on the CPU, such as the sizes of an out=.
  void commit_despite_error() noexcept;

 private:
  // A tensor that is made of others, whose parts are views_'.
  struct Parted {
    at::Tensor device;
    at::Tensor host;
    bool written;
  };

  at::Tensor view_of_parts(const at::Tensor& tensor, Access access);
  at::Tensor on_device(const at::Tensor& parted);

  c10::DeviceIndex device_;
  const c10::OperatorName& operator_name_;
  HostViews views_;
  c10::SmallVector<Parted, 1> parted_;
  ResultMemory memory_;
  Unrecorded unrecorded_;
  c10::impl::ExcludeDispatchKeyGuard excluded_;
};

}  // namespace opsmith
