// See memory.h.
#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "errors.h"
#include "stream.h"

namespace sim {
namespace {

constexpr uint64_t kDefaultMemory = uint64_t{8} << 30;
constexpr uint64_t kMostMemory = uint64_t{4} << 40;
// Address space is cheap: more of it than memory keeps the heap from fragmenting. Not much more than that, or
// tools that have little of it to give, such as valgrind, could not run a small device either.
constexpr uint64_t kReservedPerByte = 8;

std::string_view setting(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? text : "";
}

int device_count_setting() {
  const std::string_view text = setting("OPSMITH_SIM_DEVICES");
  if (text.empty()) {
    return 2;
  }
  if (text.size() == 1 && text[0] >= '1' && text[0] <= '0' + kMaxDevices) {
    return text[0] - '0';
  }
  throw std::invalid_argument("OPSMITH_SIM_DEVICES is '" + std::string(text) +
                              "'; it must be an integer from 1 to " + std::to_string(kMaxDevices));
}

uint64_t memory_setting() {
  const std::string_view text = setting("OPSMITH_SIM_MEMORY");
  if (text.empty()) {
    return kDefaultMemory;
  }
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  constexpr std::pair<std::string_view, int> kUnits[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
  for (const auto& [name, shift] : kUnits) {
    if (error == std::errc() && unit == name && number > 0 && number <= (kMostMemory >> shift)) {
      return ((number << shift) + Heap::kGranule - 1) / Heap::kGranule * Heap::kGranule;
    }
  }
  throw std::invalid_argument("OPSMITH_SIM_MEMORY is '" + std::string(text) +
                              "'; it must be a number of bytes up to 4 TiB, like 536870912 or 512MiB");
}

[[noreturn]] void throw_errno(const char* action) {
  throw std::system_error(errno, std::generic_category(), action);
}

// At `at`, in the place of what is mapped there, unless that is null.
uint64_t map(int file, uint64_t offset, uint64_t bytes, int protection, void* at = nullptr) {
  const int flags = MAP_SHARED | MAP_NORESERVE | (at != nullptr ? MAP_FIXED : 0);
  void* const address = mmap(at, bytes, protection, flags, file, static_cast<off_t>(offset));
  if (address == MAP_FAILED) {
    throw_errno("mapping the simulated memory");
  }
  return reinterpret_cast<uint64_t>(address);
}

// Where the system allows it (shmem_enabled: advise), a large tensor then costs a fault per 2 MiB.
void ask_for_huge_pages(uint64_t address, uint64_t bytes) {
  madvise(reinterpret_cast<void*>(address), bytes, MADV_HUGEPAGE);
}

// On AArch64 it may be 64 KiB.
const auto kPage = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));

// The bytes of a memory handle: where an allocation lies in the exporter's memfd.
struct Place {
  uint64_t offset;
  uint64_t bytes;

  uint64_t first_page() const { return offset / kPage * kPage; }
  uint64_t bytes_of_pages() const { return (offset + bytes + kPage - 1) / kPage * kPage - first_page(); }
};
static_assert(sizeof(Place) <= sizeof(opsmith_memory_handle::bytes));

}  // namespace

Device::Device(int device_index, uint64_t reserved, uint64_t limit)
    : index(device_index), heap(reserved, limit), default_stream(new opsmith_stream_s(device_index)) {}

Simulator::Simulator(int device_count, uint64_t memory_limit) : reserved_(kReservedPerByte * memory_limit) {
  const uint64_t bytes = reserved_ * static_cast<uint64_t>(device_count);
  memory_file_ = memfd_create("opsmith-sim", MFD_CLOEXEC);
  if (memory_file_ < 0) {
    throw_errno("memfd_create");
  }
  if (ftruncate(memory_file_, static_cast<off_t>(bytes)) != 0) {
    throw_errno("sizing the simulated memory");
  }
  base_ = map(memory_file_, 0, bytes, PROT_NONE);
  window_ = map(memory_file_, 0, bytes, PROT_READ | PROT_WRITE);
  ask_for_huge_pages(window_, bytes);
  for (int index = 0; index < device_count; ++index) {
    devices_.push_back(std::make_unique<Device>(index, reserved_, memory_limit));
  }
}

Simulator* Simulator::instance() {
  struct Opened {
    Simulator* simulator = nullptr;
    std::string error;
  };
  static const Opened* const opened = [] {
    auto* const result = new Opened;
    try {
      result->simulator = new Simulator(device_count_setting(), memory_setting());
    } catch (const std::exception& error) {
      result->error = error.what();
    }
    return result;
  }();
  if (opened->simulator == nullptr) {
    fail(OPSMITH_FAILED, "%s", opened->error.c_str());
  }
  return opened->simulator;
}

Device* Simulator::find_device(int index) {
  if (index < 0 || index >= device_count()) {
    fail(OPSMITH_INVALID_ARGUMENT, "there is no device %d; there are %d", index, device_count());
    return nullptr;
  }
  return devices_[static_cast<size_t>(index)].get();
}

opsmith_status Simulator::allocate(Device& device, size_t bytes, void** pointer) {
  const std::optional<uint64_t> offset = device.heap.allocate(bytes);
  if (!offset) {
    const uint64_t live = device.heap.statistics().live_bytes;
    return fail(OPSMITH_OUT_OF_MEMORY, "%zu bytes do not fit: %llu of %llu bytes are free on device %d",
                bytes, static_cast<unsigned long long>(device.heap.limit() - live),
                static_cast<unsigned long long>(device.heap.limit()), device.index);
  }
  *pointer = reinterpret_cast<void*>(base_ + start_of(device) + *offset);
  return OPSMITH_OK;
}

