// Caches of keys and values: [batch, positions, heads, dim], into which a step's positions are written.
#pragma once

#include <cinttypes>
#include <cstdint>

#include "../common/dims.h"

namespace opsmith::llm::native {

using executorch::aten::Tensor;
using executorch::runtime::KernelRuntimeContext;

// Whether `value`, [batch, positions, heads, dim], can be written into the cache; rejects the call where not.
bool fits_cache(KernelRuntimeContext& context, const char* name, const Tensor& value, const Tensor& cache);

// The same from position `start` on.
bool fits_cache_at(KernelRuntimeContext& context, const char* name, const Tensor& value, const Tensor& cache,
                   int64_t start);

// Writes what fits.
void write_cache(const Tensor& value, Tensor& cache, int64_t start);

}  // namespace opsmith::llm::native
