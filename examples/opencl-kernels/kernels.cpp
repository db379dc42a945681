// Kernels of clchip: each queues a program of programs.cl on the device and returns.
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <opsmith/host_access.h>
#include <opsmith_compute.h>

namespace clchip {

namespace {

constexpr size_t kItems = 64;  // of a work-group

constexpr const char* kPrograms =
#include "programs.cl"
    ;

// Compiled once for each device.
opsmith_compute_kernel compiled(c10::DeviceIndex device, const char* program) {
  static std::mutex mutex;
  static std::map<std::pair<c10::DeviceIndex, std::string>, opsmith_compute_kernel> kernels;
  const std::lock_guard lock(mutex);
  opsmith_compute_kernel& kernel = kernels[{device, program}];
  if (kernel == nullptr) {
    const std::string source = std::string(opsmith_compute_dialect()) + kPrograms;
    opsmith::check(opsmith_compute_compile(device, source.c_str(), program, &kernel), "compile a program",
                   device);
  }
  return kernel;
}

opsmith_compute_argument address(const at::TensorBase& tensor) {
  return {tensor.data_ptr(), 0};
}

template <class T>
opsmith_compute_argument value(const T& number) {
  return {&number, sizeof number};
}

template <size_t N>
void launch(const at::TensorBase& on, const char* program, size_t groups,
            const std::array<opsmith_compute_argument, N>& arguments) {
  const c10::DeviceIndex device = on.device().index();
  const size_t in_all[] = {groups, 1, 1}, items[] = {kItems, 1, 1};
  opsmith::check(opsmith_compute_launch(compiled(device, program), opsmith::current_stream(device), in_all,
                                        items, arguments.data(), N),
                 "launch a program", device);
}

}  // namespace

// Structured: PyTorch has checked the operands and shaped `out`, whose strides may be any.
void softmax(const at::Tensor& self, int64_t dim, bool half_to_float, const at::Tensor& out) {
  if (self.numel() == 0) return;
  const at::Tensor from = self.dim() == 0 ? self.view(1) : self.movedim(dim, -1).contiguous();
  const at::Tensor rows = out.dim() == 0 ? out.view(1) : out.movedim(dim, -1);
  const at::Tensor to = rows.contiguous();
  const int64_t columns = from.size(-1);
  launch(to, "softmax", static_cast<size_t>(from.numel() / columns),
         std::array{address(from), address(to), value(columns)});
  if (!to.is_same(rows)) rows.copy_(to);
}

// A pointwise structured kernel gets PyTorch's iterator over the operands.
void leaky_relu(at::TensorIteratorBase& iter, const at::Scalar& slope) {
  const at::Tensor& out = iter.tensor(0);
  const at::Tensor from = iter.tensor(1).contiguous();
  const at::Tensor to = out.contiguous();
  const int64_t count = to.numel();
  const float by = slope.to<float>();
  if (count == 0) return;
  launch(to, "leaky_relu", (static_cast<size_t>(count) + kItems - 1) / kItems,
         std::array{address(from), address(to), value(count), value(by)});
  if (!to.is_same(out)) out.copy_(to);
}

}  // namespace clchip