opsmith_status Simulator::release(Device& device, void* pointer) {
  const uint64_t start = start_of(device);
  const uint64_t offset = reinterpret_cast<uint64_t>(pointer) - base_ - start;
  struct Context {
    int file;
    uint64_t start;
  } context{memory_file_, start};
  const auto give_back = [](void* opaque, uint64_t block, uint64_t bytes) {
    const auto& [file, device_start] = *static_cast<Context*>(opaque);
    // Whole pages only: the kernel zeroes the parts at both ends, which belong to this block too.
    fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(device_start + block),
              static_cast<off_t>(bytes));
  };
  if (offset >= reserved_ || !device.heap.release(offset, give_back, &context)) {
    return fail(OPSMITH_INVALID_ARGUMENT, "%p is not the start of a live allocation on device %d", pointer,
                device.index);
  }
  return OPSMITH_OK;
}

opsmith_status Simulator::export_memory(Device& device, void* pointer, opsmith_memory_handle* handle) const {
  const uint64_t offset = reinterpret_cast<uint64_t>(pointer) - base_;
  const std::optional<uint64_t> bytes = device.heap.live_bytes_at(offset - start_of(device));
  if (!bytes) {
    return fail(OPSMITH_INVALID_ARGUMENT, "%p is not the start of a live allocation on device %d", pointer,
                device.index);
  }
  const Place place{offset, *bytes};
  *handle = {};
  std::memcpy(handle->bytes, &place, sizeof(place));
  handle->file = fcntl(memory_file_, F_DUPFD_CLOEXEC, 0);
  if (handle->file < 0) {
    throw_errno("duplicating the memfd");
  }
  return OPSMITH_OK;
}

opsmith_status Simulator::import_memory(Device& device, const opsmith_memory_handle& handle, void** pointer) {
  Place place{};
  std::memcpy(&place, handle.bytes, sizeof(place));
  struct stat file{};
  if (fstat(handle.file, &file) != 0 || place.bytes == 0 ||
      place.offset > static_cast<uint64_t>(file.st_size) ||
      place.bytes > static_cast<uint64_t>(file.st_size) - place.offset) {
    return fail(OPSMITH_INVALID_ARGUMENT, "the handle is none of memory_export()");
  }
  const uint64_t bytes = place.bytes_of_pages();
  Heap::Block* const reserved = device.heap.reserve(bytes + kPage);
  if (reserved == nullptr) {
    return fail(OPSMITH_FAILED, "device %d has no addresses left for %llu bytes of another process",
                device.index, static_cast<unsigned long long>(bytes));
  }
  const uint64_t within = start_of(device) + Heap::offset_of(reserved);
  const Import import{reserved, (within + kPage - 1) / kPage * kPage, bytes};
  try {
    show(handle.file, place.first_page(), import);
  } catch (const std::exception&) {
    device.heap.give_up(reserved);
    throw;
  }
  *pointer = reinterpret_cast<void*>(base_ + import.start + (place.offset - place.first_page()));
  const std::lock_guard lock(imports_mutex_);
  imports_.emplace(*pointer, import);
  return OPSMITH_OK;
}

opsmith_status Simulator::give_up_import(Device& device, void* pointer) {
  Import import{};
  {
    const std::lock_guard lock(imports_mutex_);
    const auto found = imports_.find(pointer);
    if (found == imports_.end() || found->second.start / reserved_ != static_cast<uint64_t>(device.index)) {
      return fail(OPSMITH_INVALID_ARGUMENT, "%p is no imported memory of device %d", pointer, device.index);
    }
    import = found->second;
    imports_.erase(found);
  }
  show(memory_file_, import.start, import);
  device.heap.give_up(import.reserved);
  return OPSMITH_OK;
}

void Simulator::show(int file, uint64_t offset, const Import& import) const {
  const uint64_t address = window_ + import.start;
  map(file, offset, import.bytes, PROT_READ | PROT_WRITE, reinterpret_cast<void*>(address));
  ask_for_huge_pages(address, import.bytes);
}

char* Simulator::resolve(const void* pointer, int device, size_t bytes) const {
  const uint64_t offset = reinterpret_cast<uint64_t>(pointer) - base_;
  const bool on_a_device = offset < reserved_ * devices_.size();
  if (device == OPSMITH_HOST) {
    if (on_a_device) {
      fail(OPSMITH_INVALID_ARGUMENT, "%p was given as a host address, but it is an address of device %d",
           pointer, static_cast<int>(offset / reserved_));
      return nullptr;
    }
    if (pointer == nullptr) {
      fail(OPSMITH_INVALID_ARGUMENT, "a null host address was given for %zu bytes", bytes);
    }
    return static_cast<char*>(const_cast<void*>(pointer));
  }
  const uint64_t within = offset - reserved_ * static_cast<uint64_t>(device);
  if (!on_a_device || offset / reserved_ != static_cast<uint64_t>(device) || bytes > reserved_ - within) {
    fail(OPSMITH_INVALID_ARGUMENT, "%zu bytes at %p do not lie in the memory of device %d", bytes, pointer,
         device);
    return nullptr;
  }
  return reinterpret_cast<char*>(window_ + offset);
}

}  // namespace sim
