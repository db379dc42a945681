// Kernels that run on the host, on a device whose memory the host cannot address: they are given copies in
// host memory. What they wrote is copied back. Each distinct storage is copied once, so what aliases on the
// device aliases for the kernel, and outputs are fetched only where the kernel reads them as operands too.
#pragma once

#include <opsmith/device/device.h>
#include <opsmith/device/host_view.h>
#include <opsmith/generated/pack.h>

#include <ATen/TensorIterator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace opsmith {

namespace detail {

// An argument that the kernel writes to.
template <class Given>
struct Written {
  const Given& given;
  Access access;
};

// Kernels that a graph cannot record were refused before.
inline constexpr OfGraphs kOfGraphs = OfGraphs::kRecorded;

// An argument's copies, held while the kernel runs.
template <class Given>
inline const Given& copied(HostViews&, const Given& given) {
  return given;
}
inline at::Tensor copied(HostViews& views, const at::Tensor& tensor, Access access = Access::kRead) {
  return views.view(tensor, access);
}
inline at::Tensor copied(HostViews& views, const at::TensorBase& tensor, Access access = Access::kRead) {
  return views.view(at::Tensor(tensor), access);
}
inline std::optional<at::Tensor> copied(HostViews& views, const std::optional<at::Tensor>& tensor,
                                        Access access = Access::kRead) {
  return tensor.has_value() ? std::optional(views.view(*tensor, access)) : std::nullopt;
}
template <class Tensors>
inline std::vector<at::Tensor> copied_list(HostViews& views, const Tensors& tensors, Access access) {
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(views.view(tensor, access));
  }
  return copies;
}
inline std::vector<at::Tensor> copied(HostViews& views, const at::TensorList& tensors,
                                      Access access = Access::kRead) {
  return copied_list(views, tensors, access);
}
inline std::vector<at::Tensor> copied(HostViews& views, const std::vector<at::Tensor>& tensors,
                                      Access access = Access::kRead) {
  return copied_list(views, tensors, access);
}
inline std::vector<at::Tensor> copied(HostViews& views, const at::ITensorListRef& tensors,
                                      Access access = Access::kRead) {
  return copied_list(views, tensors, access);
}
inline c10::List<std::optional<at::Tensor>> copied(HostViews& views,
                                                   const c10::List<std::optional<at::Tensor>>& tensors,
                                                   Access access = Access::kRead) {
  c10::List<std::optional<at::Tensor>> copies;
  copies.reserve(tensors.size());
  for (const std::optional<at::Tensor>& tensor : tensors) {
    copies.push_back(copied(views, tensor, access));
  }
  return copies;
}
template <class Given>
inline auto copied(HostViews& views, const Written<Given>& written) {
  return copied(views, written.given, written.access);
}

// The same as the kernel's caller has it.
template <class Given, class Copied>
inline decltype(auto) as_given(Copied& copied) {
  if constexpr (std::is_same_v<Given, at::ITensorListRef>) {
    return at::ITensorListRef(copied);
  } else if constexpr (std::is_same_v<Copied, std::vector<at::Tensor>>) {
    return at::TensorList(copied);
  } else {
    return (copied);
  }
}

// The kernel's result on the device.
template <class Result>
inline Result on_device(HostViews&, const Result& result) {
  return result;
}
inline at::Tensor on_device(HostViews& views, const at::Tensor& host) {
  // A kernel may have had other operators compute on the device.
  return host.is_privateuseone() ? host : views.on_device(host, current_device());
}
inline std::vector<at::Tensor> on_device(HostViews& views, const std::vector<at::Tensor>& hosts) {
  std::vector<at::Tensor> results;
  results.reserve(hosts.size());
  for (const at::Tensor& host : hosts) {
    results.push_back(on_device(views, host));
  }
  return results;
}
template <class... Results>
inline auto on_device(HostViews& views, const std::tuple<Results...>& hosts) {
  // An out kernel gives back references to the copies.
  return std::apply(
      [&](const auto&... each) { return std::tuple<std::decay_t<Results>...>(on_device(views, each)...); },
      hosts);
}

}  // namespace detail

// An argument of on_copies() every element of which the kernel writes, and reads none.
template <class Given>
inline detail::Written<Given> overwritten(const Given& given) {
  return {given, Access::kOverwrite};
}

// An argument of on_copies() that the kernel changes.
template <class Given>
inline detail::Written<Given> changed(const Given& given) {
  return {given, Access::kWrite};
}

// Calls `kernel` with copies of the Tensors among `given`, and copies back what it changed. Gives back what
// it returns, on the current device.
template <class Kernel, class... Given>
auto on_copies(const Kernel& kernel, const Given&... given) {
  HostViews views(detail::kOfGraphs);
  // In this order: what is read and written is fetched where it is seen to be read first.
  Pack<decltype(detail::copied(views, given))...> copies{{detail::copied(views, given)}...};
  const auto call = [&](auto&... copied) { return kernel(detail::as_given<Given>(copied)...); };
  if constexpr (std::is_void_v<decltype(copies.apply(call))>) {
    copies.apply(call);
    views.commit();
  } else {
    const auto results = copies.apply(call);
    views.commit();
    return detail::on_device(views, results);
  }
}

// Who sees to an iterator's common dtype (Note [The common dtype]).
enum class Casts {
  kNobody,
  kBeforeTheKernel,  // all operands have it
  kInTheKernel,      // the operands are as the caller gave them, and the iterator knows it
};

// The same for a kernel that gets its Tensors in an iterator; `access` is what it does with the outputs.
void run_on_copies(at::TensorIteratorBase& iter, Access access, Casts casts,
                   c10::function_ref<void(at::TensorIterator&)> kernel);

}  // namespace opsmith
