// softmax and log_softmax with their gradients: along one dimension, in lines that threads share. Half and
// BFloat16 are calculated in float.
#include <cmath>
#include <limits>
#include <tuple>

#include "../../common/tasks.h"
#include "../common_dtype.h"
#include "../elementary_functions.h"
#include "../lanes.h"
#include "../movement.h"

namespace opsmith::portable {
namespace {

constexpr int64_t kGroup = 16;  // lines side by side that are read together

template <class C>
C larger_of(C a, C b) {
  return a > b || a != a ? a : b;  // NaN is the largest
}

// The lines along `dim` of tensors of the same sizes.
struct Lines {
  Dims places;
  int64_t length;
};

Lines lines_of(const Tensor& t, int64_t dim) {
  Lines lines{sizes_of(t), 1};
  if (t.dim() != 0) {
    lines.length = lines.places[dim];
    lines.places[dim] = 1;
  }
  return lines;
}

int64_t step_of(const Tensor& t, int64_t dim) {
  return t.dim() == 0 ? 1 : t.strides()[dim];
}

// `width` lines of n elements, which lie side by side and `step` apart, one after the other as C; `rows` is
// memory for as many.
template <class C>
[[gnu::noinline]] void read_lines(Convert load, const char* from, int64_t n, int64_t step, int64_t width,
                                  C* dense, C* rows) {
  if (width == 1) {
    load(from, {1, n, 0, step}, dense);
    return;
  }
  load(from, {n, width, step, 1}, rows);
  for (int64_t l = 0; l < width; ++l) {
    for (int64_t i = 0; i < n; ++i) {
      dense[l * n + i] = rows[i * width + l];
    }
  }
}

// The way back, of elements of so many bytes; `line` is memory for one.
template <class C>
[[gnu::noinline]] void write_lines(Convert store, const C* dense, char* to, int64_t n, int64_t step,
                                   int64_t width, int64_t bytes, C* line, C* rows) {
  if (width > 1) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t l = 0; l < width; ++l) {
        rows[i * width + l] = dense[l * n + i];
      }
      store(rows + i * width, {1, width, 0, 1}, to + i * step * bytes);
    }
  } else if (step == 1) {
    store(dense, {1, n, 0, 1}, to);
  } else {
    store(dense, {1, n, 0, 1}, line);
    spread(static_cast<size_t>(bytes), line, to, step, n);
  }
}

