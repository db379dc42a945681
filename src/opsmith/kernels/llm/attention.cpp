// custom_sdpa, sdpa_with_kv_cache and custom_quantized_sdpa: attention over the positions of a cache,
// [batch, positions, heads, dim], where heads of keys and values may each serve several of queries.
//
// A step's queries stand at start_pos and behind. Without a mask they see the positions up to the step's
// last one, or, where it is causal, up to their own; with a mask, which is added to the scores, all of the
// cache. What sees nothing is 0. Quantized operands are made floats of first.
#include <cmath>
#include <optional>

#include "../common/dtypes.h"
#include "../common/resize.h"
#include "../optimized/attention_pieces.h"
#include "../optimized/by_dtype.h"
#include "../optimized/float_functions.h"
#include "cache.h"

namespace opsmith::llm::native {
namespace {

using namespace optimized;  // NOLINT: the library's simd/ is this one's too
using OptionalTensor = std::optional<Tensor>;

// Where the elements of a contiguous tensor lie, and how many positions of it are seen.
struct Layout {
  int64_t batch;
  int64_t head;
  int64_t row;
};

// The parameters of a step.
struct Step {
  const char* name;
  int64_t start;
  bool causal;
  bool heads_first;  // [batch, heads, positions, dim]
  const Tensor* mask = nullptr;
  float scale = 0.0f;
  AttentionSizes sizes{};

  int64_t positions(const Tensor& tensor) const { return tensor.sizes()[heads_first ? 2 : 1]; }
  int64_t heads(const Tensor& tensor) const { return tensor.sizes()[heads_first ? 1 : 2]; }

  Layout layout(int64_t positions, int64_t heads) const {
    const int64_t dim = sizes.dim, batch = positions * heads * dim;
    return heads_first ? Layout{batch, positions * dim, dim} : Layout{batch, dim, heads * dim};
  }
};

// Rejects a step whose Tensors do not belong together; else says what is to be attended.
bool prepare(KernelRuntimeContext& context, Step& step, const Tensor& query, const Tensor& key,
             const Tensor& value, const OptionalTensor& mask, std::optional<double> scale) {
  const char* const name = step.name;
  OPSMITH_CHECK(context, query.dim() == 4 && key.dim() == 4 && value.dim() == 4, InvalidArgument, false,
                "%s: query, key and value have 4 dimensions, not %d, %d and %d", name,
                static_cast<int>(query.dim()), static_cast<int>(key.dim()), static_cast<int>(value.dim()));
  OPSMITH_CHECK(context,
                key.scalar_type() == query.scalar_type() && value.scalar_type() == query.scalar_type(),
                NotSupported, false, "%s: query, key and value have one dtype, not %s, %s and %s", name,
                name_of(query.scalar_type()), name_of(key.scalar_type()), name_of(value.scalar_type()));
  const int64_t queries = step.positions(query), dim = query.sizes()[3], length = step.positions(key);
  const int64_t heads = step.heads(query), key_heads = step.heads(key);
  OPSMITH_CHECK(context,
                sizes_of(key) == sizes_of(value) && key.sizes()[0] == query.sizes()[0] &&
                    key.sizes()[3] == dim && (key_heads == 0 ? heads == 0 : heads % key_heads == 0),
                InvalidArgument, false,
                "%s: query, key and value have one batch and one dim, key and value one shape, and their "
                "heads divide the query's",
                name);
  OPSMITH_CHECK(context, step.start >= 0 && step.start <= length && queries <= length - step.start,
                InvalidArgument, false,
                "%s: %" PRId64 " queries from position %" PRId64 " on do not fit %" PRId64 " keys", name,
                queries, step.start, length);
  OPSMITH_CHECK(context, !mask.has_value() || !step.causal, InvalidArgument, false,
                "%s: a call with a mask is not causal: let the mask say so", name);
  if (mask.has_value()) {
    OPSMITH_CHECK(context,
                  mask->scalar_type() == ScalarType::Float && sizes_of(*mask) == (Dims{queries, length}),
                  InvalidArgument, false, "%s: a mask is Float, of [%" PRId64 " queries, %" PRId64 " keys]",
                  name, queries, length);
    if (!are_contiguous(context, {&*mask})) {
      return false;
    }
    step.mask = &*mask;
  }
  step.scale = static_cast<float>(scale.value_or(dim == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(dim))));
  const int64_t keys = mask.has_value() ? length : step.start + queries;
  step.sizes = {query.sizes()[0], heads, queries, dim, key_heads, keys, dim};
  return are_contiguous(context, {&query, &key, &value});
}

template <class T>
struct Operands {
  const T* query;
  const T* key;
  const T* value;
  Layout keys;
  T* out;
};

template <class T>
bool attend(KernelRuntimeContext& context, const Step& step, const Operands<T>& from,
            AttentionFunction<T>* function) {
  const AttentionSizes& sizes = step.sizes;
  const auto sums = temporary<float>(context, sizes.batch * sizes.heads * sizes.queries);
  if (sums == nullptr) {
    return false;
  }
  const Layout queries = step.layout(sizes.queries, sizes.heads);
  return attend_heads(context, sizes, sums.get(), function,
                      [&](AttentionForward<T>& call, int64_t batch, int64_t head) {
                        const int64_t at = batch * queries.batch + head * queries.head;
                        const int64_t shared = head / sizes.shared();
                        const int64_t key_at = batch * from.keys.batch + shared * from.keys.head;
                        call.query = {from.query + at, queries.row, 1};
                        call.out = {from.out + at, queries.row, 1};
                        call.key = {from.key + key_at, from.keys.row, 1};
                        call.value = {from.value + key_at, from.keys.row, 1};
                        if (step.mask != nullptr) {
                          call.bias = {step.mask->const_data_ptr(), true, sizes.keys, 1};
                        }
                        call.queries = sizes.queries;
                        call.keys = sizes.keys;
                        call.dim = sizes.dim;
                        call.value_dim = sizes.dim;
                        call.scale = step.scale;
                        call.causal = step.causal;
                        call.past = step.start;
                      });
}

// The first `positions` of each sequence as floats, one after the other: row(token, to) makes one's, where
// tokens are counted as they lie in the tensor. Null, with the call rejected, without memory.
template <class Row>
Temporary<float> as_floats(KernelRuntimeContext& context, const Step& step, const Tensor& tensor,
                           int64_t positions, const Row& row) {
  const int64_t dim = step.sizes.dim, batch = step.sizes.batch, heads = step.heads(tensor);
  auto memory = temporary<float>(context, batch * heads * positions * dim);
  if (memory == nullptr) {
    return memory;
  }
  const int64_t outer = step.heads_first ? batch * heads : batch;
  const int64_t tokens = step.heads_first ? positions : positions * heads;
  const int64_t pitch = step.positions(tensor) * (step.heads_first ? 1 : heads);
  float* const to = memory.get();
  parallel(outer * tokens, grain_size(dim), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      row(i / tokens * pitch + i % tokens, to + i * dim);
    }
  });
  return memory;
}

