// Softmax, its logarithm and the gradients of both. Rows are brought into a float or double buffer (not
// copied when they are that already), calculated there and written back, so that one body serves every dtype
// and stride.
#include <opsmith/element_types.h>
#include <opsmith/elementary.h>
#include <opsmith/host_access.h>
#include <opsmith/reduction.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

namespace opsmith::hosted {
namespace {

constexpr int64_t kLanes = 64;

// Combines f(0) .. f(n-1) in kLanes interleaved partial results, which gcc turns into vectors.
template <class C, class Combine, class F>
C fold(int64_t n, C start, const Combine& combine, const F& f) {
  C lanes[kLanes];
  std::fill_n(lanes, kLanes, start);
  int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      lanes[l] = combine(lanes[l], f(k + l));
    }
  }
  for (; k < n; ++k) {
    lanes[k % kLanes] = combine(lanes[k % kLanes], f(k));
  }
  for (int64_t l = 1; l < kLanes; ++l) {
    start = combine(start, lanes[l - 1]);
  }
  return combine(start, lanes[kLanes - 1]);
}

template <class C>
C plus(C a, C b) {
  return a + b;
}

// A row as numbers of type C: the memory itself where that is possible, `buffer` filled from it otherwise.
template <class T, class C>
const C* row_of(const T* p, int64_t stride, int64_t n, C* buffer) {
  if constexpr (std::is_same_v<T, C>) {
    if (stride == 1) {
      return p;
    }
  }
  for (int64_t k = 0; k < n; ++k) {
    buffer[k] = load_element(p + k * stride);
  }
  return buffer;
}

template <class T, class C>
C* place_for(T* p, int64_t stride, C* buffer) {
  if constexpr (std::is_same_v<T, C>) {
    if (stride == 1) {
      return p;
    }
  }
  return buffer;
}

template <class T, class C>
void put_back(T* p, int64_t stride, int64_t n, const C* values) {
  if constexpr (std::is_same_v<T, C>) {
    if (values == p) {
      return;
    }
  }
  for (int64_t k = 0; k < n; ++k) {
    store_element(p + k * stride, values[k]);
  }
}

// The rows of `out` along `dim` and the matching ones of one or two operands of the same shape.
// compute(x, y, z, n): z[k] from x[k] and, with two operands, y[k].
template <class In, class Out, class Compute>
void for_each_row(const at::Tensor& x, const at::Tensor* y, int64_t dim, const at::Tensor& out,
                  const Compute& compute) {
  using C = compute_t<Out>;
  if (out.numel() == 0) {
    return;
  }
  const int64_t rank = out.dim();
  const int64_t d = rank == 0 ? 0 : (dim < 0 ? dim + rank : dim);
  const int64_t n = rank == 0 ? 1 : out.size(d);
  const auto stride = [&](const at::Tensor& t) { return rank == 0 ? int64_t(1) : t.stride(d); };
  Axes rows;
  for (int64_t i = 0; i < rank; ++i) {
    if (i != d) {
      rows.push_back({out.size(i), x.stride(i), {out.stride(i), y != nullptr ? y->stride(i) : 0}});
    }
  }
  merge_axes(rows);
  const In* const px = host_data<const In>(x);
  const In* const py = y != nullptr ? host_data<const In>(*y) : nullptr;
  Out* const pz = host_data<Out>(out);
  const int64_t sx = stride(x);
  const int64_t sy = y != nullptr ? stride(*y) : 0;
  const int64_t sz = stride(out);
  const int64_t grain = std::max<int64_t>(1, 16384 / n);
  at::parallel_for(0, out.numel() / n, grain, [&](int64_t begin, int64_t end) {
    std::vector<C> buffers(static_cast<size_t>(3 * n));
    walk(rows, begin, end, [&](const Position& at) {
      const C* const a = row_of(px + at.in, sx, n, buffers.data());
      const C* const b = py != nullptr ? row_of(py + at.out[1], sy, n, buffers.data() + n) : nullptr;
      C* const z = place_for(pz + at.out[0], sz, buffers.data() + 2 * n);
      compute(a, b, z, n);
      put_back(pz + at.out[0], sz, n, z);
    });
  });
}

