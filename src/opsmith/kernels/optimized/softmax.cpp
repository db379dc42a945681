// _softmax and _log_softmax, along any dimension of a dense tensor, and their gradients.
#include <algorithm>
#include <cstring>
#include <limits>

#include "../common/resize.h"
#include "../common/strided_iteration.h"
#include "../common/temporary.h"
#include "by_dtype.h"
#include "float_functions.h"
#include "threads.h"

namespace opsmith::optimized::native {

namespace {

template <class T>
using Rows = void(const T* x, T* y, int64_t n, bool streamed);
template <class T>
using Columns = void(const T* x, T* y, int64_t n, int64_t stride, int64_t columns);

// exp takes about as long as adding ten elements.
constexpr int64_t kCost = 10;
// Columns that are computed together: a few cache lines of each row.
constexpr int64_t kColumns = 64;
// Shorter rows are not streamed: each ends with a fence.
constexpr int64_t kStreamedRow = 4096;

// The elements of x in y's layout.
template <class T>
void rearrange(const Tensor& from, Tensor& to, const T* x, T* y) {
  const auto all = strided_over(to, from);
  const auto line = all.innermost(), next = all.innermost(1);
  for_each_row_in_threads<2>(all, 16384, [&](const auto& at, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < n; ++i) {
        y[at[0] + row * next.stride[0] + i * line.stride[0]] =
            x[at[1] + row * next.stride[1] + i * line.stride[1]];
      }
    }
  });
}

// Calls rows(offset, size), or columns(offset, size, stride, columns), for all of a dense tensor: it consists
// of blocks of size × stride elements; a dimension of size 1 has no stride of its own.
template <class OfRows, class OfColumns>
void for_each_line(const Tensor& out, int64_t dim, const OfRows& rows, const OfColumns& columns) {
  const int64_t size = out.dim() == 0 ? 1 : out.sizes()[dim];
  const int64_t stride = size == 1 ? out.numel() : out.strides()[dim];
  const int64_t blocks = out.numel() / (size * stride);
  if (stride == 1) {
    parallel(blocks, row_grain_size(size * kCost), [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        rows(block * size, size);
      }
    });
    return;
  }
  const int64_t parts = ceil_divided(stride, kColumns);
  const int64_t cost = size * std::min(stride, kColumns) * kCost;
  parallel(blocks * parts, row_grain_size(cost), [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = part % parts * kColumns;
      columns(part / parts * size * stride + first, size, stride, std::min(stride - first, kColumns));
    }
  });
}

// `rows` and `columns` are called as Rows and Columns are.
template <class T, class OfRows, class OfColumns>
void compute(const Tensor& self, int64_t dim, Tensor& out, const OfRows& rows, const OfColumns& columns) {
  const T* x = static_cast<const T*>(self.const_data_ptr());
  T* const y = static_cast<T*>(out.mutable_data_ptr());
  if (!same_layout(self, out)) {
    rearrange(self, out, x, y);
    x = y;
  }
  const bool is_large = static_cast<int64_t>(out.nbytes()) >= kStreamedBytes;
  for_each_line(
      out, dim,
      [=](int64_t at, int64_t size) { rows(x + at, y + at, size, is_large && size >= kStreamedRow); },
      [=](int64_t at, int64_t size, int64_t stride, int64_t count) {
        columns(x + at, y + at, size, stride, count);
      });
}

// Half would become Float, and neither ATen's CPU kernels nor ExecuTorch's do that.
bool is_not_widened(KernelRuntimeContext& context, bool half_to_float) {
  return !half_to_float ||
         reject(context, Error::InvalidArgument, "softmax with half to float conversion is not supported");
}

Tensor& softmax(KernelRuntimeContext& context, const Tensor& self, int64_t dim, bool half_to_float,
                Tensor& out, const char* name, const ByDtype<Rows>& rows, const ByDtype<Columns>& columns) {
  if (!is_not_widened(context, half_to_float)) {
    return out;
  }
  OPSMITH_CHECK(context, self.scalar_type() == out.scalar_type() && rows.has(self.scalar_type()),
                NotSupported, out, "%s takes " OPSMITH_TAKEN ", and its result has the same dtype", name);
  const int64_t dimension = wrap_dim(context, dim, self.dim());
  if (dimension < 0 || !resize_like(context, out, self) || out.numel() == 0) {
    return out;
  }
  with_element(self.scalar_type(), [&](auto element) {
    compute<decltype(element)>(self, dimension, out, rows.of(element), columns.of(element));
  });
  return out;
}

// Whether n elements, `stride` apart, are -inf, all of them.
template <class T>
bool is_masked(const T* x, int64_t n, int64_t stride) {
  for (int64_t i = 0; i < n; ++i) {
    if (widened(x[i * stride]) != -std::numeric_limits<float>::infinity()) {
      return false;
    }
  }
  return true;
}

template <class T>
void safe_softmax(const Tensor& self, int64_t dim, Tensor& out, Rows<T>* rows, Columns<T>* columns) {
  compute<T>(
      self, dim, out,
      [rows](const T* x, T* y, int64_t n, bool streamed) {
        if (is_masked(x, n, 1)) {
          std::fill_n(y, n, T{});
        } else {
          rows(x, y, n, streamed);
        }
      },
      [columns](const T* x, T* y, int64_t n, int64_t stride, int64_t count) {
        static_assert(kColumns <= 64);
        uint64_t masked = 0;  // y may be x
        for (int64_t j = 0; j < count; ++j) {
          masked |= static_cast<uint64_t>(is_masked(x + j, n, stride)) << j;
        }
        columns(x, y, n, stride, count);
        for (int64_t j = 0; j < count; ++j) {
          for (int64_t i = 0; (masked >> j & 1) != 0 && i < n; ++i) {
            y[i * stride + j] = T{};
          }
        }
      });
}

