// Tensors made from numbers: full, full_like, scalar_tensor, zeros, ones, empty, arange; and the triangles of
// matrices.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "../movement.h"

namespace opsmith::portable {
namespace {

using executorch::aten::MemoryFormat;

constexpr char kArange[] = "arange.out";
constexpr char kArangeStart[] = "arange.start_out";

// Gives `out` the sizes and puts the number everywhere.
Tensor& filled(KernelRuntimeContext& context, const Dims& sizes, const Scalar& value, Tensor& out) {
  Bytes16 element;
  if (element_of(context, value, out.scalar_type(), element) && resize(context, out, sizes)) {
    fill_strided(sizes, out.element_size(), &element, destination_of(out));
  }
  return out;
}

bool as_sizes(KernelRuntimeContext& context, IntList size, Dims& sizes) {
  OPSMITH_CHECK(context, static_cast<int64_t>(size.size()) <= kMaxDims, NotSupported, false,
                "at most %" PRId64 " dimensions are supported, not %zu", kMaxDims, size.size());
  sizes = Dims(size);
  for (int64_t i = 0; i < sizes.rank; ++i) {
    OPSMITH_CHECK(context, sizes[i] >= 0, InvalidArgument, false,
                  "Trying to create tensor with negative dimension %" PRId64, sizes[i]);
  }
  return true;
}

// How many numbers there are from start, step apart, before end.
bool length_of(KernelRuntimeContext& context, const Scalar& start, const Scalar& end, const Scalar& step,
               bool integers, int64_t& length) {
  const double first = value_of<double>(start);
  const double last = value_of<double>(end);
  const double by = value_of<double>(step);
  OPSMITH_CHECK(context, by != 0, InvalidArgument, false, "step must be nonzero");
  OPSMITH_CHECK(context, std::isfinite(first) && std::isfinite(last), InvalidArgument, false,
                "unsupported range: %g -> %g", first, last);
  OPSMITH_CHECK(context, (by > 0 && last >= first) || (by < 0 && last <= first), InvalidArgument, false,
                "upper bound and lower bound inconsistent with step sign");
  constexpr double kMostElements = 2147483647.0;
  OPSMITH_CHECK(context, !std::isnan(by) && (last - first) / by <= kMostElements, InvalidArgument, false,
                "a range from %g to %g by %g has too many elements", first, last, by);
  if (integers) {
    const int64_t stride = value_of<int64_t>(step);
    const Checked beyond =
        Checked(value_of<int64_t>(end)) - value_of<int64_t>(start) + stride - (stride > 0 ? 1 : -1);
    OPSMITH_CHECK(context, stride != 0, InvalidArgument, false, "step must be nonzero");
    OPSMITH_CHECK(context, beyond.fits(), InvalidArgument, false,
                  "a range from %g to %g by %g goes beyond 64 bits", first, last, by);
    length = beyond.value() / stride;
  } else {
    length = static_cast<int64_t>(std::ceil((last - first) / by));
  }
  return true;
}

template <const char* kName>
Tensor& range(KernelRuntimeContext& context, const Scalar& start, const Scalar& end, const Scalar& step,
              Tensor& out) {
  // In ExecuTorch a range with a fraction is one, of integers as well, each cut off.
  const bool is_cut_off =
      in_executorch() && (start.isFloatingPoint() || end.isFloatingPoint() || step.isFloatingPoint());
  int64_t length = 0;
  if (!length_of(context, start, end, step, out.scalar_type() == ScalarType::Long && !is_cut_off, length) ||
      !resize(context, out, {length})) {
    return out;
  }
  with_dtype<kName>(context, Real{}, out.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    // Integers are calculated with as such, floating point in double: ATen's accumulating types on the CPU.
    using C = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
    const C first = value_of<C>(start);
    const C by = value_of<C>(step);
    T* const to = out.mutable_data_ptr<T>();
    if (std::is_integral_v<T> && is_cut_off) {
      for (int64_t i = 0; i < length; ++i) {
        store_element(to + i, value_of<double>(start) + value_of<double>(step) * static_cast<double>(i));
      }
      return;
    }
    parallel(length, kGrain, [&](int64_t begin, int64_t stop) {
      for (int64_t i = begin; i < stop; ++i) {
        store_element(to + i, static_cast<C>(first + by * static_cast<C>(i)));
      }
    });
  });
  return out;
}

// The elements (i, j) of each matrix with j - i <= diagonal (lower) or >= diagonal, 0 elsewhere.
Tensor& triangle(KernelRuntimeContext& context, const char* name, const Tensor& self, int64_t diagonal,
                 bool lower, Tensor& out) {
  const int64_t rank = self.dim();
  OPSMITH_CHECK(context, rank >= 2, InvalidArgument, out, "%s: input tensor must have at least 2 dimensions",
                name);
  OPSMITH_CHECK(context, self.scalar_type() == out.scalar_type(), InvalidArgument, out,
                "%s: out and self must have one dtype", name);
  OPSMITH_CHECK(context,
                contains(RealB{}, self.scalar_type()) ||
                    executorch::runtime::isComplexType(self.scalar_type()) || self.numel() == 0,
                NotSupported, out, "\"%s.out\" not implemented for '%s'", name, name_of(self.scalar_type()));
  const Dims sizes = sizes_of(self);
  if (!resize(context, out, sizes) || !one_layout(context, {&out, &self}) || out.numel() == 0) {
    return out;
  }
  const Source from = source_of(self);
  const Destination to = destination_of(out);
  const int64_t width = self.element_size();
  const int64_t columns = sizes[rank - 1];
  diagonal = std::clamp(diagonal, -sizes[rank - 2] - 1, columns + 1);  // beyond, all is one part
  const MoveLine move = line_mover(width);
  Dims rows = sizes;
  --rows.rank;
  constexpr Bytes16 kZero{0, 0};
  for_each_place(rows, kGrain / columns, [&](const Dims& at) {
    const int64_t row = at[rank - 2];
    // Columns before `middle` are the lower part, with the diagonal where that belongs to it.
    const int64_t middle = std::clamp<int64_t>(row + diagonal + (lower ? 1 : 0), 0, columns);
    const char* const source = from.data + offset_of(at, from.strides) * width;
    char* const destination = to.data + offset_of(at, to.strides) * width;
    const int64_t p = from.strides[rank - 1];
    const int64_t q = to.strides[rank - 1];
    const char* const zero = reinterpret_cast<const char*>(&kZero);
    if (lower) {
      move(middle, source, p, destination, q);
      move(columns - middle, zero, 0, destination + middle * q * width, q);
    } else {
      move(middle, zero, 0, destination, q);
      move(columns - middle, source + middle * p * width, p, destination + middle * q * width, q);
    }
  });
  return out;
}

}  // namespace

