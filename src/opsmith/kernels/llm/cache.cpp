// update_cache and update_cache_with_indices. Their result stands for nothing: it is a zero.
#include "cache.h"

#include <cstring>

#include "../common/dtypes.h"
#include "../common/resize.h"

namespace opsmith::llm::native {
namespace {

// Bytes of one position in one sequence of the batch.
size_t position_bytes(const Tensor& tensor) {
  return static_cast<size_t>(tensor.sizes()[2]) * tensor.sizes()[3] * tensor.element_size();
}

// A zero of the value's dtype, as the exporter plans it.
Tensor& put_nothing(Tensor& out) {
  std::memset(out.mutable_data_ptr(), 0, out.nbytes());
  return out;
}

bool is_placeholder(KernelRuntimeContext& context, const Tensor& value, Tensor& out) {
  return same_dtype(context, value, out) && resize(context, out, {1});
}

}  // namespace

bool fits_cache(KernelRuntimeContext& context, const char* name, const Tensor& value, const Tensor& cache) {
  OPSMITH_CHECK(context, value.dim() == 4 && cache.dim() == 4, InvalidArgument, false,
                "%s: a cache and what is written to it are [batch, positions, heads, dim], not of %d and %d "
                "dimensions",
                name, static_cast<int>(cache.dim()), static_cast<int>(value.dim()));
  OPSMITH_CHECK(context, value.scalar_type() == cache.scalar_type(), InvalidArgument, false,
                "%s: what is written has the cache's dtype, %s, not %s", name, name_of(cache.scalar_type()),
                name_of(value.scalar_type()));
  for (const int d : {0, 2, 3}) {
    OPSMITH_CHECK(context, value.sizes()[d] == cache.sizes()[d], InvalidArgument, false,
                  "%s: what is written and the cache have %" PRId64 " and %" PRId64
                  " elements in dimension %d, which have to be as many",
                  name, static_cast<int64_t>(value.sizes()[d]), static_cast<int64_t>(cache.sizes()[d]), d);
  }
  return are_contiguous(context, {&value, &cache});
}

bool fits_cache_at(KernelRuntimeContext& context, const char* name, const Tensor& value, const Tensor& cache,
                   int64_t start) {
  if (!fits_cache(context, name, value, cache)) {
    return false;
  }
  const int64_t positions = cache.sizes()[1], written = value.sizes()[1];
  OPSMITH_CHECK(context, start >= 0 && start <= positions && written <= positions - start, InvalidArgument,
                false, "%s: %" PRId64 " positions from %" PRId64 " on do not fit a cache of %" PRId64, name,
                written, start, positions);
  return true;
}

void write_cache(const Tensor& value, Tensor& cache, int64_t start) {
  const size_t position = position_bytes(value), step = position * value.sizes()[1];
  const auto* from = static_cast<const char*>(value.const_data_ptr());
  char* const to = static_cast<char*>(cache.mutable_data_ptr()) + start * position;
  for (int64_t i = 0; step > 0 && i < value.sizes()[0]; ++i) {
    std::memcpy(to + i * cache.sizes()[1] * position, from + i * step, step);
  }
}

Tensor& update_cache_out(KernelRuntimeContext& context, const Tensor& value, Tensor& cache, int64_t start_pos,
                         Tensor& out) {
  if (!fits_cache_at(context, "update_cache", value, cache, start_pos) ||
      !is_placeholder(context, value, out)) {
    return out;
  }
  write_cache(value, cache, start_pos);
  return put_nothing(out);
}

Tensor& update_cache_with_indices_out(KernelRuntimeContext& context, const Tensor& value, Tensor& cache,
                                      int64_t /*start_pos*/, const Tensor& indices, Tensor& out) {
  constexpr const char* kName = "update_cache_with_indices";
  if (!fits_cache(context, kName, value, cache)) {
    return out;
  }
  OPSMITH_CHECK(context, indices.scalar_type() == ScalarType::Long, InvalidArgument, out,
                "%s: `indices` are Long, not %s", kName, name_of(indices.scalar_type()));
  const int64_t batch = value.sizes()[0], written = value.sizes()[1], positions = cache.sizes()[1];
  OPSMITH_CHECK(context, sizes_of(indices) == (Dims{batch, written}), InvalidArgument, out,
                "%s: there is one index for each position that is written: `indices` are [%" PRId64
                ", %" PRId64 "]",
                kName, batch, written);
  if (!are_contiguous(context, {&indices})) {
    return out;
  }
  const int64_t* const index = indices.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < batch * written; ++i) {
    OPSMITH_CHECK(context, index[i] >= 0 && index[i] < positions, NotFound, out,
                  "%s: the index %" PRId64 " is out of bounds for a cache of %" PRId64 " positions", kName,
                  index[i], positions);
  }
  if (!is_placeholder(context, value, out)) {
    return out;
  }
  const size_t position = position_bytes(value);
  const auto* from = static_cast<const char*>(value.const_data_ptr());
  char* const to = static_cast<char*>(cache.mutable_data_ptr());
  for (int64_t i = 0; position > 0 && i < batch * written; ++i) {
    std::memcpy(to + (i / written * positions + index[i]) * position, from + i * position, position);
  }
  return put_nothing(out);
}

}  // namespace opsmith::llm::native
