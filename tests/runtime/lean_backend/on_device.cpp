// A kernel that is given device addresses and does its work through the driver, as device kernels do.
#include <array>
#include <cmath>
#include <cstddef>

#include <opsmith_device.h>

#include <executorch/runtime/kernel/kernel_includes.h>

namespace {

std::array<const void*, 3> given;

struct Work {
  const float* self;
  const float* other;
  float* out;
  ptrdiff_t elements;
  bool number;
};

void compute(void* argument) {
  auto* const work = static_cast<Work*>(argument);
  for (ptrdiff_t i = 0; i < work->elements; ++i) {
    work->out[i] = std::atan2(work->self[i], work->other[work->number ? 0 : i]);
  }
  delete work;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const void* address_given(int index) {
  return given[static_cast<size_t>(index)];
}

namespace lean_test::native {

using executorch::aten::Tensor;

Tensor& atan2_on_device_out(executorch::runtime::KernelRuntimeContext& ctx, const Tensor& self,
                            const Tensor& other, Tensor& out) {
  given = {self.const_data_ptr(), other.const_data_ptr(), out.const_data_ptr()};
  // Sim has no kernels: what its queue runs sees the device's memory where the host does.
  const opsmith_driver* const driver = opsmith_get_driver();
  const auto there = [&](const void* address) { return static_cast<float*>(driver->host_window(address)); };
  auto* const work =
      new Work{there(given[0]), there(given[1]), there(given[2]), out.numel(), other.numel() == 1};
  const opsmith_stream stream = opsmith_current_stream(opsmith_current_device());
  const bool queued = driver->stream_host_function(stream, compute, work) == OPSMITH_OK;
  ET_KERNEL_CHECK_MSG(ctx, queued, Internal, out, "%s", driver->last_error());
  return out;
}

}  // namespace lean_test::native