// Of float32, bfloat16 or Half.
template <const char* Name>
Tensor& attend(KernelRuntimeContext& context, const Step& step, const Tensor& query, const Tensor& key,
               const Tensor& value, Tensor& out) {
  if (out.numel() == 0) {
    return out;
  }
  const auto compute = [&](auto type, auto* function) {
    using T = decltype(type);
    attend<T>(
        context, step,
        {static_cast<const T*>(query.const_data_ptr()), static_cast<const T*>(key.const_data_ptr()),
         static_cast<const T*>(value.const_data_ptr()),
         step.layout(step.positions(key), step.sizes.key_heads), static_cast<T*>(out.mutable_data_ptr())},
        function);
  };
  with_dtype<Name>(context, Types<float, Half, BFloat16>{}, query.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    if constexpr (std::is_same_v<T, float>) {
      compute(float{}, OPSMITH_BEST(attention_float));
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      compute(Bfloat16{}, OPSMITH_BEST(attention_bfloat16));
    } else {
      compute(Float16{}, OPSMITH_BEST(attention_float16));
    }
  });
  return out;
}

bool is_result_of(KernelRuntimeContext& context, const Step& step, ScalarType dtype, const Tensor& query,
                  Tensor& out) {
  OPSMITH_CHECK(context, out.scalar_type() == dtype, InvalidArgument, false,
                "%s: out is %s, and has to be %s", step.name, name_of(out.scalar_type()), name_of(dtype));
  return resize_like(context, out, query) && are_contiguous(context, {&out});
}

bool is_taken_dtype(KernelRuntimeContext& context, const Step& step, const Tensor& query) {
  OPSMITH_CHECK(context,
                query.scalar_type() == ScalarType::Float || query.scalar_type() == ScalarType::Half ||
                    query.scalar_type() == ScalarType::BFloat16,
                NotSupported, false, "%s takes Float, Half and BFloat16, not %s", step.name,
                name_of(query.scalar_type()));
  return true;
}

constexpr char kCustom[] = "llama::custom_sdpa.out";
constexpr char kWithCache[] = "llama::sdpa_with_kv_cache.out";

// Integers of 8 bits with a scale and a zero point for each position and head.
struct Quantized {
  const int8_t* integers;
  const float* scales;
  const int8_t* zero_points;
};

bool quantized_of(KernelRuntimeContext& context, const Step& step, const char* what, const Tensor& tensor,
                  const OptionalTensor& zero_points, const OptionalTensor& scales, Quantized& found) {
  OPSMITH_CHECK(context, zero_points.has_value() && scales.has_value(), InvalidArgument, false,
                "%s: %s has no scales or no zero points", step.name, what);
  Dims tokens = sizes_of(tensor);
  tokens[3] = 1;
  OPSMITH_CHECK(context,
                scales->scalar_type() == ScalarType::Float &&
                    zero_points->scalar_type() == ScalarType::Char && sizes_of(*scales) == tokens &&
                    sizes_of(*zero_points) == tokens,
                InvalidArgument, false,
                "%s: %s has a Float scale and a Char zero point for each position and head: the last "
                "dimension is 1",
                step.name, what);
  found = {tensor.const_data_ptr<int8_t>(), scales->const_data_ptr<float>(),
           zero_points->const_data_ptr<int8_t>()};
  return are_contiguous(context, {&*scales, &*zero_points});
}

}  // namespace

