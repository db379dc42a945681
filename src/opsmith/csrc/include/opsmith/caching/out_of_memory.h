// The exception for memory that neither the device nor the cache has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>

namespace opsmith::caching {

inline std::string size_text(uint64_t bytes) {
  constexpr std::pair<uint64_t, const char*> kUnits[] = {
      {uint64_t{1} << 30, "GiB"}, {uint64_t{1} << 20, "MiB"}, {uint64_t{1} << 10, "KiB"}};
  for (const auto& [unit, name] : kUnits) {
    if (bytes >= unit) {
      char text[32];
      std::snprintf(text, sizeof(text), "%.2f %s", static_cast<double>(bytes) / static_cast<double>(unit),
                    name);
      return text;
    }
  }
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

struct MemoryShortage {
  size_t asked;
  uint64_t device_free;
  uint64_t device_total;
  uint64_t held;       // by this process, in segments
  uint64_t allocated;  // of that: given to users
  int64_t allocations;
  uint64_t limit;  // of what the process may hold; UINT64_MAX: none
  std::string failure;

  // Free parts of segments of which other parts are in use, or blocks that wait for streams.
  uint64_t cached() const { return held - allocated; }

  // Sentences after "out of memory.", in PyTorch's words as far as programs look for them, but for the last
  // full stop; `purpose` begins with a blank or is empty.
  std::string text(const std::string& purpose) const {
    std::string text = "Tried to allocate " + size_text(asked) + purpose + ": " + size_text(device_free) +
                       " of " + size_text(device_total) + " are free, and this process holds " +
                       size_text(held);
    if (limit != UINT64_MAX) {
      text += " of the " + size_text(limit) + " that it may";
    }
    return text + ": " + size_text(allocated) + " in allocations (" + std::to_string(allocations) + ") and " +
           size_text(cached()) + " in its cache";
  }
};

class OutOfMemory : public std::runtime_error {
 public:
  explicit OutOfMemory(MemoryShortage shortage)
      : std::runtime_error("out of memory. " + shortage.text("")), shortage_(std::move(shortage)) {}

  const MemoryShortage& shortage() const { return shortage_; }

 private:
  MemoryShortage shortage_;
};

}  // namespace opsmith::caching
