// Compiled kernels on disk, for the next process. A file is named by a digest of its key: what was compiled,
// with what and for what. It holds the key too, so that another program of the same digest is not taken for
// this one, and ends with a digest of all before, so that one that was cut short is not loaded.
#pragma once

#include <optional>
#include <string>

namespace driver_parts {

// The binary that was stored for `key`; nothing where there is none that is whole. `kind` names a folder of
// the cache.
std::optional<std::string> cached_binary(const char* kind, const std::string& key);

// Stores it. A cache that cannot be written is no failure: the next process compiles again.
void cache_binary(const char* kind, const std::string& key, const std::string& binary);

}  // namespace driver_parts
