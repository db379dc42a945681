// A device's memory, streams and events as the caching allocator asks for them, through the driver's table.
#pragma once

#include <opsmith/caching/device_memory.h>

#include <opsmith_driver.h>

#include <c10/core/Device.h>

namespace opsmith {

class DriverMemory final : public caching::DeviceMemory {
 public:
  explicit DriverMemory(c10::DeviceIndex device) : device_(device) {}

  c10::DeviceIndex device() const { return device_; }

  caching::NewMemory allocate(size_t bytes) override;
  void release(void* data) noexcept override;
  std::pair<uint64_t, uint64_t> free_and_total() noexcept override;

  bool is_idle(caching::Stream stream) noexcept override;
  void synchronize(caching::Stream stream) noexcept override;
  bool is_captured(caching::Stream stream) noexcept override;

  caching::Event make_event() noexcept override;
  bool record(caching::Event event, caching::Stream stream) noexcept override;
  bool is_done(caching::Event event) noexcept override;
  void synchronize_event(caching::Event event) noexcept override;

  void fill(void* data, uint8_t value, size_t bytes, caching::Stream stream) noexcept override;
  bool read(void* host, const void* data, size_t bytes, caching::Stream stream) noexcept override;
  void report(const std::string& what) noexcept override;

 private:
  // The next check() raises a failure, since nobody can be told of it here.
  bool succeeded(opsmith_status status) noexcept;
  void check_window(void* data, size_t bytes);

  c10::DeviceIndex device_;
};

}  // namespace opsmith
