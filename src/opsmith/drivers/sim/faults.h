// Fault injection: which calls are to fail or to be slow. Asked by every entry of the driver's table, so each
// question costs one relaxed load while nothing is injected.
#pragma once

#include <opsmith_driver.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace sim::faults {

// The entries that can fail, which is what their faults are called.
inline constexpr std::array kEntries = std::to_array<std::string_view>({
    "device_properties",
    "device_memory",
    "allocate",
    "release",
    "copy",
    "fill",
    "default_stream",
    "stream_create",
    "stream_destroy",
    "stream_query",
    "stream_synchronize",
    "stream_host_function",
    "event_create",
    "event_destroy",
    "event_record",
    "event_query",
    "event_synchronize",
    "event_elapsed",
    "stream_wait_event",
    "pinned_allocate",
    "pinned_release",
    "range_push",
    "range_pop",
    "memory_export",
    "memory_import",
    "memory_unimport",
    "capture_begin",
    "capture_end",
    "stream_is_captured",
    "graph_launch",
    "graph_destroy",
    "graph_dump",
});

consteval size_t entry_number(std::string_view name) {
  for (size_t number = 0; number < kEntries.size(); ++number) {
    if (kEntries[number] == name) {
      return number;
    }
  }
  throw "no such entry";
}

// Of each call of that entry: takes one of the injected failures, if any are left, and says whether it did.
// Before that, devices are lost whose time has come.
bool take(size_t entry) noexcept;

bool is_lost(int device) noexcept;

// How long each task of a stream sleeps first; 0 when nothing is injected.
long slow_microseconds() noexcept;

}  // namespace sim::faults
