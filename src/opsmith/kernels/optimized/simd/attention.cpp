// Attention of one head, in blocks of queries and keys whose scores stay in the caches: softmax is taken
// block by block, and what was summed up before is scaled where a block raises the largest score.
//
// The method is that of FlashAttention (Dao et al., 2022, algorithms 1 and 4).
#include "elementary.h"
#include "../attention_operands.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

OPSMITH_INLINE int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

OPSMITH_INLINE float first_lane(F x) {
  float lanes[kLanes];
  store(lanes, x);
  return lanes[0];
}

// n elements in float32, one after the other.
template <class T>
OPSMITH_INLINE void copy_row(const T* from, int64_t column, int64_t n, float* to) {
  if (column != 1) {
    for (int64_t j = 0; j < n; ++j) {
      to[j] = widened_one(from[j * column]);
    }
    return;
  }
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    store(to + j, load(from + j));
  }
  if (j < n) {
    store_some(to + j, load_some(from + j, n - j), n - j);
  }
}

// Some rows as a product reads them, in float32 with neighbours side by side: where they lie, or copied to
// `memory`, whose rows are `pitch` apart and end in zeros.
struct FloatRows {
  const float* data;
  int64_t row;
};
template <class T>
OPSMITH_INLINE FloatRows copied_rows(const AttentionRows<const T>& from, int64_t begin, int64_t rows,
                                     int64_t n, int64_t pitch, float* memory) {
  for (int64_t i = 0; i < rows; ++i) {
    float* const to = memory + i * pitch;
    copy_row(from.data + (begin + i) * from.row, from.column, n, to);
    for (int64_t j = n; j < pitch; ++j) {
      to[j] = 0.0f;
    }
  }
  return {memory, pitch};
}
OPSMITH_INLINE FloatRows float_rows(const AttentionRows<const float>& from, int64_t begin, int64_t rows,
                                    int64_t n, int64_t pitch, float* memory, bool whole) {
  if (from.column == 1 && !(whole && n != pitch)) {
    return {from.data + begin * from.row, from.row};
  }
  return copied_rows(from, begin, rows, n, pitch, memory);
}
template <class T>
OPSMITH_INLINE FloatRows float_rows(const AttentionRows<const T>& from, int64_t begin, int64_t rows,
                                    int64_t n, int64_t pitch, float* memory, bool /*whole*/) {
  return copied_rows(from, begin, rows, n, pitch, memory);
}

// Panels of a block's keys or values: of their transpose, whose depth is n, or as they are.
template <class T>
OPSMITH_INLINE void pack_rows(const AttentionRows<const T>& from, int64_t begin, int64_t rows, int64_t n,
                              bool transposed, float* memory, float* panels) {
  const FloatRows block = float_rows(from, begin, rows, n, whole_panels(n), memory, false);
  if (transposed) {
    pack_float(block.data, 1, block.row, n, rows, panels);
  } else {
    pack_float(block.data, block.row, 1, rows, n, panels);
  }
}

// c = alpha·a·b (+ c) with b's panels, which are `depth` deep, or rows of whole panels.
struct Factor {
  const float* data;
  int64_t row;
  int64_t column;
};
OPSMITH_INLINE void multiply(const Factor& a, const float* b, int64_t b_depth, int64_t b_panel, int64_t rows,
                             int64_t depth, int64_t columns, float alpha, float* c, int64_t c_row,
                             bool accumulates) {
  Matmul<float> matmul;
  matmul.a = a.data;
  matmul.a_row = a.row;
  matmul.a_depth = a.column;
  matmul.b = b;
  matmul.b_depth = b_depth;
  matmul.b_panel = b_panel;
  matmul.c = c;
  matmul.c_row = c_row;
  matmul.columns = columns;
  matmul.depth = depth;
  matmul.alpha = alpha;
  matmul.beta = accumulates ? 1.0f : 0.0f;
  matmul_float(matmul, 0, rows, 0, (columns + kPanel - 1) / kPanel);
}

// How many of a block's keys, from `key` on, the query `row` sees.
template <class T>
OPSMITH_INLINE int64_t seen(const Attention<T>& a, int64_t row, int64_t key, int64_t keys) {
  return a.causal ? most(0, least(keys, a.past + row + 1 - key)) : keys;
}

template <class T>
OPSMITH_INLINE void add_row(const T* bias, int64_t column, float* scores, int64_t n) {
  if (column != 1) {
    for (int64_t j = 0; j < n; ++j) {
      scores[j] += widened_one(bias[j * column]);
    }
    return;
  }
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    store(scores + j, load(scores + j) + load(bias + j));
  }
  if (j < n) {
    store_some(scores + j, load_some(scores + j, n - j) + load_some(bias + j, n - j), n - j);
  }
}

