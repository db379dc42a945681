// The operands of one head's attention. Plain data, since every instruction set's code has it.
#pragma once

#include <cstdint>

#include "bfloat16.h"
#include "matmul_operands.h"

namespace opsmith::optimized {

// Keys that are looked at together, and queries: few enough for their scores to stay in the second-level
// cache, and what is packed of the keys in the first. Scores have a pitch that is no power of two, so that a
// column of them does not fall into one set of a cache.
constexpr int64_t kKeyBlock = 256;
constexpr int64_t kQueryBlock = 48;
constexpr int64_t kScorePitch = kKeyBlock + kPanel;

// Rows of a matrix: element (i, j) lies at i·row + j·column.
template <class T>
struct AttentionRows {
  T* data;
  int64_t row;
  int64_t column;
};

// The bias that is added to the scores, of float32 or of the operands' dtype; none where `data` is null.
struct AttentionBias {
  const void* data = nullptr;
  bool is_float = true;
  int64_t row = 0;
  int64_t column = 0;
};

constexpr int64_t whole_panels(int64_t columns) {
  return (columns + kPanel - 1) / kPanel * kPanel;
}

// One head: softmax(scale·query·keyᵀ + bias)·value, in which a causal query i sees the keys up to past + i.
template <class T>
struct Attention {
  AttentionRows<const T> query;
  AttentionRows<const T> key;
  AttentionRows<const T> value;
  AttentionBias bias;
  int64_t queries;
  int64_t keys;
  int64_t dim;        // of queries and keys
  int64_t value_dim;  // of values and results
  float scale;
  bool causal;
  int64_t past = 0;  // keys of before the first query; gradients are of none
};

// The results of the queries between the bounds, and the logarithms of the sums that they were divided by: 0
// where a query sees no key, whose result is 0.
template <class T>
struct AttentionForward : Attention<T> {
  AttentionRows<T> out;
  float* logsumexp;
  int64_t begin;
  int64_t end;
  float* memory;  // attention_memory() of them
};

// How many float32 a call needs for `rows` queries.
constexpr int64_t attention_memory(int64_t rows, int64_t dim, int64_t value_dim) {
  const int64_t wide = whole_panels(dim > value_dim ? dim : value_dim);
  const int64_t packed = kKeyBlock * (whole_panels(dim) + whole_panels(value_dim));
  const int64_t widened = (kKeyBlock + kQueryBlock) * wide;
  return packed + widened + kQueryBlock * kScorePitch + rows * (whole_panels(value_dim) + 2);
}

// The gradients of one head of keys and values, from those of all heads of queries that share it. `gradient`
// and what follows are of the first of these; the others follow at the distances `…_head`.
template <class T>
struct AttentionBackward : Attention<T> {
  AttentionRows<const T> gradient;  // of the result
  AttentionRows<const T> out;       // the result
  const float* logsumexp;
  AttentionRows<T> query_gradient;
  AttentionRows<T> key_gradient;
  AttentionRows<T> value_gradient;
  int64_t heads;
  int64_t query_head;
  int64_t gradient_head;
  int64_t out_head;
  int64_t logsumexp_head;
  int64_t query_gradient_head;
  int64_t bias_head;
  float* memory;  // attention_backward_memory() of them
};

// How many float32 a call needs.
constexpr int64_t attention_backward_memory(int64_t heads, int64_t queries, int64_t dim, int64_t value_dim) {
  const int64_t d = whole_panels(dim), v = whole_panels(value_dim), wide = d > v ? d : v;
  const int64_t packed = kKeyBlock * (2 * d + v), sums = kKeyBlock * (d + v);
  const int64_t widened = kKeyBlock * wide + kQueryBlock * (d + v);
  return packed + sums + widened + 2 * kQueryBlock * kScorePitch + heads * queries * (d + 1) + kPanel;
}

}  // namespace opsmith::optimized
