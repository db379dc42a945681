// The largest element along dimensions, NaN if there is one: a structured kernel on the operator's own
// arguments, which ATen's meta has checked. `out` has its shape.
#include <opsmith/element_types.h>
#include <opsmith/on_host.h>
#include <opsmith/reduction.h>

#include <algorithm>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

namespace example {
namespace {

constexpr int64_t kGrain = 32768;  // elements that are worth a thread

template <class T>
void largest(const opsmith::Reduction& r, const T* in, T* out) {
  using opsmith::kIn, opsmith::kOut;
  using C = opsmith::compute_t<T>;
  at::parallel_for(0, r.outputs, std::max<int64_t>(1, kGrain / r.length), [&](int64_t begin, int64_t end) {
    for_each_position(r.kept, begin, end, [&](const auto& at) {
      C most = opsmith::load_element(in + at[kIn]);
      for_each_position(r.reduced, 0, r.length, [&](const auto& inner) {
        const C each = opsmith::load_element(in + at[kIn] + inner[kIn]);
        most = each > most || each != each ? each : most;
      });
      opsmith::store_element(out + at[kOut], most);
    });
  });
}

}  // namespace

void amax(const at::Tensor& self, at::IntArrayRef dim, bool keepdim, const at::Tensor& out) {
  opsmith::Reduction r(self, dim, keepdim, out);
  if (r.outputs == 0 || r.length == 0) {  // ATen's meta refuses to reduce no elements to one
    return;
  }
  r.order_by_stride();
  opsmith::with_dtype(opsmith::Numeric{}, self.scalar_type(), [&]<class T>() {
    opsmith::on_host("amax", [r, in = opsmith::host_data<const T>(self), to = opsmith::host_data<T>(out)] {
      largest(r, in, to);
    });
  });
}

}  // namespace example
