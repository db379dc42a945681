// Pinned host memory: a registry of the ranges that pinned_allocate() handed out. On this driver it is
// ordinary memory; what counts is that copies to and from it do not wait.
#pragma once

#include <cstddef>

namespace sim::pinned {

void* allocate(size_t bytes);  // throws std::bad_alloc
bool release(void* pointer);   // false when it is not the start of a live range
bool contains(const void* pointer);
size_t live_allocations();

}  // namespace sim::pinned
