// See host_call.h.
#include <opsmith/fallback/host_call.h>

#include <opsmith/device/capture.h>
#include <opsmith/fallback/parts.h>
#include <opsmith/fallback/refusal.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

namespace opsmith {
namespace {

// The keys of the thread's state that a CPU kernel must not see.
constexpr c10::DispatchKeySet kLeftBehind =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

}  // namespace

HostCall::HostCall(c10::DeviceIndex device, const c10::OperatorName& operator_name)
    : device_(device), operator_name_(operator_name), memory_(device), excluded_(kLeftBehind) {
  if (device >= 0) {
    if (C10_UNLIKELY(current_stream_is_captured(device))) {
      refuse_capture(c10::toString(operator_name), "it falls back to the CPU, which computes at once",
                     device);
    }
    // Also without arguments on the device: the results' memory may be in use by what is still queued.
    views_.wait_for(device);
  }
}

at::Tensor HostCall::view(const at::Tensor& tensor, Access access) {
  if (C10_UNLIKELY(is_made_of_parts(tensor))) {
    return view_of_parts(tensor, access);
  }
  if (C10_UNLIKELY(tensor.is_mkldnn())) {
    throw_mkldnn(operator_name_, "argument");
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

at::Tensor HostCall::view_of_parts(const at::Tensor& tensor, Access access) {
  if (tensor.is_cpu()) {
    return tensor;
  }
  const bool written = access != Access::kRead;
  const auto views = [&] {
    return with_parts(tensor, c10::Device(c10::kCPU), [&](const at::Tensor& part) {
      return views_.view(part, written ? Access::kWrite : Access::kRead);
    });
  };
  for (Parted& known : parted_) {
    if (known.device.is_same(tensor)) {
      if (written && !known.written) {  // add.out(x, y, out=x): its parts are written, too
        views();
        known.written = true;
      }
      return known.host;
    }
  }
  at::Tensor host = views();
  if (at::GradMode::is_enabled() && (host.is_floating_point() || host.is_complex())) {
    // _sparse_mm_reduce_impl returns what its backward needs only if an operand requires a gradient, which
    // may be another than this one.
    host.set_requires_grad(true);
  }
  parted_.push_back({tensor, host, written});
  return host;
}

at::Tensor HostCall::result(const at::Tensor& host) {
  if (!host.defined() || device_ < 0) {
    return host;
  }
  if (C10_UNLIKELY(is_made_of_parts(host))) {
    for (const Parted& known : parted_) {
      if (known.host.is_same(host)) {
        return known.device;
      }
    }
    return on_device(host);
  }
  if (C10_UNLIKELY(host.is_mkldnn())) {
    throw_mkldnn(operator_name_, "result");
  }
  return views_.on_device(host, device_);
}

at::Tensor HostCall::on_device(const at::Tensor& parted) {
  return with_parts(parted, c10::Device(c10::kPrivateUse1, device_),
                    [&](const at::Tensor& part) { return views_.part_on_device(part, device_); });
}

void HostCall::commit() {
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 1> written;
  for (const Parted& each : parted_) {
    if (each.written) {
      written.emplace_back(each.device, on_device(each.host));
    }
  }
  views_.commit();
  for (const auto& [tensor, parts] : written) {
    take_parts(tensor, parts);
  }
}

void HostCall::commit_despite_error() noexcept {
  if (parted_.empty()) {  // else parts might no longer fit each other
    views_.commit_despite_error();
  }
}

}  // namespace opsmith
