// The continuous distributions. PyTorch's own templates check the arguments, and see to complex numbers and
// to tensors of means and standard deviations; here is what they call to draw. float32 and what is computed
// in it is made of one number for each element, float64 of two.
#include <cmath>
#include <limits>
#include <type_traits>

#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/NumericUtils.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/add.h>
#include <ATen/ops/min.h>
#include <ATen/ops/mul.h>

#include "elements.h"

namespace opsmith::random_kernels {
namespace {

namespace templates = at::native::templates;

constexpr double kTurn = 6.28318530717958647692;

// With the elements' type as T.
template <class F>
void with_floating_type(const at::TensorBase& self, const F& f) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "random numbers",
                                  [&] { f.template operator()<scalar_t>(); });
}

// Draws self, of elements of type T: `vectors(numbers, values, count)` makes variates of the standard
// distribution in float32, `one(numbers)` one of them in float64, and `placed` moves and scales a variate.
template <class T, class Vectors, class One, class Placed>
void draw_variates(const at::Tensor& self, const Generator& generator, const Vectors& vectors, const One& one,
                   const Placed& placed) {
  if constexpr (std::is_same_v<T, double>) {
    draw<T>(self, generator, 2, [=](const uint32_t* numbers, T* out, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        out[i] = placed(one(numbers + 2 * i));
      }
    });
  } else {
    draw<T>(self, generator, 1, [=](const uint32_t* numbers, T* out, int64_t count) {
      std::array<float, kPart> values;
      vectors(numbers, values.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<T>(placed(values[i]));
      }
    });
  }
}

template <class T>
void uniform_between(const at::Tensor& self, const Generator& generator, double low, double high) {
  using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto from = static_cast<T>(low);
  const auto to = static_cast<T>(high);
  const auto start = static_cast<Computed>(low);
  const auto width = static_cast<Computed>(high) - start;
  draw_variates<T>(self, generator, uniform, below_one, [=](auto u) {
    // Rounding may reach the end that does not belong to the range.
    const auto value = static_cast<T>(start + u * width);
    return value < to ? value : from;
  });
}

// Two elements of float64 from four numbers.
void normal_pair(const uint32_t* numbers, double* pair) {
  const double length = std::sqrt(-2 * std::log(above_zero(numbers)));
  const double angle = kTurn * below_one(numbers + 2);
  pair[0] = length * std::cos(angle);
  pair[1] = length * std::sin(angle);
}

// Draws self: `placed` makes an element of a normal variate.
template <class T, class Placed>
void draw_normal(const at::Tensor& self, const Generator& generator, const Placed& placed) {
  if constexpr (std::is_same_v<T, double>) {
    draw<T>(self, generator, 2, [=](const uint32_t* numbers, T* out, int64_t count) {
      for (int64_t i = 0; i < count; i += 2) {
        std::array<double, 2> pair;
        normal_pair(numbers + 2 * i, pair.data());
        out[i] = placed(pair[0]);
        if (i + 1 < count) {
          out[i + 1] = placed(pair[1]);
        }
      }
    });
  } else {
    draw<T>(self, generator, 1, [=](const uint32_t* numbers, T* out, int64_t count) {
      std::array<float, kPart> values;
      normal(numbers, values.data(), count + count % 2);
      for (int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<T>(placed(values[i]));
      }
    });
  }
}

// Classes as PyTorch's templates ask for them, with a parameter that they give the generator's type.
template <class>
struct Uniform {
  void operator()(at::TensorIteratorBase& iter, double from, double to, const Generator& generator) const {
    const at::Tensor self = iter.output();
    with_floating_type(self, [&]<class T>() { uniform_between<T>(self, generator, from, to); });
  }
};

template <class>
struct Normal {
  void operator()(const at::Tensor& self, double mean, double std, const Generator& generator) const {
    at::assert_no_internal_overlap(self);
    with_floating_type(self, [&]<class T>() {
      using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;
      draw_normal<T>(self, generator,
                     [mean = static_cast<Computed>(mean), std = static_cast<Computed>(std)](Computed z) {
                       return mean + std * z;
                     });
    });
  }
};

