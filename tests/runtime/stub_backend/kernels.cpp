// Kernels of DispatchStubs, on the host: as plain as can be, and none of PyTorch's own.
#include "ChipNativeFunctions.h"

#include <opsmith/pointwise.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <ATen/core/Tensor.h>

namespace chip {
namespace {

int64_t calls = 0;  // of the kernels below, for the test

using opsmith::host_data;

// Calls f(pointers) for every element of the iterator, one after the other, with host addresses.
template <int kOperands, class F>
void each_element(at::TensorIteratorBase& iter, const F& f) {
  std::array<ptrdiff_t, kOperands> shift;
  for (int i = 0; i < kOperands; ++i) {
    char* const address = static_cast<char*>(iter.data_ptr(i));
    shift[i] = static_cast<char*>(opsmith::host_pointer(address)) - address;
  }
  const auto row = [&](char** base, const int64_t* strides, int64_t n) {
    for (int64_t k = 0; k < n; ++k) {
      std::array<char*, kOperands> at;
      for (int i = 0; i < kOperands; ++i) {
        at[i] = base[i] + shift[i] + k * strides[i];
      }
      f(at);
    }
  };
  iter.serial_for_each(row, {0, iter.numel()});
}

// The storage offsets at which the runs of `tensor` along `dim` begin, in one order for all tensors of a
// shape.
std::vector<int64_t> run_offsets(const at::TensorBase& tensor, int64_t dim) {
  std::vector<int64_t> offsets{0};
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (d == dim) {
      continue;
    }
    std::vector<int64_t> longer;
    for (const int64_t offset : offsets) {
      for (int64_t index = 0; index < tensor.size(d); ++index) {
        longer.push_back(offset + index * tensor.stride(d));
      }
    }
    offsets = std::move(longer);
  }
  return offsets;
}

}  // namespace

void abs(at::TensorIteratorBase& iter) {
  ++calls;
  using Dtypes = opsmith::Types<float, double, c10::BFloat16, c10::Half, int64_t>;
  opsmith::unary<Dtypes>(iter, []<class C>() { return [](C a) -> C { return a < C(0) ? -a : a; }; });
}

void sin(at::TensorIteratorBase& iter) {
  ++calls;
  opsmith::unary<opsmith::Floating>(iter, []<class C>() { return [](C a) { return std::sin(a); }; });
}

void cos(at::TensorIteratorBase& iter) {
  ++calls;
  opsmith::unary<opsmith::Types<float>>(iter, []<class C>() { return [](C a) { return std::cos(a); }; });
}

void mul(at::TensorIteratorBase& iter) {
  ++calls;
  opsmith::binary<opsmith::Real>(iter,
                                 []<class C>() { return [](C a, C b) { return static_cast<C>(a * b); }; });
}

void lt(at::TensorIteratorBase& iter) {
  ++calls;
  opsmith::predicate<opsmith::Real>(iter, []<class C>() { return [](C a, C b) { return a < b; }; });
}

void add(at::TensorIteratorBase& iter, const at::Scalar& alpha) {
  ++calls;
  opsmith::binary<opsmith::Real>(iter, [&]<class C>() {
    return [alpha = alpha.to<C>()](C a, C b) { return static_cast<C>(a + alpha * b); };
  });
}

void clamp_scalar(at::TensorIteratorBase& iter, const at::Scalar& low, const at::Scalar& high) {
  ++calls;
  opsmith::unary<opsmith::Floating>(iter, [&]<class C>() {
    return [low = low.to<C>(), high = high.to<C>()](C a) {
      return std::isnan(a) ? a : std::min(std::max(a, low), high);
    };
  });
}

void leaky_relu(at::TensorIteratorBase& iter, const at::Scalar& slope) {
  ++calls;
  opsmith::unary<opsmith::Floating>(
      iter, [&]<class C>() { return [slope = slope.to<C>()](C a) { return a > C(0) ? a : a * slope; }; });
}

void round(at::TensorIteratorBase& iter) {
  ++calls;
  opsmith::unary<opsmith::Floating>(iter, []<class C>() { return [](C a) { return std::nearbyint(a); }; });
}

void round_decimals(at::TensorIteratorBase& iter, int64_t decimals) {
  ++calls;
  opsmith::unary<opsmith::Floating>(iter, [&]<class C>() {
    return [scale = std::pow(C(10), C(decimals))](C a) { return std::nearbyint(a * scale) / scale; };
  });
}

void sign(at::TensorIteratorBase& iter) {
  ++calls;
  opsmith::unary<opsmith::Numeric>(
      iter, []<class C>() { return [](C a) { return static_cast<C>((C(0) < a) - (a < C(0))); }; });
}

void addcmul(at::TensorIteratorBase& iter, const at::Scalar& value) {
  ++calls;
  opsmith::ternary<opsmith::Floating>(
      iter, [&]<class C>() { return [value = value.to<C>()](C a, C b, C c) { return a + value * b * c; }; });
}

// The output of a reduction has stride 0 along what is summed.
void sum(at::TensorIterator& iter) {
  ++calls;
  iter.tensor(0).zero_();
  opsmith::wait_for_device(iter.device().index());
  each_element<2>(iter, [](const std::array<char*, 2>& at) {
    *reinterpret_cast<float*>(at[0]) += *reinterpret_cast<const float*>(at[1]);
  });
}

void masked_fill(at::TensorIterator& iter, const at::Scalar& value) {
  ++calls;
  each_element<2>(iter, [filler = value.to<float>()](const std::array<char*, 2>& at) {
    if (*at[1] != 0) {
      *reinterpret_cast<float*>(at[0]) = filler;
    }
  });
}

void cumsum(const at::Tensor& result, const at::Tensor& self, int64_t dim) {
  ++calls;
  const std::vector<int64_t> from = run_offsets(self, dim);
  const std::vector<int64_t> to = run_offsets(result, dim);
  for (size_t run = 0; run < from.size(); ++run) {
    float total = 0;
    for (int64_t k = 0; k < self.size(dim); ++k) {
      total += host_data<float>(self)[from[run] + k * self.stride(dim)];
      host_data<float>(result)[to[run] + k * result.stride(dim)] = total;
    }
  }
}

void sort(const at::TensorBase& self, const at::TensorBase& values, const at::TensorBase& indices,
          int64_t dim, bool descending, bool /*stable*/) {
  ++calls;
  const std::vector<int64_t> from = run_offsets(self, dim);
  const std::vector<int64_t> to_values = run_offsets(values, dim);
  const std::vector<int64_t> to_indices = run_offsets(indices, dim);
  std::vector<int64_t> order(self.size(dim));
  for (size_t run = 0; run < from.size(); ++run) {
    const auto key = [&](int64_t k) { return host_data<float>(self)[from[run] + k * self.stride(dim)]; };
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return descending ? key(a) > key(b) : key(a) < key(b); });
    for (size_t k = 0; k < order.size(); ++k) {
      host_data<float>(values)[to_values[run] + k * values.stride(dim)] = key(order[k]);
      host_data<int64_t>(indices)[to_indices[run] + k * indices.stride(dim)] = order[k];
    }
  }
}

void uniform(at::TensorIteratorBase& iter, double from, double to,
             std::optional<at::Generator> /*generator*/) {
  ++calls;
  std::minstd_rand engine(7);
  std::uniform_real_distribution<float> draw(from, to);
  each_element<1>(iter,
                  [&](const std::array<char*, 1>& at) { *reinterpret_cast<float*>(at[0]) = draw(engine); });
}

}  // namespace chip

extern "C" __attribute__((visibility("default"))) int64_t chip_stub_calls() {
  return chip::calls;
}