template <class T>
using GradientRows = void(const T* g, const T* y, T* z, int64_t n);
template <class T>
using GradientColumns = void(const T* g, const T* y, T* z, int64_t n, int64_t stride, int64_t columns);

template <class T>
void compute_gradient(KernelRuntimeContext& context, const Tensor& grad, const Tensor& output, int64_t dim,
                      Tensor& out, GradientRows<T>* rows, GradientColumns<T>* columns) {
  const T* g = static_cast<const T*>(grad.const_data_ptr());
  const T* y = static_cast<const T*>(output.const_data_ptr());
  T* const z = static_cast<T*>(out.mutable_data_ptr());
  if (!same_layout(output, out)) {
    const auto copy = temporary<T>(context, out.numel());
    if (copy == nullptr) {
      return;
    }
    rearrange(output, out, y, copy.get());
    y = copy;
  }
  if (!same_layout(grad, out)) {
    rearrange(grad, out, g, z);
    g = z;
  }
  for_each_line(
      out, dim, [=](int64_t at, int64_t size) { rows(g + at, y + at, z + at, size); },
      [=](int64_t at, int64_t size, int64_t stride, int64_t count) {
        columns(g + at, y + at, z + at, size, stride, count);
      });
}

Tensor& gradient(KernelRuntimeContext& context, const Tensor& grad, const Tensor& output, int64_t dim,
                 Tensor& out, const char* name, const ByDtype<GradientRows>& rows,
                 const ByDtype<GradientColumns>& columns) {
  const ScalarType dtype = grad.scalar_type();
  OPSMITH_CHECK(context, output.scalar_type() == dtype && out.scalar_type() == dtype && rows.has(dtype),
                NotSupported, out, "%s takes " OPSMITH_TAKEN ", all operands the same", name);
  OPSMITH_CHECK(context, sizes_of(grad) == sizes_of(output), InvalidArgument, out,
                "%s: grad_output and output must have the same sizes", name);
  const int64_t dimension = wrap_dim(context, dim, output.dim());
  if (dimension < 0 || !resize_like(context, out, output) || out.numel() == 0) {
    return out;
  }
  with_element(dtype, [&](auto element) {
    compute_gradient(context, grad, output, dimension, out, rows.of(element), columns.of(element));
  });
  return out;
}

// The functions `rows` and `columns` of an operator.
#define OPSMITH_LINES(Rows, Columns, operator_name, name) \
  ByDtype<Rows> rows;                                     \
  ByDtype<Columns> columns;                               \
  OPSMITH_SET_FUNCTIONS(rows, operator_name, name)        \
  OPSMITH_SET_FUNCTIONS(columns, operator_name, name##_columns)

}  // namespace

Tensor& softmax_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, bool half_to_float,
                    Tensor& out) {
  OPSMITH_LINES(Rows, Columns, "_softmax.out", softmax)
  return softmax(context, self, dim, half_to_float, out, "softmax", rows, columns);
}

// softmax, and 0 for a line that consists of -inf alone.
Tensor& safe_softmax_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, Tensor& out) {
  OPSMITH_LINES(Rows, Columns, "opsmith_fused::safe_softmax.out", softmax)
  const ScalarType dtype = self.scalar_type();
  OPSMITH_CHECK(context, dtype == out.scalar_type() && rows.has(dtype), NotSupported, out,
                "safe_softmax takes " OPSMITH_TAKEN ", and its result has the same dtype");
  const int64_t dimension = wrap_dim(context, dim, self.dim());
  if (dimension < 0 || !resize_like(context, out, self) || out.numel() == 0) {
    return out;
  }
  with_element(dtype, [&](auto element) {
    safe_softmax(self, dimension, out, rows.of(element), columns.of(element));
  });
  return out;
}

Tensor& log_softmax_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, bool half_to_float,
                        Tensor& out) {
  OPSMITH_LINES(Rows, Columns, "_log_softmax.out", log_softmax)
  return softmax(context, self, dim, half_to_float, out, "log_softmax", rows, columns);
}

Tensor& softmax_backward_data_out(KernelRuntimeContext& context, const Tensor& grad_output,
                                  const Tensor& output, int64_t dim, ScalarType /*input_dtype*/,
                                  Tensor& grad_input) {
  OPSMITH_LINES(GradientRows, GradientColumns, "_softmax_backward_data.out", softmax_gradient)
  return gradient(context, grad_output, output, dim, grad_input, "softmax_backward", rows, columns);
}

Tensor& log_softmax_backward_data_out(KernelRuntimeContext& context, const Tensor& grad_output,
                                      const Tensor& output, int64_t dim, ScalarType /*input_dtype*/,
                                      Tensor& out) {
  OPSMITH_LINES(GradientRows, GradientColumns, "_log_softmax_backward_data.out", log_softmax_gradient)
  return gradient(context, grad_output, output, dim, out, "log_softmax_backward", rows, columns);
}

}  // namespace opsmith::optimized::native
