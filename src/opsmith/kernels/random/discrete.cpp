// The discrete distributions: integers, decisions, trials. PyTorch's own templates check the arguments; here
// is what they call to draw.
#include <cmath>
#include <limits>
#include <type_traits>

#include <opsmith/device/capture.h>

#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/DistributionTemplates.h>

#include "elements.h"
#include "probability.h"

namespace opsmith::random_kernels {
namespace {

namespace templates = at::native::templates;

// The widest range that one number of 32 bits is spread over: each integer's probability is right to 2^-8 of
// it.
constexpr uint64_t kNarrow = uint64_t{1} << 24;

// Integers from `offset` on, `range` of them; 0 stands for 2^64.
template <class T>
void draw_integers(const at::Tensor& self, const Generator& generator, uint64_t range, int64_t offset) {
  if (range != 0 && range <= kNarrow) {
    draw<T>(self, generator, 1, [=](const uint32_t* numbers, T* out, int64_t count) {
      std::array<int64_t, kPart> values;
      integers(numbers, values.data(), count, static_cast<uint32_t>(range), offset);
      for (int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<T>(values[i]);
      }
    });
    return;
  }
  draw<T>(self, generator, 2, [=](const uint32_t* numbers, T* out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t number = wide(numbers + 2 * i);
      const auto spread = static_cast<uint64_t>(static_cast<unsigned __int128>(number) * range >> 64);
      const uint64_t value = static_cast<uint64_t>(offset) + (range == 0 ? number : spread);
      out[i] = static_cast<T>(static_cast<int64_t>(value));
    }
  });
}

// How many integers random_() without bounds draws from: those from 0 on that the type holds, each exactly.
template <class T>
constexpr uint64_t integers_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return 2;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(std::numeric_limits<T>::max()) + 1;
  } else {
    return (uint64_t{1} << std::numeric_limits<T>::digits) + 1;
  }
}

template <class F>
void with_real_type(const at::TensorBase& self, const F& f) {
  AT_DISPATCH_V2(self.scalar_type(), "random numbers", AT_WRAP([&] { f.template operator()<scalar_t>(); }),
                 AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool, at::kHalf,
                 at::kBFloat16);
}

// Classes as PyTorch's templates ask for them, with a parameter that they give the generator's type.
template <class>
struct Random {
  void operator()(at::TensorIteratorBase& iter, const Generator& generator) const {
    const at::Tensor self = iter.output();
    with_real_type(self, [&]<class T>() { draw_integers<T>(self, generator, integers_of<T>(), 0); });
  }
};

template <class>
struct RandomBetween {
  void operator()(at::TensorIteratorBase& iter, uint64_t range, int64_t from,
                  const Generator& generator) const {
    const at::Tensor self = iter.output();
    with_real_type(self, [&]<class T>() { draw_integers<T>(self, generator, range, from); });
  }

  // All that int64 holds.
  void operator()(at::TensorIteratorBase& iter, const Generator& generator) const {
    (*this)(iter, 0, std::numeric_limits<int64_t>::lowest(), generator);
  }
};

template <class>
struct Bernoulli {
  void operator()(const at::Tensor& self, double p, const Generator& generator) const {
    const std::optional<uint32_t> last = last_of(p);
    with_real_type(self, [&]<class T>() {
      draw<T>(self, generator, 1, [=](const uint32_t* numbers, T* out, int64_t count) {
        std::array<uint8_t, kPart> decided{};
        if (last.has_value()) {
          at_most(numbers, decided.data(), count, *last);
        }
        for (int64_t i = 0; i < count; ++i) {
          out[i] = static_cast<T>(decided[i]);
        }
      });
    });
  }
};

template <class>
struct BernoulliOfEach {
  void operator()(const at::Tensor& self, const at::Tensor& probabilities, const Generator& generator) const {
    const at::Tensor p = at::expand_inplace(self, probabilities)->to(at::kDouble).contiguous();
    const InOrder written(self);
    refuse_if_captured("bernoulli_", "the probabilities are checked on the host", current_device());
    wait_for_device(current_device());  // p may be a copy that is still being made
    const double* const each = host_data<const double>(p);
    TORCH_CHECK(std::all_of(each, each + p.numel(), [](double one) { return 0 <= one && one <= 1; }),
                "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message be "
                "improved?  If "
                "so, please report an enhancement request to PyTorch.)");
    const PhiloxNumbers taken = take_philox_numbers(static_cast<uint64_t>(self.numel()), generator);
    with_real_type(self, [&]<class T>() {
      T* const out = written.data<T>();
      each_part(taken, self.numel(), 1, [&](const uint32_t* numbers, int64_t first, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          out[first + i] = static_cast<T>(numbers[i] < each[first + i] * 0x1p32 ? 1 : 0);
        }
      });
    });
    written.finish();
  }
};

// How many trials until the first success.
template <class>
struct Geometric {
  void operator()(at::TensorIteratorBase& iter, double p, const Generator& generator) const {
    const at::Tensor self = iter.output();
    with_real_type(self, [&]<class T>() {
      draw<T>(self, generator, 2,
              [scale = 1 / std::log1p(-p)](const uint32_t* numbers, T* out, int64_t count) {
                for (int64_t i = 0; i < count; ++i) {
                  const double trials = std::ceil(std::log(above_zero(numbers + 2 * i)) * scale);
                  out[i] = static_cast<T>(std::max(trials, 1.0));
                }
              });
    });
  }
};

struct ThisDevice;

}  // namespace

at::Tensor& random_(at::Tensor& self, Generator generator) {
  return templates::random_impl<Random, ThisDevice>(self, generator);
}

at::Tensor& random_from(at::Tensor& self, int64_t from, std::optional<int64_t> to, Generator generator) {
  return templates::random_from_to_impl<RandomBetween, ThisDevice>(self, from, to, generator);
}

at::Tensor& random_to(at::Tensor& self, int64_t to, Generator generator) {
  return random_from(self, 0, to, generator);
}

at::Tensor& bernoulli_(at::Tensor& self, double p, Generator generator) {
  return templates::bernoulli_impl_<Bernoulli, ThisDevice>(self, p, generator);
}

at::Tensor& bernoulli_of_each_(at::Tensor& self, const at::Tensor& p, Generator generator) {
  return templates::bernoulli_impl_<BernoulliOfEach, ThisDevice>(self, p, generator);
}

at::Tensor& bernoulli_out(const at::Tensor& self, Generator generator, at::Tensor& out) {
  return templates::bernoulli_out_impl<BernoulliOfEach, ThisDevice>(out, self, generator);
}

at::Tensor& geometric_(at::Tensor& self, double p, Generator generator) {
  return templates::geometric_impl_<Geometric, ThisDevice>(self, p, generator);
}

}  // namespace opsmith::random_kernels
