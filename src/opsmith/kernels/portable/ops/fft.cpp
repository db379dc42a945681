// _fft_r2c, _fft_c2r and _fft_c2c: discrete Fourier transforms along some dimensions, calculated in double.
//
// A length whose prime factors are small is split into them (Stockham's autosort of Cooley and Tukey's
// algorithm); others are convolved with a chirp by transforms of a power of two (Bluestein's algorithm).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "../../common/dtypes.h"
#include "../../common/parallel.h"
#include "../../common/resize.h"
#include "../../common/tasks.h"
#include "../../common/temporary.h"

namespace opsmith::portable::native {
namespace {

constexpr double kPi = 3.14159265358979323846;
// Larger prime factors are not worth their square.
constexpr int64_t kMostFactor = 31;

struct Complex {
  double re, im;
};
inline Complex operator+(Complex a, Complex b) {
  return {a.re + b.re, a.im + b.im};
}
inline Complex operator*(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
inline Complex conjugate(Complex a) {
  return {a.re, -a.im};
}

// e^(-2πi·k/n), k within 0…n: an angle within an eighth of a turn of the nearest quarter, which is exact.
Complex root(int64_t k, int64_t n) {
  const int64_t quarter = (8 * k + n) / (2 * n);
  const double angle = kPi / 2 * static_cast<double>(4 * k - quarter * n) / static_cast<double>(n);
  const double cosine = std::cos(angle), sine = std::sin(angle);
  switch (quarter % 4) {
    case 0:
      return {cosine, -sine};
    case 1:
      return {-sine, -cosine};
    case 2:
      return {-cosine, sine};
    default:
      return {sine, cosine};
  }
}

void set_roots(Complex* roots, int64_t n) {
  for (int64_t k = 0; k < n; ++k) {
    roots[k] = root(k, n);
  }
}

int64_t least_factor(int64_t n) {
  for (int64_t factor = 2; factor * factor <= n; ++factor) {
    if (n % factor == 0) {
      return factor;
    }
  }
  return n;
}

bool has_small_factors(int64_t n) {
  while (n > 1) {
    const int64_t factor = least_factor(n);
    if (factor > kMostFactor) {
      return false;
    }
    n /= factor;
  }
  return true;
}

// The transform of x, of n elements whose factors are small; `other` is as large. The result is in x.
void transform_by_factors(Complex* x, Complex* other, int64_t n, const Complex* roots) {
  Complex* from = x;
  Complex* to = other;
  int64_t stride = 1;
  for (int64_t rest = n; rest > 1;) {
    const int64_t radix = least_factor(rest), part = rest / radix;
    for (int64_t p = 0; p < part; ++p) {
      for (int64_t k = 0; k < radix; ++k) {
        const Complex twiddle = roots[p * k * stride % n];
        Complex* const row = to + stride * (radix * p + k);
        for (int64_t q = 0; q < stride; ++q) {
          Complex sum = from[q + stride * p];
          for (int64_t i = 1; i < radix; ++i) {
            sum = sum + from[q + stride * (p + i * part)] * roots[i * k % radix * (n / radix)];
          }
          row[q] = sum * twiddle;
        }
      }
    }
    std::swap(from, to);
    stride *= radix;
    rest = part;
  }
  if (from != x) {
    std::copy_n(from, n, x);
  }
}

// Transforms of one length.
class Transform {
 public:
  // False, with the call rejected, without memory.
  bool prepare(KernelRuntimeContext& context, int64_t n) {
    n_ = n;
    if (has_small_factors(n)) {
      roots_ = temporary<Complex>(context, n);
      if (roots_ == nullptr) {
        return false;
      }
      set_roots(roots_.get(), n);
      return true;
    }
    for (wide_ = 1; wide_ < 2 * n - 1; wide_ *= 2) {
    }
    roots_ = temporary<Complex>(context, wide_);
    chirp_ = temporary<Complex>(context, n);
    spectrum_ = temporary<Complex>(context, 2 * wide_);
    if (roots_ == nullptr || chirp_ == nullptr || spectrum_ == nullptr) {
      return false;
    }
    set_roots(roots_.get(), wide_);
    Complex* const spectrum = spectrum_.get();
    std::fill_n(spectrum, wide_, Complex{0, 0});
    for (int64_t k = 0; k < n; ++k) {
      chirp_[k] = root(k * k % (2 * n), 2 * n);
      spectrum[k] = spectrum[(wide_ - k) % wide_] = conjugate(chirp_[k]);
    }
    transform_by_factors(spectrum, spectrum + wide_, wide_, roots_.get());
    return true;
  }

  int64_t size() const { return n_; }
  // Of the memory that run() needs beside x.
  int64_t memory() const { return wide_ == 0 ? n_ : 2 * wide_; }

  void run(Complex* x, Complex* memory, bool forward) const {
    // The inverse is the conjugate of the conjugates' transform.
    for (int64_t k = 0; !forward && k < n_; ++k) {
      x[k] = conjugate(x[k]);
    }
    if (wide_ == 0) {
      transform_by_factors(x, memory, n_, roots_.get());
    } else {
      convolve(x, memory);
    }
    for (int64_t k = 0; !forward && k < n_; ++k) {
      x[k] = conjugate(x[k]);
    }
  }

 private:
  void convolve(Complex* x, Complex* memory) const {
    const Complex* const spectrum = spectrum_.get();
    std::fill_n(memory, wide_, Complex{0, 0});
    for (int64_t k = 0; k < n_; ++k) {
      memory[k] = x[k] * chirp_[k];
    }
    transform_by_factors(memory, memory + wide_, wide_, roots_.get());
    for (int64_t k = 0; k < wide_; ++k) {
      memory[k] = conjugate(memory[k] * spectrum[k]);
    }
    transform_by_factors(memory, memory + wide_, wide_, roots_.get());
    const double scale = 1.0 / static_cast<double>(wide_);
    for (int64_t k = 0; k < n_; ++k) {
      const Complex sum = conjugate(memory[k]);
      x[k] = Complex{sum.re * scale, sum.im * scale} * chirp_[k];
    }
  }

  int64_t n_ = 0;
  int64_t wide_ = 0;  // 0: the length's factors are small
  Temporary<Complex> roots_, chirp_, spectrum_;
};

// body(line's first element, memory) of all lines of `sizes` along `dim`, which are `inner` apart.
template <class Body>
bool for_lines(KernelRuntimeContext& context, const Dims& sizes, int64_t dim, int64_t memory_of_line,
               const Body& body) {
  const int64_t inner = sizes.product(dim + 1, sizes.rank), length = sizes[dim];
  const int64_t lines = sizes.product(0, dim) * inner;
  return run_tasks<Complex>(context, lines, grain_size(8 * length), memory_of_line,
                            [&](int64_t line, Complex* memory) {
                              body(line / inner * length * inner + line % inner, inner, memory);
                            });
}

// Transforms `data`, of the sizes, in place along the dimension.
bool transform(KernelRuntimeContext& context, Complex* data, const Dims& sizes, int64_t dim, bool forward) {
  Transform plan;
  const int64_t n = sizes[dim];
  return plan.prepare(context, n) &&
         for_lines(context, sizes, dim, n + plan.memory(), [&](int64_t at, int64_t step, Complex* memory) {
           for (int64_t k = 0; k < n; ++k) {
             memory[k] = data[at + k * step];
           }
           plan.run(memory, memory + n, forward);
           for (int64_t k = 0; k < n; ++k) {
             data[at + k * step] = memory[k];
           }
         });
}

// Element i of a contiguous tensor.
Complex number(const Tensor& tensor, int64_t i) {
  const void* const data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case ScalarType::Float:
      return {static_cast<const float*>(data)[i], 0};
    case ScalarType::Double:
      return {static_cast<const double*>(data)[i], 0};
    case ScalarType::ComplexFloat:
      return {static_cast<const float*>(data)[2 * i], static_cast<const float*>(data)[2 * i + 1]};
    default:
      return {static_cast<const double*>(data)[2 * i], static_cast<const double*>(data)[2 * i + 1]};
  }
}

void put(Tensor& tensor, int64_t i, Complex value, double scale) {
  void* const data = tensor.mutable_data_ptr();
  const double re = value.re * scale, im = value.im * scale;
  switch (tensor.scalar_type()) {
    case ScalarType::Float:
      static_cast<float*>(data)[i] = static_cast<float>(re);
      break;
    case ScalarType::Double:
      static_cast<double*>(data)[i] = re;
      break;
    case ScalarType::ComplexFloat:
      static_cast<float*>(data)[2 * i] = static_cast<float>(re);
      static_cast<float*>(data)[2 * i + 1] = static_cast<float>(im);
      break;
    default:
      static_cast<double*>(data)[2 * i] = re;
      static_cast<double*>(data)[2 * i + 1] = im;
  }
}

// The tensor's elements, or null with the call rejected.
Temporary<Complex> loaded(KernelRuntimeContext& context, const Tensor& tensor) {
  auto data = temporary<Complex>(context, tensor.numel());
  for (int64_t i = 0; data != nullptr && i < tensor.numel(); ++i) {
    data[i] = number(tensor, i);
  }
  return data;
}

// The factor of the sums, where `count` elements are added up: by fft_norm_mode of ATen.
double scale_of(int64_t normalization, double count) {
  return normalization == 1 ? 1 / std::sqrt(count) : normalization == 2 ? 1 / count : 1.0;
}

// The dimensions, counted from the front; false, with the call rejected, where they are none of self's.
bool dims_of(KernelRuntimeContext& context, const Tensor& self, IntList dim, int64_t normalization,
             Dims& dims) {
  OPSMITH_CHECK(context, normalization >= 0 && normalization <= 2, InvalidArgument, false,
                "a transform's normalization is 0, 1 or 2, not %" PRId64, normalization);
  DimSet named = 0;
  if (!named_dims(context, dim, self.dim(), named)) {
    return false;
  }
  OPSMITH_CHECK(context, self.dim() > 0 || dim.empty(), InvalidArgument, false,
                "a number without dimensions has no transform");
  for (const int64_t each : dim) {
    // torch.fft counts them so; neither ATen's kernels nor the runtime's take others.
    OPSMITH_CHECK(context, each >= 0, NotFound, false,
                  "a transform's dimensions are counted from the front, and %" PRId64 " is not", each);
    dims.push_back(each);
  }
  for (int64_t d = 0; d < dims.rank; ++d) {
    OPSMITH_CHECK(context, self.sizes()[dims[d]] > 0, InvalidArgument, false,
                  "Invalid number of data points (0) specified");
  }
  return true;
}

bool has_parts(KernelRuntimeContext& context, const char* name, const Tensor& self, bool self_is_complex,
               const Tensor& out, bool out_is_complex) {
  const bool is_double =
      self.scalar_type() == ScalarType::Double || self.scalar_type() == ScalarType::ComplexDouble;
  const ScalarType real = is_double ? ScalarType::Double : ScalarType::Float;
  const ScalarType complex = is_double ? ScalarType::ComplexDouble : ScalarType::ComplexFloat;
  OPSMITH_CHECK(context, self.scalar_type() == (self_is_complex ? complex : real), NotSupported, false,
                "\"%s\" not implemented for '%s'", name, name_of(self.scalar_type()));
  const ScalarType wanted = out_is_complex ? complex : real;
  OPSMITH_CHECK(context, out.scalar_type() == wanted, InvalidArgument, false,
                "%s: out must have the result's dtype, %s, but has %s", name, name_of(wanted),
                name_of(out.scalar_type()));
  return true;
}

}  // namespace

Tensor& fft_r2c_out(KernelRuntimeContext& context, const Tensor& self, IntList dim, int64_t normalization,
                    bool onesided, Tensor& out) {
  Dims dims;
  if (!has_parts(context, "_fft_r2c", self, false, out, true) ||
      !dims_of(context, self, dim, normalization, dims)) {
    return out;
  }
  OPSMITH_CHECK(context, dims.rank > 0, InvalidArgument, out, "_fft_r2c: no dimension is transformed");
  const Dims sizes = sizes_of(self);
  const int64_t last = dims[dims.rank - 1];
  Dims results = sizes;
  results[last] = onesided ? sizes[last] / 2 + 1 : sizes[last];
  if (!resize(context, out, results) || !are_contiguous(context, {&self, &out}) || out.numel() == 0) {
    return out;
  }
  const auto data = loaded(context, self);
  double count = 1;
  for (int64_t d = dims.rank - 1; data != nullptr && d >= 0; --d) {
    count *= static_cast<double>(sizes[dims[d]]);
    if (!transform(context, data.get(), sizes, dims[d], true)) {
      return out;
    }
  }
  const double scale = scale_of(normalization, count);
  const int64_t inner = sizes.product(last + 1, sizes.rank), row = results[last] * inner;
  for (int64_t i = 0; data != nullptr && i < out.numel(); ++i) {
    put(out, i, data[i / row * sizes[last] * inner + i % row], scale);
  }
  return out;
}

Tensor& fft_c2r_out(KernelRuntimeContext& context, const Tensor& self, IntList dim, int64_t normalization,
                    int64_t last_dim_size, Tensor& out) {
  Dims dims;
  if (!has_parts(context, "_fft_c2r", self, true, out, false) ||
      !dims_of(context, self, dim, normalization, dims)) {
    return out;
  }
  OPSMITH_CHECK(context, dims.rank > 0, InvalidArgument, out, "_fft_c2r: no dimension is transformed");
  const Dims sizes = sizes_of(self);
  const int64_t last = dims[dims.rank - 1], half = last_dim_size / 2 + 1;
  OPSMITH_CHECK(context, last_dim_size >= 1, InvalidArgument, out,
                "Invalid number of data points (%" PRId64 ") specified", last_dim_size);
  OPSMITH_CHECK(context, sizes[last] >= half, InvalidArgument, out,
                "_fft_c2r: %" PRId64 " numbers are needed for %" PRId64 " results, and there are %" PRId64,
                half, last_dim_size, sizes[last]);
  Dims results = sizes;
  results[last] = last_dim_size;
  if (!resize(context, out, results) || !are_contiguous(context, {&self, &out}) || out.numel() == 0) {
    return out;
  }
  const auto data = loaded(context, self);
  double count = static_cast<double>(last_dim_size);
  for (int64_t d = 0; data != nullptr && d < dims.rank - 1; ++d) {
    count *= static_cast<double>(sizes[dims[d]]);
    if (!transform(context, data.get(), sizes, dims[d], false)) {
      return out;
    }
  }
  Transform plan;
  if (data == nullptr || !plan.prepare(context, last_dim_size)) {
    return out;
  }
  const double scale = scale_of(normalization, count);
  const Complex* const from = data.get();
  const int64_t n = last_dim_size, length = sizes[last];
  for_lines(context, results, last, n + plan.memory(), [&](int64_t at, int64_t step, Complex* memory) {
    const int64_t source = at / (n * step) * length * step + at % step;
    for (int64_t k = 0; k < half; ++k) {
      const Complex value = from[source + k * step];
      memory[k] = value;
      memory[(n - k) % n] = conjugate(value);
    }
    // Elements that are their own conjugates are real.
    memory[0].im = 0;
    if (n % 2 == 0) {
      memory[n / 2].im = 0;
    }
    plan.run(memory, memory + n, false);
    for (int64_t k = 0; k < n; ++k) {
      put(out, at + k * step, memory[k], scale);
    }
  });
  return out;
}

Tensor& fft_c2c_out(KernelRuntimeContext& context, const Tensor& self, IntList dim, int64_t normalization,
                    bool forward, Tensor& out) {
  Dims dims;
  if (!has_parts(context, "_fft_c2c", self, true, out, true) ||
      !dims_of(context, self, dim, normalization, dims) || !resize_like(context, out, self) ||
      !are_contiguous(context, {&self, &out}) || out.numel() == 0) {
    return out;
  }
  const Dims sizes = sizes_of(self);
  const auto data = loaded(context, self);
  double count = 1;
  for (int64_t d = 0; data != nullptr && d < dims.rank; ++d) {
    count *= static_cast<double>(sizes[dims[d]]);
    if (!transform(context, data.get(), sizes, dims[d], forward)) {
      return out;
    }
  }
  const double scale = scale_of(normalization, count);
  for (int64_t i = 0; data != nullptr && i < out.numel(); ++i) {
    put(out, i, data[i], scale);
  }
  return out;
}

}  // namespace opsmith::portable::native