Tensor& custom_sdpa_out(KernelRuntimeContext& context, const Tensor& query, const Tensor& key,
                        const Tensor& value, int64_t start_pos, const OptionalTensor& attn_mask,
                        double /*drpout_p*/, bool is_causal, std::optional<double> scale, Tensor& out) {
  Step step{"custom_sdpa", start_pos, is_causal, false};
  if (!is_taken_dtype(context, step, query) || !prepare(context, step, query, key, value, attn_mask, scale) ||
      !is_result_of(context, step, query.scalar_type(), query, out)) {
    return out;
  }
  return attend<kCustom>(context, step, query, key, value, out);
}

Tensor& sdpa_with_kv_cache_out(KernelRuntimeContext& context, const Tensor& query, const Tensor& key,
                               const Tensor& value, Tensor& key_cache, Tensor& value_cache, int64_t start_pos,
                               int64_t seq_len, const OptionalTensor& attn_mask, double /*drpout_p*/,
                               bool is_causal, std::optional<double> scale, Tensor& out) {
  Step step{"sdpa_with_kv_cache", start_pos, is_causal, false};
  if (!is_taken_dtype(context, step, query) ||
      !fits_cache_at(context, step.name, key, key_cache, start_pos) ||
      !fits_cache_at(context, step.name, value, value_cache, start_pos) ||
      !prepare(context, step, query, key_cache, value_cache, attn_mask, scale)) {
    return out;
  }
  OPSMITH_CHECK(context,
                key.sizes()[1] == seq_len && value.sizes()[1] == seq_len && query.sizes()[1] == seq_len,
                InvalidArgument, out, "%s: query, key and value have seq_len, %" PRId64 ", positions",
                step.name, seq_len);
  if (!is_result_of(context, step, query.scalar_type(), query, out)) {
    return out;
  }
  write_cache(key, key_cache, start_pos);
  write_cache(value, value_cache, start_pos);
  return attend<kWithCache>(context, step, query, key_cache, value_cache, out);
}

Tensor& custom_quantized_sdpa_out(KernelRuntimeContext& context, const Tensor& query, const Tensor& key,
                                  const Tensor& value, int64_t start_pos, const OptionalTensor& attn_mask,
                                  double /*drpout_p*/, bool is_causal, std::optional<double> scale,
                                  const OptionalTensor& q_zero_points, const OptionalTensor& q_scales,
                                  const OptionalTensor& k_zero_points, const OptionalTensor& k_scales,
                                  const OptionalTensor& v_zero_points, const OptionalTensor& v_scales,
                                  bool is_seq_at_dim_2, Tensor& out) {
  Step step{"custom_quantized_sdpa", start_pos, is_causal, is_seq_at_dim_2};
  OPSMITH_CHECK(context, query.scalar_type() == ScalarType::Char, NotSupported, out, "%s takes Char, not %s",
                step.name, name_of(query.scalar_type()));
  Quantized q, k, v;
  if (!prepare(context, step, query, key, value, attn_mask, scale) ||
      !quantized_of(context, step, "query", query, q_zero_points, q_scales, q) ||
      !quantized_of(context, step, "key", key, k_zero_points, k_scales, k) ||
      !quantized_of(context, step, "value", value, v_zero_points, v_scales, v) ||
      !is_result_of(context, step, ScalarType::Float, query, out) || out.numel() == 0) {
    return out;
  }
  const int64_t dim = step.sizes.dim, keys = step.sizes.keys;
  const auto dequantized = [&](const Tensor& tensor, const Quantized& from, int64_t positions) {
    return as_floats(context, step, tensor, positions, [&from, dim](int64_t token, float* to) {
      const float factor = from.scales[token];
      const int32_t zero = from.zero_points[token];
      for (int64_t d = 0; d < dim; ++d) {
        to[d] = static_cast<float>(from.integers[token * dim + d] - zero) * factor;
      }
    });
  };
  const auto queries = dequantized(query, q, step.sizes.queries);
  const auto key_floats = dequantized(key, k, keys), value_floats = dequantized(value, v, keys);
  if (queries != nullptr && key_floats != nullptr && value_floats != nullptr) {
    attend<float>(context, step,
                  {queries, key_floats, value_floats, step.layout(keys, step.sizes.key_heads),
                   out.mutable_data_ptr<float>()},
                  OPSMITH_BEST(attention_float));
  }
  return out;
}

}  // namespace opsmith::llm::native