template <class T>
OPSMITH_INLINE void add_bias(const AttentionBias& bias, int64_t row, int64_t key, float* scores, int64_t n) {
  if (bias.data == nullptr) {
    return;
  }
  const int64_t at = row * bias.row + key * bias.column;
  if (bias.is_float) {
    add_row(static_cast<const float*>(bias.data) + at, bias.column, scores, n);
  } else {
    add_row(static_cast<const T*>(bias.data) + at, bias.column, scores, n);
  }
}

// The largest of n scores that `top` is compared with too; NaN is lost, and found by the sum.
OPSMITH_INLINE float largest(const float* scores, int64_t n, float top) {
  F a = splat(top), b = a;
  int64_t j = 0;
  for (; j + 2 * kLanes <= n; j += 2 * kLanes) {
    a = max(load(scores + j), a);
    b = max(load(scores + j + kLanes), b);
  }
  for (; j < n; j += kLanes) {
    const int64_t lanes = least(n - j, kLanes);
    a = max(lanes_or(load_some(scores + j, lanes), lanes, splat(-kInfinity)), a);
  }
  return max_lane(max(a, b));
}

// e^(score - shift) in the scores' place, with zeros up to `whole`; gives their sum.
OPSMITH_INLINE float exponentials(float* scores, int64_t n, int64_t whole, float shift) {
  const F top = splat(shift);
  F a = zero(), b = zero();
  int64_t j = 0;
  for (; j + 2 * kLanes <= n; j += 2 * kLanes) {
    const F x = exp(load(scores + j) - top), y = exp(load(scores + j + kLanes) - top);
    store(scores + j, x);
    store(scores + j + kLanes, y);
    a = a + x;
    b = b + y;
  }
  for (; j < n; j += kLanes) {
    const int64_t lanes = least(n - j, kLanes);
    const F x = lanes_or(exp(load_some(scores + j, lanes) - top), lanes, zero());
    store_some(scores + j, x, least(whole - j, kLanes));
    b = b + x;
  }
  for (; j < whole; ++j) {
    scores[j] = 0.0f;
  }
  return sum(a + b);
}

OPSMITH_INLINE bool is_any_nan(const float* scores, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    if (scores[j] != scores[j]) {
      return true;
    }
  }
  return false;
}

// y = factor·x of n elements.
template <class T>
OPSMITH_INLINE void scale_row(const float* x, float factor, T* y, int64_t column, int64_t n) {
  const F by = splat(factor);
  int64_t j = 0;
  if (column == 1) {
    for (; j + kLanes <= n; j += kLanes) {
      store(y + j, load(x + j) * by);
    }
    if (j < n) {
      store_some(y + j, load_some(x + j, n - j) * by, n - j);
    }
    return;
  }
  for (; j < n; ++j) {
    store_some(y + j * column, splat(x[j]) * by, 1);
  }
}

// The online softmax of each query so far.
struct Rows {
  float* sums;    // Σ e^(score - top)·value
  float* tops;    // the largest score
  float* totals;  // Σ e^(score - top)
  int64_t pitch;
};

// The scores of a block of queries with a block of keys become weights, and the sums of before are scaled.
template <class T>
OPSMITH_INLINE void weigh(const Attention<T>& a, const Rows& known, int64_t row, int64_t rows, int64_t key,
                          int64_t keys, float* scores, bool is_first, int64_t begin) {
  for (int64_t i = 0; i < rows; ++i) {
    float* const line = scores + i * kScorePitch;
    const int64_t at = row + i - begin, n = seen(a, row + i, key, keys);
    add_bias<T>(a.bias, row + i, key, line, n);
    const float before = is_first ? -kInfinity : known.tops[at];
    float top = largest(line, n, before);
    if (top == -kInfinity) {
      // Nothing to see, so far; or nothing but NaN.
      const float weight = is_any_nan(line, n) ? __builtin_nanf("") : 0.0f;
      for (int64_t j = 0; j < keys; ++j) {
        line[j] = weight;
      }
      known.totals[at] = weight + (is_first ? 0.0f : known.totals[at]);
      known.tops[at] = top;
      continue;
    }
    const float total = exponentials(line, n, keys, top);
    if (is_first) {
      known.totals[at] = total;
    } else if (before != top) {
      const float factor = first_lane(exp(splat(before - top)));
      known.totals[at] = known.totals[at] * factor + total;
      float* const sums = known.sums + at * known.pitch;
      scale_row(sums, factor, sums, 1, a.value_dim);
    } else {
      known.totals[at] += total;
    }
    known.tops[at] = top;
  }
}