template <class>
struct LogNormal {
  void operator()(at::TensorIteratorBase& iter, double mean, double std, const Generator& generator) const {
    const at::Tensor self = iter.output();
    with_floating_type(self, [&]<class T>() {
      using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;
      draw_normal<T>(self, generator,
                     [mean = static_cast<Computed>(mean), std = static_cast<Computed>(std)](Computed z) {
                       return std::exp(mean + std * z);
                     });
    });
  }
};

// -ln w for w uniform in (0, 1], but never 0, also where that is divided or narrowed.
double exponential_variate(const uint32_t* numbers) {
  return -std::log(above_zero(numbers));
}

template <class>
struct Exponential {
  void operator()(at::TensorIteratorBase& iter, double lambda, const Generator& generator) const {
    const at::Tensor self = iter.output();
    with_floating_type(self, [&]<class T>() {
      using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;
      static constexpr Computed kLeast = std::numeric_limits<Computed>::epsilon() / 2;
      draw_variates<T>(
          self, generator, exponential, exponential_variate,
          [lambda = static_cast<Computed>(lambda)](Computed e) { return std::max(e, kLeast) / lambda; });
    });
  }
};

template <class>
struct Cauchy {
  void operator()(at::TensorIteratorBase& iter, double median, double sigma,
                  const Generator& generator) const {
    const at::Tensor self = iter.output();
    with_floating_type(self, [&]<class T>() {
      using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;
      // Far enough from the ends, where the tangent is infinite.
      static constexpr Computed kMargin = std::numeric_limits<Computed>::epsilon();
      draw_variates<T>(
          self, generator, uniform, below_one,
          [median = static_cast<Computed>(median), sigma = static_cast<Computed>(sigma)](Computed u) {
            const Computed inside = std::clamp(u, kMargin, 1 - kMargin);
            return median + sigma * std::tan(static_cast<Computed>(kTurn / 2) * (inside - Computed{0.5}));
          });
    });
  }
};

struct ThisDevice;

}  // namespace

at::Tensor& uniform_(at::Tensor& self, double from, double to, Generator generator) {
  return templates::uniform_impl_<Uniform, ThisDevice>(self, from, to, generator);
}

at::Tensor& normal_(at::Tensor& self, double mean, double std, Generator generator) {
  return templates::normal_impl_<Normal, ThisDevice>(self, mean, std, generator);
}

at::Tensor normal_of_means(const at::Tensor& mean, double std, Generator generator) {
  return templates::normal_impl<Normal, ThisDevice>(mean, std, generator);
}

at::Tensor normal_of_deviations(double mean, const at::Tensor& std, Generator generator) {
  return templates::normal_impl<Normal, ThisDevice>(mean, std, generator);
}

at::Tensor normal_of_both(const at::Tensor& mean, const at::Tensor& std, Generator generator) {
  return templates::normal_impl<Normal, ThisDevice>(mean, std, generator);
}

at::Tensor& normal_of_means_out(const at::Tensor& mean, double std, Generator generator, at::Tensor& out) {
  return templates::normal_out_impl<Normal, ThisDevice>(out, mean, std, generator);
}

at::Tensor& normal_of_deviations_out(double mean, const at::Tensor& std, Generator generator,
                                     at::Tensor& out) {
  return templates::normal_out_impl<Normal, ThisDevice>(out, mean, std, generator);
}

at::Tensor& normal_of_both_out(const at::Tensor& mean, const at::Tensor& std, Generator generator,
                               at::Tensor& out) {
  return templates::normal_out_impl<Normal, ThisDevice>(out, mean, std, generator);
}

at::Tensor& log_normal_(at::Tensor& self, double mean, double std, Generator generator) {
  return templates::log_normal_impl_<LogNormal, ThisDevice>(self, mean, std, generator);
}

at::Tensor& exponential_(at::Tensor& self, double lambda, Generator generator) {
  return templates::exponential_impl_<Exponential, ThisDevice>(self, lambda, generator);
}

at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, Generator generator) {
  return templates::cauchy_impl_<Cauchy, ThisDevice>(self, median, sigma, generator);
}

}  // namespace opsmith::random_kernels
