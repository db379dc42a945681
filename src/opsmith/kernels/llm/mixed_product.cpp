// mixed_mm and mixed_linear: products of floats with int8 weights, which have a scale for each of their rows
// or, for mixed_linear, for each group in a row. Sums are float32 and rounded once.
#include <algorithm>
#include <optional>

#include "../common/dtypes.h"
#include "../common/parallel.h"
#include "../common/resize.h"
#include "../common/tasks.h"

namespace opsmith::llm::native {
namespace {

using OptionalTensor = std::optional<Tensor>;

constexpr char kMm[] = "quantized_decomposed::mixed_mm.out";
constexpr char kLinear[] = "quantized_decomposed::mixed_linear.out";

// The checks of both.
bool are_taken(KernelRuntimeContext& context, const char* name, const Tensor& input, const Tensor& weight,
               const Tensor& scales, const OptionalTensor& zero_points, const Tensor& out) {
  OPSMITH_CHECK(context, !zero_points.has_value(), NotSupported, false,
                "%s: weights have no zero points: they are symmetric", name);
  OPSMITH_CHECK(context, weight.scalar_type() == ScalarType::Char, NotSupported, false,
                "%s: `weight` is %s, and has to be Char", name, name_of(weight.scalar_type()));
  OPSMITH_CHECK(context,
                (input.scalar_type() == ScalarType::Float || input.scalar_type() == ScalarType::Half) &&
                    scales.scalar_type() == input.scalar_type(),
                NotSupported, false,
                "%s: `input` and `weight_scales` are both Float or both Half, not %s and %s", name,
                name_of(input.scalar_type()), name_of(scales.scalar_type()));
  OPSMITH_CHECK(context, input.dim() == 2 && weight.dim() == 2, InvalidArgument, false,
                "%s: `input` and `weight` have 2 dimensions, not %d and %d", name,
                static_cast<int>(input.dim()), static_cast<int>(weight.dim()));
  return are_contiguous(context, {&input, &weight, &scales, &out});
}

// `count` elements in float32: where they lie, or copied to `memory`.
template <class T>
const float* floats(const T* from, int64_t count, float* memory) {
  if constexpr (std::is_same_v<T, float>) {
    return from;
  } else {
    for (int64_t i = 0; i < count; ++i) {
      memory[i] = load_element(from + i);
    }
    return memory;
  }
}

// Σ x·w in lanes, which compilers make vectors of.
float dot(const float* x, const int8_t* w, int64_t n) {
  constexpr int64_t kLanes = 16;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += x[i + lane] * static_cast<float>(w[i + lane]);
    }
  }
  float sum = 0.0f;
  for (; i < n; ++i) {
    sum += x[i] * static_cast<float>(w[i]);
  }
  for (const float lane : lanes) {
    sum += lane;
  }
  return sum;
}

}  // namespace

// [m, k] x [k, n], with a scale for each k.
Tensor& mixed_mm_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight,
                     const Tensor& weight_scales, const OptionalTensor& weight_zero_points, Tensor& out) {
  if (!are_taken(context, "mixed_mm", input, weight, weight_scales, weight_zero_points, out) ||
      !same_dtype(context, input, out)) {
    return out;
  }
  const int64_t m = input.sizes()[0], k = input.sizes()[1], n = weight.sizes()[1];
  OPSMITH_CHECK(context, weight.sizes()[0] == k && weight_scales.dim() == 1 && weight_scales.sizes()[0] == k,
                InvalidArgument, out,
                "mixed_mm: `weight` has as many rows as `input` has columns, and a scale for each of them");
  if (!resize(context, out, {m, n}) || out.numel() == 0) {
    return out;
  }
  with_dtype<kMm>(context, Types<float, Half>{}, input.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    const int8_t* const w = weight.const_data_ptr<int8_t>();
    const T *const x = input.const_data_ptr<T>(), *const scales = weight_scales.const_data_ptr<T>();
    run_tasks<float>(context, m, grain_size(k * n), n, [&](int64_t row, float* sums) {
      std::fill_n(sums, n, 0.0f);
      for (int64_t i = 0; i < k; ++i) {
        const float factor = load_element(x + row * k + i) * load_element(scales + i);
        for (int64_t j = 0; j < n; ++j) {
          sums[j] += factor * static_cast<float>(w[i * n + j]);
        }
      }
      T* const to = out.mutable_data_ptr<T>() + row * n;
      for (int64_t j = 0; j < n; ++j) {
        store_element(to + j, sums[j]);
      }
    });
  });
  return out;
}

// [m, k] x [n, k]ᵀ, with a scale for each n, or for each group of its k.
Tensor& mixed_linear_out(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight,
                         const Tensor& weight_scales, const OptionalTensor& weight_zero_points,
                         std::optional<ScalarType> dtype, Tensor& out) {
  constexpr const char* kName = "mixed_linear";
  if (!are_taken(context, kName, input, weight, weight_scales, weight_zero_points, out)) {
    return out;
  }
  const ScalarType given = dtype.value_or(input.scalar_type());
  OPSMITH_CHECK(context,
                out.scalar_type() == given && (given == ScalarType::Float || given == ScalarType::Half),
                InvalidArgument, out, "%s: out is %s, and has to be %s", kName, name_of(out.scalar_type()),
                name_of(given));
  const int64_t m = input.sizes()[0], k = input.sizes()[1], n = weight.sizes()[0];
  const int64_t groups = weight_scales.dim() == 2 ? weight_scales.sizes()[1] : 1;
  OPSMITH_CHECK(context,
                weight.sizes()[1] == k && (weight_scales.dim() == 1 || weight_scales.dim() == 2) &&
                    weight_scales.sizes()[0] == n && groups > 0 && k % groups == 0,
                InvalidArgument, out,
                "%s: `weight` has as many columns as `input`, and a scale for each row, or for each of a "
                "row's groups of one length",
                kName);
  if (!resize(context, out, {m, n}) || out.numel() == 0) {
    return out;
  }
  with_dtype<kLinear>(context, Types<float, Half>{}, input.scalar_type(), [&](auto from) {
    using T = typename decltype(from)::type;
    with_dtype<kLinear>(context, Types<float, Half>{}, out.scalar_type(), [&](auto to) {
      using O = typename decltype(to)::type;
      const int8_t* const w = weight.const_data_ptr<int8_t>();
      const T* const scales = weight_scales.const_data_ptr<T>();
      const auto widened = temporary<float>(context, std::is_same_v<T, float> ? 0 : m * k);
      if (widened == nullptr) {
        return;
      }
      const float* const x = floats(input.const_data_ptr<T>(), m * k, widened.get());
      O* const y = out.mutable_data_ptr<O>();
      const int64_t length = k / groups;
      // A row of the weight, while it is in the cache, for all of the input.
      parallel(n, grain_size(m * k), [&](int64_t begin, int64_t end) {
        for (int64_t column = begin; column < end; ++column) {
          for (int64_t row = 0; row < m; ++row) {
            float sum = 0.0f;
            for (int64_t g = 0; g < groups; ++g) {
              const int64_t at = g * length;
              sum += load_element(scales + column * groups + g) *
                     dot(x + row * k + at, w + column * k + at, length);
            }
            store_element(y + row * n + column, sum);
          }
        }
      });
    });
  });
  return out;
}

}  // namespace opsmith::llm::native