// Σ x·y of n elements, for four rows y; each x is read once.
template <class T>
OPSMITH_INLINE void dot_four(const float* x, const T* y, int64_t row, int64_t n, float scale, float* to) {
  F s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    const F each = load(x + j);
    s0 = fma(each, load(y + j), s0);
    s1 = fma(each, load(y + row + j), s1);
    s2 = fma(each, load(y + 2 * row + j), s2);
    s3 = fma(each, load(y + 3 * row + j), s3);
  }
  if (j < n) {
    const int64_t rest = n - j;
    const F each = lanes_or(load_some(x + j, rest), rest, zero());
    s0 = fma(each, load_some(y + j, rest), s0);
    s1 = fma(each, load_some(y + row + j, rest), s1);
    s2 = fma(each, load_some(y + 2 * row + j, rest), s2);
    s3 = fma(each, load_some(y + 3 * row + j, rest), s3);
  }
  to[0] = sum(s0) * scale;
  to[1] = sum(s1) * scale;
  to[2] = sum(s2) * scale;
  to[3] = sum(s3) * scale;
}

// to = Σ weight·row (+ to) of `keys` rows of n elements, by some vectors of columns at a time.
template <int kVectors, class T>
OPSMITH_INLINE void add_columns(const float* weights, const T* rows, int64_t row, int64_t keys, float* to,
                                bool accumulates) {
  F sums[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = accumulates ? load(to + v * kLanes) : zero();
  }
  for (int64_t k = 0; k < keys; ++k) {
    const F weight = splat(weights[k]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = fma(weight, load(rows + k * row + v * kLanes), sums[v]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    store(to + v * kLanes, sums[v]);
  }
}
template <class T>
OPSMITH_INLINE void add_rows(const float* weights, const T* rows, int64_t row, int64_t keys, int64_t n,
                             float* to, bool accumulates) {
  int64_t j = 0;
  for (; j + 4 * kLanes <= n; j += 4 * kLanes) {
    add_columns<4>(weights, rows + j, row, keys, to + j, accumulates);
  }
  for (; j + kLanes <= n; j += kLanes) {
    add_columns<1>(weights, rows + j, row, keys, to + j, accumulates);
  }
  if (j < n) {
    F rest = accumulates ? load_some(to + j, n - j) : zero();
    for (int64_t k = 0; k < keys; ++k) {
      rest = fma(splat(weights[k]), load_some(rows + k * row + j, n - j), rest);
    }
    store_some(to + j, rest, n - j);
  }
}

// So few queries are not worth packing keys for, where these lie side by side.
constexpr int64_t kFewQueries = 4;

// The scores and sums of a block of keys for few queries, each of which reads the keys where they lie.
template <class T>
OPSMITH_INLINE void attend_few(const AttentionForward<T>& a, const Rows& known, int64_t key, int64_t block,
                               const float* queries, int64_t dim, float* scores) {
  const T* const keys = a.key.data + key * a.key.row;
  for (int64_t row = a.begin; row < a.end; ++row) {
    const float* const query = queries + (row - a.begin) * dim;
    const int64_t n = seen(a, row, key, block);
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
      dot_four(query, keys + k * a.key.row, a.key.row, a.dim, a.scale, scores + k);
    }
    for (; k < n; ++k) {
      float four[4];
      dot_four(query, keys + k * a.key.row, 0, a.dim, a.scale, four);
      scores[k] = four[0];
    }
    weigh<T>(a, known, row, 1, key, block, scores, key == 0, a.begin);
    add_rows(scores, a.value.data + key * a.value.row, a.value.row, n, a.value_dim,
             known.sums + (row - a.begin) * known.pitch, key != 0);
  }
}

template <class T>
OPSMITH_INLINE void forward(const AttentionForward<T>& a) {
  const int64_t dim = whole_panels(a.dim), value_dim = whole_panels(a.value_dim);
  float* const keys_packed = a.memory;
  float* const values_packed = keys_packed + kKeyBlock * dim;
  float* const widened = values_packed + kKeyBlock * value_dim;
  float* const queries = widened + kKeyBlock * most(dim, value_dim);
  float* const scores = queries + kQueryBlock * most(dim, value_dim);
  const int64_t rows = a.end - a.begin;
  float* const sums = scores + kQueryBlock * kScorePitch;
  float* const tops = sums + rows * value_dim;
  const Rows known{sums, tops, tops + rows, value_dim};
  const int64_t all_keys = a.causal ? least(a.keys, a.past + a.end) : a.keys;
  const bool are_few = rows <= kFewQueries && a.key.column == 1 && a.value.column == 1;
  if (are_few) {
    copied_rows(a.query, a.begin, rows, a.dim, dim, queries);
  }
  for (int64_t key = 0; key < all_keys; key += kKeyBlock) {
    const int64_t block = least(kKeyBlock, all_keys - key);
    if (are_few) {
      attend_few(a, known, key, block, queries, dim, scores);
      continue;
    }
    pack_rows(a.key, key, block, a.dim, true, widened, keys_packed);
    pack_rows(a.value, key, block, a.value_dim, false, widened, values_packed);
    // The first queries of a causal block may see none of these keys.
    const int64_t first = a.causal ? most(a.begin, key - a.past) : a.begin;
    for (int64_t row = first; row < a.end; row += kQueryBlock) {
      const int64_t count = least(kQueryBlock, a.end - row);
      const int64_t keys = a.causal ? least(block, a.past + row + count - key) : block;
      const FloatRows query = float_rows(a.query, row, count, a.dim, dim, queries, false);
      multiply({query.data, query.row, 1}, keys_packed, kPanel, a.dim * kPanel, count, a.dim, keys, a.scale,
               scores, kScorePitch, false);
      weigh<T>(a, known, row, count, key, keys, scores, key == 0, a.begin);
      float* const to = sums + (row - a.begin) * value_dim;
      multiply({scores, kScorePitch, 1}, values_packed, kPanel, block * kPanel, count, keys, a.value_dim,
               1.0f, to, value_dim, key != 0);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    const float total = known.totals[i];
    a.logsumexp[a.begin + i] = total == 0.0f ? 0.0f : known.tops[i] + __builtin_logf(total);
    scale_row(sums + i * value_dim, total == 0.0f ? 0.0f : 1.0f / total,
              a.out.data + (a.begin + i) * a.out.row, a.out.column, a.value_dim);
  }
}

// Σ x·y of n elements.
template <class T>
OPSMITH_INLINE float dot(const T* x, int64_t x_column, const T* y, int64_t y_column, int64_t n) {
  if (x_column != 1 || y_column != 1) {
    float total = 0.0f;
    for (int64_t j = 0; j < n; ++j) {
      total += widened_one(x[j * x_column]) * widened_one(y[j * y_column]);
    }
    return total;
  }
  F all = zero();
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    all = fma(load(x + j), load(y + j), all);
  }
  if (j < n) {
    all = fma(lanes_or(load_some(x + j, n - j), n - j, zero()), load_some(y + j, n - j), all);
  }
  return sum(all);
}

// weights·(gradients - shift)·scale in the gradients' place.
OPSMITH_INLINE void score_gradients(const float* weights, float* gradients, int64_t n, float shift,
                                    float scale) {
  const F by = splat(scale), less_by = splat(shift);
  for (int64_t j = 0; j < n; j += kLanes) {
    const int64_t lanes = least(n - j, kLanes);
    const F weight = load_some(weights + j, lanes), gradient = load_some(gradients + j, lanes);
    store_some(gradients + j, weight * (gradient - less_by) * by, lanes);
  }
}

template <class T>
OPSMITH_INLINE void put_rows(const float* sums, int64_t pitch, const AttentionRows<T>& to, int64_t begin,
                             int64_t rows, int64_t n) {
  for (int64_t i = 0; i < rows; ++i) {
    scale_row(sums + i * pitch, 1.0f, to.data + (begin + i) * to.row, to.column, n);
  }
}

OPSMITH_INLINE void clear(float* x, int64_t n) {
  for (int64_t j = 0; j < n; j += kLanes) {
    store_some(x + j, zero(), least(n - j, kLanes));
  }
}

template <class T>
OPSMITH_INLINE void backward(const AttentionBackward<T>& a) {
  const int64_t dim = whole_panels(a.dim), value_dim = whole_panels(a.value_dim);
  float* const keys_packed = a.memory;                              // their transpose's panels
  float* const values_packed = keys_packed + kKeyBlock * dim;       // their transpose's panels
  float* const key_panels = values_packed + kKeyBlock * value_dim;  // of keys as they are
  float* const key_sums = key_panels + kKeyBlock * dim;
  float* const value_sums = key_sums + kKeyBlock * dim;
  float* const widened = value_sums + kKeyBlock * value_dim;
  float* const queries = widened + kKeyBlock * most(dim, value_dim);
  float* const gradients = queries + kQueryBlock * dim;
  float* const weights = gradients + kQueryBlock * value_dim;
  float* const weight_gradients = weights + kQueryBlock * kScorePitch;
  float* const query_sums = weight_gradients + kQueryBlock * kScorePitch;
  float* const shifts = query_sums + a.heads * a.queries * dim;
  clear(query_sums, a.heads * a.queries * dim);
  for (int64_t head = 0; head < a.heads; ++head) {
    for (int64_t i = 0; i < a.queries; ++i) {
      shifts[head * a.queries + i] =
          dot(a.gradient.data + head * a.gradient_head + i * a.gradient.row, a.gradient.column,
              a.out.data + head * a.out_head + i * a.out.row, a.out.column, a.value_dim);
    }
  }
  for (int64_t key = 0; key < a.keys; key += kKeyBlock) {
    const int64_t block = least(kKeyBlock, a.keys - key);
    pack_rows(a.key, key, block, a.dim, true, widened, keys_packed);
    pack_rows(a.key, key, block, a.dim, false, widened, key_panels);
    pack_rows(a.value, key, block, a.value_dim, true, widened, values_packed);
    clear(key_sums, block * dim);
    clear(value_sums, block * value_dim);
    for (int64_t head = 0; head < a.heads; ++head) {
      AttentionRows<const T> query = a.query, gradient = a.gradient;
      query.data += head * a.query_head;
      gradient.data += head * a.gradient_head;
      AttentionBias bias = a.bias;
      if (bias.data != nullptr) {
        const int64_t size = bias.is_float ? sizeof(float) : sizeof(T);
        bias.data = static_cast<const char*>(bias.data) + head * a.bias_head * size;
      }
      for (int64_t row = a.causal ? key : 0; row < a.queries; row += kQueryBlock) {
        const int64_t count = least(kQueryBlock, a.queries - row);
        const int64_t keys = a.causal ? least(block, row + count - key) : block;
        const FloatRows q = float_rows(query, row, count, a.dim, dim, queries, true);
        const FloatRows g = float_rows(gradient, row, count, a.value_dim, value_dim, gradients, true);
        multiply({q.data, q.row, 1}, keys_packed, kPanel, a.dim * kPanel, count, a.dim, keys, a.scale,
                 weights, kScorePitch, false);
        for (int64_t i = 0; i < count; ++i) {
          float* const line = weights + i * kScorePitch;
          const int64_t n = seen(a, row + i, key, keys);
          add_bias<T>(bias, row + i, key, line, n);
          exponentials(line, n, keys, a.logsumexp[head * a.logsumexp_head + row + i]);
        }
        multiply({weights, 1, kScorePitch}, g.data, g.row, kPanel, keys, count, a.value_dim, 1.0f, value_sums,
                 value_dim, true);
        multiply({g.data, g.row, 1}, values_packed, kPanel, a.value_dim * kPanel, count, a.value_dim, keys,
                 1.0f, weight_gradients, kScorePitch, false);
        for (int64_t i = 0; i < count; ++i) {
          score_gradients(weights + i * kScorePitch, weight_gradients + i * kScorePitch, keys,
                          shifts[head * a.queries + row + i], a.scale);
        }
        multiply({weight_gradients, kScorePitch, 1}, key_panels, kPanel, block * kPanel, count, keys, a.dim,
                 1.0f, query_sums + (head * a.queries + row) * dim, dim, true);
        multiply({weight_gradients, 1, kScorePitch}, q.data, q.row, kPanel, keys, count, a.dim, 1.0f,
                 key_sums, dim, true);
      }
    }
    put_rows(key_sums, dim, a.key_gradient, key, block, a.dim);
    put_rows(value_sums, value_dim, a.value_gradient, key, block, a.value_dim);
  }
  for (int64_t head = 0; head < a.heads; ++head) {
    AttentionRows<T> to = a.query_gradient;
    to.data += head * a.query_gradient_head;
    put_rows(query_sums + head * a.queries * dim, dim, to, 0, a.queries, a.dim);
  }
}

}  // namespace

#define OPSMITH_ATTENTION(T, suffix)                                   \
  void attention_##suffix(const AttentionForward<T>& head) {           \
    forward(head);                                                     \
  }                                                                    \
  void attention_gradient_##suffix(const AttentionBackward<T>& head) { \
    backward(head);                                                    \
  }
OPSMITH_ATTENTION(float, float)
OPSMITH_ATTENTION(Bfloat16, bfloat16)
OPSMITH_ATTENTION(Float16, float16)
#undef OPSMITH_ATTENTION

}  // namespace opsmith::optimized::OPSMITH_ISA
