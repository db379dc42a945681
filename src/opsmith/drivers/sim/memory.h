// The simulated devices and their memory: one memfd mapped twice, so that a device address and the host's
// view of the same bytes are a constant distance apart.
//
// At the device addresses the host may neither read nor write (PROT_NONE): host code that takes a device
// pointer for one of its own dies at once. The window is where the driver itself, and host-side kernels,
// touch the bytes. Another process is given the memfd, and has its window show parts of it.
#pragma once

#include <opsmith_driver.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "heap.h"

struct opsmith_stream_s;

namespace sim {

constexpr int kMaxDevices = 8;

struct Device {
  Device(int device_index, uint64_t reserved, uint64_t limit);

  int index;
  Heap heap;
  opsmith_stream_s* default_stream;
};

class Simulator {
 public:
  // The process's simulator, made on the first call and never destroyed, since streams may still run while
  // the process ends. nullptr when its settings or the mappings failed: then last_error() says why, on every
  // call.
  static Simulator* instance();

  Simulator(int device_count, uint64_t memory_limit);

  int device_count() const { return static_cast<int>(devices_.size()); }
  Device& device(int index) { return *devices_[static_cast<size_t>(index)]; }

  // nullptr, with last_error() set, when there is no such device.
  Device* find_device(int index);

  opsmith_status allocate(Device& device, size_t bytes, void** pointer);
  opsmith_status release(Device& device, void* pointer);

  opsmith_status export_memory(Device& device, void* pointer, opsmith_memory_handle* handle) const;
  opsmith_status import_memory(Device& device, const opsmith_memory_handle& handle, void** pointer);
  opsmith_status give_up_import(Device& device, void* pointer);

  // Where the host sees the byte at a device address; nullptr for any other address.
  char* window(const void* pointer) const {
    const uint64_t offset = reinterpret_cast<uint64_t>(pointer) - base_;
    return offset < reserved_ * devices_.size() ? reinterpret_cast<char*>(window_ + offset) : nullptr;
  }

  // Where the host sees [pointer, pointer + bytes) of `device` (or of OPSMITH_HOST); nullptr, with
  // last_error() set, when the range does not lie in that device's memory.
  char* resolve(const void* pointer, int device, size_t bytes) const;

 private:
  // Memory of another process's simulator, which the window shows in the place of this one's.
  struct Import {
    Heap::Block* reserved;  // addresses
    uint64_t start;         // of the pages that are replaced: bytes from base_
    uint64_t bytes;
  };

  uint64_t start_of(const Device& device) const { return reserved_ * static_cast<uint64_t>(device.index); }
  // Shows `file` from `offset` on in the window.
  void show(int file, uint64_t offset, const Import& import) const;

  uint64_t reserved_;    // bytes of addresses per device
  uint64_t base_ = 0;    // of the device addresses
  uint64_t window_ = 0;  // of the host's view
  int memory_file_ = -1;
  std::vector<std::unique_ptr<Device>> devices_;
  std::mutex imports_mutex_;
  std::map<const void*, Import> imports_;  // by their addresses
};

}  // namespace sim
