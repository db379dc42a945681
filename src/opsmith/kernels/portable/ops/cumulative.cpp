// Running sums and products along one dimension, in the dtype that is asked for.
#include "../common_dtype.h"
#include "../reducer.h"

namespace opsmith::portable::native {
namespace {

constexpr char kCumsum[] = "cumsum.out";
constexpr char kCumprod[] = "cumprod.out";

// Floats are added and multiplied in double, as in ATen, and integers as unsigned, which wrap.
template <class C>
using running_t = std::conditional_t<std::is_floating_point_v<C>, double, uint64_t>;

constexpr auto kPlus = [](auto a, auto b) { return a + b; };
constexpr auto kTimes = [](auto a, auto b) { return a * b; };

// Runs over a line's `n` elements.
template <class C, class F>
running_t<C> run(running_t<C> running, const C* in, int64_t in_stride, C* out, int64_t out_stride, int64_t n,
                 const F& f) {
  for (int64_t k = 0; k < n; ++k) {
    running = f(running, static_cast<running_t<C>>(load_element(in + k * in_stride)));
    out[k * out_stride] = convert_value<C>(running);
  }
  return running;
}

// Each line along the dimension; of other dtypes a part at a time: read as C, run over, written in out's.
template <class C, class F>
bool scan(KernelRuntimeContext& context, const Tensor& self, int dim, Tensor& out, running_t<C> start,
          const F& f) {
  const auto at = static_cast<size_t>(dim);
  const Convert read = conversion(self.scalar_type(), dtype_of<C>);
  const Convert write = conversion(dtype_of<C>, out.scalar_type());
  OPSMITH_CHECK(context, read != nullptr && write != nullptr, NotSupported, false,
                "Running sums of %s as %s are not part of this build", name_of(self.scalar_type()),
                name_of(out.scalar_type()));
  StridedIterator<2> lines;
  for (size_t d = 0; d < static_cast<size_t>(self.dim()); ++d) {
    if (d != at) {
      lines.add(self.sizes()[d], {self.strides()[d], out.strides()[d]});
    }
  }
  const bool has_dims = self.dim() > 0;
  const int64_t length = has_dims ? self.sizes()[at] : 1;
  const int64_t in_stride = has_dims ? self.strides()[at] : 1;
  const int64_t out_stride = has_dims ? out.strides()[at] : 1;
  const auto in_size = static_cast<int64_t>(executorch::runtime::elementSize(self.scalar_type()));
  const size_t out_size = executorch::runtime::elementSize(out.scalar_type());
  const bool is_direct = self.scalar_type() == dtype_of<C> && out.scalar_type() == dtype_of<C>;
  parallel(lines.numel(), grain_size(length), [&](int64_t begin, int64_t end) {
    C values[kTile];
    alignas(16) unsigned char converted[kTile * sizeof(int64_t)];
    for (int64_t line = begin; line < end; ++line) {
      const auto offset = lines.offsets(line);
      if (is_direct) {
        run(start, static_cast<const C*>(self.const_data_ptr()) + offset[0], in_stride,
            static_cast<C*>(out.mutable_data_ptr()) + offset[1], out_stride, length, f);
        continue;
      }
      running_t<C> running = start;
      for (int64_t first = 0; first < length; first += kTile) {
        const int64_t n = std::min(kTile, length - first);
        read(static_cast<const char*>(self.const_data_ptr()) + (offset[0] + first * in_stride) * in_size,
             {1, n, 0, in_stride}, values);
        running = run(running, values, 1, values, 1, n, f);
        write(values, {1, n, 0, 1}, converted);
        spread(out_size, converted,
               static_cast<char*>(out.mutable_data_ptr()) +
                   static_cast<size_t>(offset[1] + first * out_stride) * out_size,
               out_stride, n);
      }
    }
  });
  return true;
}

template <const char* Name, class F>
Tensor& cumulative(KernelRuntimeContext& context, const Tensor& self, int64_t dim,
                   std::optional<ScalarType> asked, Tensor& out, int start, const F& f) {
  DimSet dims = 0;
  if (!out_is(context, asked.value_or(out.scalar_type()), out) || !reduced_dim(context, self, dim, dims) ||
      !resize_like(context, out, self) || !one_dim_order(context, {&out, &self}) || out.numel() == 0) {
    return out;
  }
  int along = 0;
  while (self.dim() > 0 && !contains(dims, along)) {
    ++along;
  }
  // Integers of every width are added in 64 bits: they wrap in the same way whenever they are cut off.
  const ScalarType dtype = is_integral(out.scalar_type()) ? ScalarType::Long : out.scalar_type();
  with_compute_dtype<Name>(context, Types<float, double, Half, BFloat16, int64_t, bool>{}, dtype,
                           [&](auto type) {
                             using C = typename decltype(type)::type;
                             scan<C>(context, self, along, out, static_cast<running_t<C>>(start), f);
                           });
  return out;
}

}  // namespace

Tensor& cumsum_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim,
                   std::optional<ScalarType> dtype, Tensor& out) {
  return cumulative<kCumsum>(context, self, dim, dtype, out, 0, kPlus);
}

Tensor& cumprod_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim,
                    std::optional<ScalarType> dtype, Tensor& out) {
  return cumulative<kCumprod>(context, self, dim, dtype, out, 1, kTimes);
}

}  // namespace opsmith::portable::native
