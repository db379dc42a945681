// See host_call.h.
#include <opsmith/fallback/host_call.h>

#include <opsmith/fallback/refusal.h>

#include <ATen/ops/zeros.h>

namespace opsmith {
namespace {

// What a CPU kernel must not see of the thread's state.
constexpr c10::DispatchKeySet kLeftBehind =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

}  // namespace

HostCall::HostCall(c10::DeviceIndex device, const c10::OperatorName& operator_name)
    : device_(device), operator_name_(operator_name), memory_(device), excluded_(kLeftBehind) {
  if (device >= 0) {
    // Also without arguments on the device: the results' memory may be in use by what is still queued.
    views_.wait_for(device);
  }
}

at::Tensor HostCall::view(const at::Tensor& tensor, Access access) {
  if (C10_UNLIKELY(tensor.defined() && tensor.layout() != at::kStrided) || tensor.is_quantized()) {
    throw_unsupported(operator_name_, "argument", unsupported_kind(tensor));
  }
  if (C10_UNLIKELY(tensor.defined() && tensor._is_zerotensor())) {
    return at::zeros({}, tensor.options().device(c10::kCPU))
        .expand(tensor.sizes());  // it has no memory to look at
  }
  return views_.view(tensor, access);
}

std::optional<at::Tensor> HostCall::view(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? std::optional<at::Tensor>(view(*tensor)) : std::nullopt;
}

at::Tensor HostCall::result(const at::Tensor& host) {
  if (!host.defined() || device_ < 0) {
    return host;
  }
  if (const char* kind = unsupported_kind(host)) {
    throw_unsupported(operator_name_, "result", kind);
  }
  return views_.on_device(host, device_);
}

}  // namespace opsmith