namespace native {

Tensor& full_out(KernelRuntimeContext& context, IntList size, const Scalar& fill_value, Tensor& out) {
  Dims sizes;
  return as_sizes(context, size, sizes) ? filled(context, sizes, fill_value, out) : out;
}

Tensor& full_like_out(KernelRuntimeContext& context, const Tensor& self, const Scalar& fill_value,
                      std::optional<MemoryFormat> memory_format, Tensor& out) {
  return !resize(context, out, sizes_of(self)) || !lies_as_asked(context, self, memory_format, out)
             ? out
             : filled(context, sizes_of(self), fill_value, out);
}

Tensor& zeros_out(KernelRuntimeContext& context, IntList size, Tensor& out) {
  Dims sizes;
  if (as_sizes(context, size, sizes) && resize(context, out, sizes) && out.nbytes() > 0) {
    std::memset(out.mutable_data_ptr(), 0, out.nbytes());  // which every dtype takes for 0
  }
  return out;
}

Tensor& ones_out(KernelRuntimeContext& context, IntList size, Tensor& out) {
  return full_out(context, size, Scalar(1), out);
}

Tensor& scalar_tensor_out(KernelRuntimeContext& context, const Scalar& s, Tensor& out) {
  return filled(context, {}, s, out);
}

Tensor& empty_out(KernelRuntimeContext& context, IntList size, std::optional<MemoryFormat>, Tensor& out) {
  Dims sizes;
  if (as_sizes(context, size, sizes)) {
    resize(context, out, sizes);
  }
  return out;
}

Tensor& arange_out(KernelRuntimeContext& context, const Scalar& end, Tensor& out) {
  return range<kArange>(context, Scalar(0), end, Scalar(1), out);
}

Tensor& arange_start_out(KernelRuntimeContext& context, const Scalar& start, const Scalar& end,
                         const Scalar& step, Tensor& out) {
  return range<kArangeStart>(context, start, end, step, out);
}

Tensor& tril_out(KernelRuntimeContext& context, const Tensor& self, int64_t diagonal, Tensor& out) {
  return triangle(context, "tril", self, diagonal, true, out);
}

Tensor& triu_out(KernelRuntimeContext& context, const Tensor& self, int64_t diagonal, Tensor& out) {
  return triangle(context, "triu", self, diagonal, false, out);
}

}  // namespace native
}  // namespace opsmith::portable