// compute(x, y, z, n): the line z of `out` from the lines x and, where there is one, y of the inputs. All are
// arrays of C: the memory itself where that is possible, a copy in a buffer of a line's length otherwise.
// Long because every step takes most of the layout that is found first.
template <class C>
[[gnu::noinline]] void for_each_line(KernelRuntimeContext& context, const Tensor& x, const Tensor* y,
                                     int64_t dim, Tensor& out,
                                     FunctionRef<void(const C*, const C*, C*, int64_t)> compute) {
  const Lines lines = lines_of(out, dim);
  const int64_t n = lines.length;
  const int64_t count = out.numel() == 0 ? 0 : lines.places.product();
  const Convert load = conversion(x.scalar_type(), dtype_of<C>);
  const Convert store = conversion(dtype_of<C>, out.scalar_type());
  OPSMITH_CHECK(context, load != nullptr && store != nullptr, NotSupported, ,
                "softmax from %s to %s is not part of this build", name_of(x.scalar_type()),
                name_of(out.scalar_type()));
  if (count == 0) {
    return;
  }
  const bool in_place = x.scalar_type() == dtype_of<C> && step_of(x, dim) == 1 &&
                        (y == nullptr || step_of(*y, dim) == 1) && out.scalar_type() == dtype_of<C> &&
                        step_of(out, dim) == 1;
  // Lines that lie side by side, element by element, are read together: each row of them is one piece of
  // memory.
  const int64_t last = out.dim() - 1;
  const bool side_by_side = !in_place && last >= 0 && dim != last && x.strides()[last] == 1 &&
                            out.strides()[last] == 1 && (y == nullptr || y->strides()[last] == 1);
  const int64_t neighbours = side_by_side ? lines.places[last] : 1;
  const int64_t group = side_by_side ? std::min(kGroup, neighbours) : 1;
  const int64_t groups = (neighbours + group - 1) / group;
  Dims places = lines.places;
  if (side_by_side) {
    places[last] = 1;
  }
  const int64_t units = places.product() * groups;
  const Dims x_strides = strides_of(x);
  const Dims y_strides = y != nullptr ? strides_of(*y) : x_strides;
  const Dims out_strides = strides_of(out);
  const char* const from = static_cast<const char*>(x.const_data_ptr());
  const char* const beside = y != nullptr ? static_cast<const char*>(y->const_data_ptr()) : nullptr;
  char* const to = static_cast<char*>(out.mutable_data_ptr());
  const int64_t x_width = x.element_size();
  const int64_t out_width = out.element_size();
  const auto unit = [&](int64_t index, C* buffer) {
    const int64_t start = index % groups * group;
    const int64_t width = std::min(group, neighbours - start);
    index /= groups;
    Dims at = places;
    for (int64_t d = at.rank - 1; d >= 0; --d) {
      at[d] = index % places[d];
      index /= places[d];
    }
    const char* const px = from + (offset_of(at, x_strides) + start) * x_width;
    const char* const py =
        beside != nullptr ? beside + (offset_of(at, y_strides) + start) * x_width : nullptr;
    char* const pz = to + (offset_of(at, out_strides) + start) * out_width;
    if (in_place) {
      compute(reinterpret_cast<const C*>(px), reinterpret_cast<const C*>(py), reinterpret_cast<C*>(pz), n);
      return;
    }
    C* const xs = buffer;
    C* const ys = xs + group * n;
    C* const zs = ys + group * n;
    C* const rows = zs + group * n;
    read_lines(load, px, n, step_of(x, dim), width, xs, rows);
    if (py != nullptr) {
      read_lines(load, py, n, step_of(*y, dim), width, ys, rows);
    }
    for (int64_t l = 0; l < width; ++l) {
      compute(xs + l * n, ys + l * n, zs + l * n, n);
    }
    write_lines(store, zs, pz, n, step_of(out, dim), width, out_width, xs, rows);
  };
  run_tasks<C>(context, units, grain_size(group * n), in_place ? 0 : 4 * group * n, unit);
}

template <class C>
C max_of(const C* x, int64_t n) {
  return fold(n, -std::numeric_limits<C>::infinity(), larger_of<C>, [x](int64_t i) { return x[i]; });
}

template <class C>
void softmax_line(const C* x, const C*, C* z, int64_t n) {
  const C top = max_of(x, n);
  // ivdep: x and z are the same line or have no element in common.
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    z[i] = portable::exp(x[i] - top);
  }
  const C total = sum_of<C>(n, [z](int64_t i) { return z[i]; });
  const C scale = C(1) / total;
  for (int64_t i = 0; i < n; ++i) {
    z[i] *= scale;
  }
}

template <class C>
void log_softmax_line(const C* x, const C*, C* z, int64_t n) {
  const C top = max_of(x, n);
  const C shift = std::log(sum_of<C>(n, [=](int64_t i) { return portable::exp(x[i] - top); }));
  for (int64_t i = 0; i < n; ++i) {
    z[i] = x[i] - top - shift;
  }
}

// output (grad - sum(grad output))
template <class C>
void softmax_backward_line(const C* grad, const C* output, C* z, int64_t n) {
  const C total = sum_of<C>(n, [=](int64_t i) { return grad[i] * output[i]; });
  for (int64_t i = 0; i < n; ++i) {
    z[i] = output[i] * (grad[i] - total);
  }
}

// grad - exp(output) sum(grad)
template <class C>
void log_softmax_backward_line(const C* grad, const C* output, C* z, int64_t n) {
  const C total = sum_of<C>(n, [=](int64_t i) { return grad[i]; });
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    z[i] = grad[i] - portable::exp(output[i]) * total;
  }
}

