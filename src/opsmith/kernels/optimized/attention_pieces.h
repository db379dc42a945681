// Attention of all heads, in pieces of queries that threads take; used by every library that attends.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../common/tasks.h"
#include "attention_operands.h"
#include "threads.h"

namespace opsmith::optimized {

template <class T>
using AttentionFunction = void(const AttentionForward<T>& head);

struct AttentionSizes {
  int64_t batch;
  int64_t heads;
  int64_t queries;
  int64_t dim;
  int64_t key_heads;
  int64_t keys;
  int64_t value_dim;

  // Heads of queries to one of keys and values.
  int64_t shared() const { return heads / key_heads; }
};

// set(call, batch, head) says what one head's operands and results are; `logsumexp` is of all queries.
template <class T, class Set>
bool attend_heads(KernelRuntimeContext& context, const AttentionSizes& sizes, float* logsumexp,
                  AttentionFunction<T>* function, const Set& set) {
  // Of queries that share what is packed of the keys, where there are heads enough for all threads.
  constexpr int64_t kPieceRows = 960;
  constexpr int64_t kFewPieces = 8;
  const int64_t heads = sizes.batch * sizes.heads;
  const int64_t pieces_of_head =
      std::max(ceil_divided(sizes.queries, kPieceRows),
               std::min(ceil_divided(kFewPieces, heads), ceil_divided(sizes.queries, 2 * kQueryBlock)));
  // Whole blocks of queries.
  const int64_t rows = ceil_divided(ceil_divided(sizes.queries, pieces_of_head), kQueryBlock) * kQueryBlock;
  const int64_t each = ceil_divided(sizes.queries, rows);
  const int64_t cost = std::min(rows, sizes.queries) * sizes.keys * (sizes.dim + sizes.value_dim) / 16;
  const int64_t memory = attention_memory(rows, sizes.dim, sizes.value_dim);
  return run_tasks<float>(context, heads * each, row_grain_size(cost), memory,
                          [&](int64_t piece, float* own) {
                            const int64_t at = piece / each;
                            AttentionForward<T> call;
                            set(call, at / sizes.heads, at % sizes.heads);
                            call.logsumexp = logsumexp + at * sizes.queries;
                            call.begin = piece % each * rows;
                            call.end = std::min(sizes.queries, call.begin + rows);
                            call.memory = own;
                            function(call);
                          });
}

}  // namespace opsmith::optimized