// Forward and backward know the operands' dtype and the result's, which differ only between Half and Float
// (the result of softmax(half, dtype=float), and its gradient).
template <class Compute>
void along_rows(const at::Tensor& x, const at::Tensor* y, int64_t dim, const at::Tensor& out,
                const Compute& compute) {
  TORCH_CHECK(y == nullptr || x.scalar_type() == y->scalar_type(),
              "softmax's gradient and result must have one dtype, got ", x.scalar_type(), " and ",
              y->scalar_type(), ". Convert one of them");
  with_dtype(Floating{}, out.scalar_type(), [&]<class Out>() {
    if (x.scalar_type() == out.scalar_type()) {
      return for_each_row<Out, Out>(x, y, dim, out, compute);
    }
    if constexpr (std::is_same_v<Out, float>) {
      if (x.scalar_type() == at::kHalf) {
        return for_each_row<c10::Half, Out>(x, y, dim, out, compute);
      }
    } else if constexpr (std::is_same_v<Out, c10::Half>) {
      if (x.scalar_type() == at::kFloat) {
        return for_each_row<float, Out>(x, y, dim, out, compute);
      }
    }
    TORCH_CHECK_NOT_IMPLEMENTED(false, "softmax from ", x.scalar_type(), " to ", out.scalar_type(), " on ",
                                x.device(), " is not implemented. Convert the operand to ", out.scalar_type(),
                                " first");
  });
}

template <class C>
C largest(const C* x, int64_t n) {
  return fold(n, -std::numeric_limits<C>::infinity(), opsmith::maximum<C>, [x](int64_t k) { return x[k]; });
}

}  // namespace

void softmax(const at::Tensor& self, int64_t dim, bool, const at::Tensor& out) {
  along_rows(self, nullptr, dim, out, [](const auto* x, const auto*, auto* z, int64_t n) {
    using C = std::remove_pointer_t<decltype(z)>;
    const C top = largest(x, n);
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) {
      z[k] = opsmith::exp(x[k] - top);
    }
    const C scale = C(1) / fold(n, C(0), plus<C>, [z](int64_t k) { return z[k]; });
    for (int64_t k = 0; k < n; ++k) {
      z[k] *= scale;
    }
  });
}

void log_softmax(const at::Tensor& self, int64_t dim, bool, const at::Tensor& out) {
  along_rows(self, nullptr, dim, out, [](const auto* x, const auto*, auto* z, int64_t n) {
    using C = std::remove_pointer_t<decltype(z)>;
    const C top = largest(x, n);
    const C total =
        std::log(fold(n, C(0), plus<C>, [x, top](int64_t k) { return opsmith::exp(x[k] - top); }));
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) {
      z[k] = x[k] - top - total;
    }
  });
}

// grad_input = output (grad - sum(grad output))
void softmax_backward(const at::Tensor& grad_output, const at::Tensor& output, int64_t dim, at::ScalarType,
                      const at::Tensor& grad_input) {
  along_rows(grad_output, &output, dim, grad_input, [](const auto* g, const auto* y, auto* z, int64_t n) {
    using C = std::remove_pointer_t<decltype(z)>;
    const C total = fold(n, C(0), plus<C>, [g, y](int64_t k) { return g[k] * y[k]; });
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) {
      z[k] = y[k] * (g[k] - total);
    }
  });
}

// grad_input = grad - exp(output) sum(grad)
void log_softmax_backward(const at::Tensor& grad_output, const at::Tensor& output, int64_t dim,
                          at::ScalarType, const at::Tensor& out) {
  along_rows(grad_output, &output, dim, out, [](const auto* g, const auto* y, auto* z, int64_t n) {
    using C = std::remove_pointer_t<decltype(z)>;
    const C total = fold(n, C(0), plus<C>, [g](int64_t k) { return g[k]; });
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) {
      z[k] = g[k] - opsmith::exp(y[k]) * total;
    }
  });
}

}  // namespace opsmith::hosted