constexpr char kSoftmax[] = "_softmax.out";
constexpr char kLogSoftmax[] = "_log_softmax.out";
constexpr char kSoftmaxBackward[] = "_softmax_backward_data.out";
constexpr char kLogSoftmaxBackward[] = "_log_softmax_backward_data.out";

bool takes(KernelRuntimeContext& context, const char* name, const Tensor& x, const Tensor* y,
           const Tensor& out) {
  OPSMITH_CHECK(context, is_floating(x.scalar_type()), NotSupported, false, "\"%s\" not implemented for '%s'",
                name, name_of(x.scalar_type()));
  if (!out_is(context, x.scalar_type(), out)) {
    return false;
  }
  OPSMITH_CHECK(context, y == nullptr || (sizes_of(*y) == sizes_of(x) && y->scalar_type() == x.scalar_type()),
                InvalidArgument, false, "%s: grad_output and output must have the same sizes and dtype",
                name);
  OPSMITH_CHECK(context, is_floating(out.scalar_type()), NotSupported, false,
                "\"%s\" not implemented for '%s'", name, name_of(out.scalar_type()));
  return true;
}

// `out` from the lines of x and, where there is one, y, whose shape it gets; line_of(Type<C>) is what
// computes one.
template <const char* Name, class LineOf>
Tensor& over_lines(KernelRuntimeContext& context, const Tensor& x, const Tensor* y, int64_t dim, Tensor& out,
                   const LineOf& line_of) {
  const Tensor& shaped = y != nullptr ? *y : x;
  const int64_t d = wrap_dim(context, dim, shaped.dim());
  if (d >= 0 && takes(context, Name, x, y, out) && resize(context, out, sizes_of(shaped)) &&
      one_dim_order(context, {&out, &x})) {
    const ScalarType dtype = y != nullptr ? y->scalar_type() : out.scalar_type();
    with_compute_dtype<Name>(context, Floating{}, dtype, [&](auto type) {
      using C = typename decltype(type)::type;
      for_each_line<C>(context, x, y, d, out, line_of(type));
    });
  }
  return out;
}

// A device's operator may have a result of Float for an operand of Half.
template <const char* Name, class LineOf>
Tensor& softmax(KernelRuntimeContext& context, const Tensor& self, int64_t dim, bool half_to_float,
                Tensor& out, const LineOf& line_of) {
  OPSMITH_CHECK(context, !half_to_float || !in_executorch(), InvalidArgument, out,
                "softmax with half to float conversion is not supported");
  return over_lines<Name>(context, self, nullptr, dim, out, line_of);
}

}  // namespace

namespace native {

Tensor& softmax_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, bool half_to_float,
                    Tensor& out) {
  return softmax<kSoftmax>(context, self, dim, half_to_float, out,
                           [](auto type) { return softmax_line<typename decltype(type)::type>; });
}

Tensor& log_softmax_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, bool half_to_float,
                        Tensor& out) {
  return softmax<kLogSoftmax>(context, self, dim, half_to_float, out,
                              [](auto type) { return log_softmax_line<typename decltype(type)::type>; });
}

Tensor& softmax_backward_data_out(KernelRuntimeContext& context, const Tensor& grad_output,
                                  const Tensor& output, int64_t dim, ScalarType, Tensor& grad_input) {
  return over_lines<kSoftmaxBackward>(context, grad_output, &output, dim, grad_input, [](auto type) {
    return softmax_backward_line<typename decltype(type)::type>;
  });
}

Tensor& log_softmax_backward_data_out(KernelRuntimeContext& context, const Tensor& grad_output,
                                      const Tensor& output, int64_t dim, ScalarType, Tensor& out) {
  return over_lines<kLogSoftmaxBackward>(context, grad_output, &output, dim, out, [](auto type) {
    return log_softmax_backward_line<typename decltype(type)::type>;
  });
}

}  // namespace native
}  // namespace opsmith::portable
