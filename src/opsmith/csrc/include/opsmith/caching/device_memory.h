// The interface of a device for opsmith_caching_allocator.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace opsmith::caching {

// Handles that the allocator only keeps and compares.
using Stream = void*;
using Event = void*;

struct NewMemory {
  void* data = nullptr;  // nullptr: out of memory
  std::string failure;   // then: what the device says of it
};

// One device's memory, streams and events. Every function may be called from any thread; the allocator holds
// no lock meanwhile, so an implementation may wait for locks of its own.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Fails only for want of memory; for any other reason it throws.
  virtual NewMemory allocate(size_t bytes) = 0;
  // Called when all work is done on the streams that have used the memory.
  virtual void release(void* data) noexcept = 0;
  // The device's free bytes, and all that it has, whoever uses them.
  virtual std::pair<uint64_t, uint64_t> free_and_total() noexcept = 0;

  virtual bool is_idle(Stream stream) noexcept = 0;
  virtual void synchronize(Stream stream) noexcept = 0;
  // Whether work on it is recorded for a graph and does not run: nobody can wait for it.
  virtual bool is_captured(Stream /*stream*/) noexcept { return false; }

  // nullptr: there are no events, or none can be made. Idle streams are waited for instead.
  virtual Event make_event() noexcept = 0;
  // false: it failed, and the stream is waited for instead.
  virtual bool record(Event event, Stream stream) noexcept = 0;
  virtual bool is_done(Event event) noexcept = 0;
  virtual void synchronize_event(Event event) noexcept = 0;

  // For guards (Settings::debug). Both wait until they are done.
  virtual void fill(void* data, uint8_t value, size_t bytes, Stream stream) noexcept = 0;
  virtual bool read(void* host, const void* data, size_t bytes, Stream stream) noexcept = 0;
  // Told of memory that was written to by somebody who must not.
  virtual void report(const std::string& what) noexcept = 0;
};

}  // namespace opsmith::caching
