// See imports.h. No lock is held while the driver works or another process is waited for, other than the one
// that keeps questions apart.
#include <opsmith/sharing/imports.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <unordered_map>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <opsmith/device/allocator.h>
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/driver_result.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/waiting.h>
#include <opsmith/sharing/exports.h>
#include <opsmith/sharing/messages.h>

namespace opsmith {

namespace {

class Origin;

// Memory of another process that a storage holds.
struct Imported {
  std::shared_ptr<Origin> origin;
  uint64_t memory;
  uint64_t allocation;
  c10::DeviceIndex device;
  void* base;  // of the allocation, here
};

void give_up(void* context) noexcept;

// A process whose memory is held here, for as long as any is: then the connection closes.
class Origin : public std::enable_shared_from_this<Origin> {
 public:
  // Throws std::system_error where it has ended.
  explicit Origin(std::string address) : address_(std::move(address)), socket_(connect_to(address_)) {}

  const std::string& address() const { return address_; }

  c10::Storage take(uint64_t memory) {
    if (c10::Storage known = known_storage(memory)) {
      tell(Question::kReceived, memory);
      return known;
    }
    const Reply place = ask(Question::kTake, memory);
    try {
      return make_storage(memory, place);
    } catch (...) {
      tell(Question::kRelease, memory);
      throw;
    }
  }

  // Only of memory that is held here.
  void forward(uint64_t memory) { ask(Question::kForward, memory); }

  void give_up(const Imported& imported) noexcept {
    bool is_last = false;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = storages_.find(imported.memory);
          found != storages_.end() && found->second.expired()) {
        storages_.erase(found);
      }
      is_last = leave(imported.allocation, imported.base);
    }
    if (is_last) {
      unimport(imported.device, imported.base);
    }
    // Last, since the other process may use the memory for something else then.
    tell(Question::kRelease, imported.memory);
  }

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  struct Allocation {
    void* base;
    size_t users;
  };

  // ---- with the lock held ----

  // Whether that was the last use of what was imported at `base`.
  bool leave(uint64_t allocation, const void* base) {
    const auto [first, last] = allocations_.equal_range(allocation);
    const auto found = std::find_if(first, last, [&](const auto& each) { return each.second.base == base; });
    if (--found->second.users > 0) {
      return false;
    }
    allocations_.erase(found);
    return true;
  }

  // The address of an allocation that is here already; nullptr if it is not.
  void* join(uint64_t allocation) {
    const auto found = allocations_.find(allocation);
    if (found == allocations_.end()) {
      return nullptr;
    }
    ++found->second.users;
    return found->second.base;
  }

  // ---- without it ----

  c10::Storage known_storage(uint64_t memory) {
    const std::lock_guard lock(mutex_);
    const auto found = storages_.find(memory);
    return found != storages_.end() ? c10::Storage(found->second.lock()) : c10::Storage();
  }

  c10::Storage make_storage(uint64_t memory, const Reply& place) {
    const c10::DeviceIndex device = checked_device(static_cast<c10::DeviceIndex>(place.device));
    void* const base = import(memory, place.allocation, device);
    auto imported =
        std::make_unique<Imported>(Imported{shared_from_this(), memory, place.allocation, device, base});
    c10::DataPtr data(static_cast<char*>(base) + place.offset, imported.release(), &opsmith::give_up,
                      c10::Device(c10::kPrivateUse1, device));
    auto made = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                      static_cast<int64_t>(place.bytes), std::move(data),
                                                      &device_allocator(), /*resizable=*/false);
    const std::lock_guard lock(mutex_);
    storages_.insert_or_assign(memory, WeakStorage(made));
    return c10::Storage(std::move(made));
  }

  // The allocation that `memory` lies in, here.
  void* import(uint64_t memory, uint64_t allocation, c10::DeviceIndex device) {
    {
      const std::lock_guard lock(mutex_);
      if (void* const base = join(allocation)) {
        return base;
      }
    }
    Descriptor file;
    const Reply reply = ask(Question::kHandle, memory, &file);
    TORCH_CHECK(reply.outcome != Outcome::kFailed, "process ", process_of(address_),
                " cannot share its memory of ", c10::Device(c10::kPrivateUse1, device), ": ", reply.failure,
                "\n  remedy: see what the driver says");
    opsmith_memory_handle handle = reply.handle;
    handle.file = file.number();
    void* base = nullptr;
    check(driver().memory_import(device, &handle, &base), "import memory of another process", device);
    checked_result(base, "memory_import", device);
    if (driver().host_window != nullptr && driver().host_window(base) == nullptr) {
      unimport(device, base);
      TORCH_CHECK(false, "the driver \"", driver().name,
                  "\" has a host window, but none for memory that it imports"
                  "\n  remedy: let `host_window` give its address, or say `host_window: off`");
    }
    const std::lock_guard lock(mutex_);
    allocations_.emplace(allocation, Allocation{base, 1});  // of threads that are as quick, each has its own
    return base;
  }

  static void unimport(c10::DeviceIndex device, void* base) noexcept {
    const opsmith_status status = detail::loaded_driver->memory_unimport(device, base);
    if (status != OPSMITH_OK) {
      keep_failure(status, device);
    }
  }

  [[noreturn]] void throw_ended() const {
    TORCH_CHECK(false, "memory that process ", process_of(address_),
                " has shared is gone: the process has ended, or does not answer"
                "\n  remedy: let the process that sends a tensor live until it is received");
  }

  Reply ask(Question question, uint64_t memory, Descriptor* file = nullptr) {
    const std::lock_guard lock(questions_mutex_);
    const Request request{question, memory};
    Reply reply;
    if (is_broken_ || !send_message(socket_, &request, sizeof(request), Wait::kYes) ||
        receive_message(socket_, &reply, sizeof(reply), Wait::kYes, file) != Received::kMessage) {
      is_broken_ = true;  // a late answer would be taken for the next one's
      throw_ended();
    }
    TORCH_CHECK(reply.outcome != Outcome::kGone, "memory that process ", process_of(address_),
                " has shared is gone: its message was received before, and the tensor was given up"
                "\n  remedy: send a tensor once for each process that receives it");
    return reply;
  }

  // No answer: it may be called by a thread that holds Python's lock.
  void tell(Question question, uint64_t memory) noexcept {
    const Request request{question, memory};
    send_message(socket_, &request, sizeof(request),
                 Wait::kYes);  // a process that has ended needs no telling
  }

  const std::string address_;
  const Descriptor socket_;
  std::mutex questions_mutex_;
  bool is_broken_ = false;
  std::mutex mutex_;  // of both below
  std::unordered_map<uint64_t, WeakStorage> storages_;
  std::unordered_multimap<uint64_t, Allocation> allocations_;  // of the driver's, by the origin's numbers
};

struct Origins {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Origin>> by_address;
};

Origins& origins() {
  static Origins* const made = new Origins;  // never destroyed: storages may be released at the end
  return *made;
}

std::shared_ptr<Origin> origin_at(const std::string& address) {
  const std::lock_guard lock(origins().mutex);
  std::erase_if(origins().by_address, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<Origin>& known = origins().by_address[address];
  std::shared_ptr<Origin> origin = known.lock();
  if (origin == nullptr) {
    origin = std::make_shared<Origin>(address);
    known = origin;
  }
  return origin;
}

// When nobody in this process uses the memory any more.
void give_up(void* context) noexcept {
  auto* const imported = static_cast<Imported*>(context);
  if (detail::loaded_driver == nullptr) {
    return;  // in a forked child: the parent holds it
  }
  finish_device(imported->device);
  imported->origin->give_up(*imported);
  delete imported;
}

// Tells the sender that its message was for nothing, without what a forked child may not touch.
void decline(const std::string& address, uint64_t memory) {
  try {
    const Descriptor socket = connect_to(address);
    const Request request{Question::kReceived, memory};
    send_message(socket, &request, sizeof(request), Wait::kNo);
  } catch (const std::system_error&) {  // it has ended
  }
}

}  // namespace

c10::Storage import_storage(const std::string& address, uint64_t memory) {
  if (is_in_bad_fork()) {
    decline(address, memory);
  }
  driver();  // raises then
  if (is_exported_here(address)) {
    c10::Storage own = take_back(memory);
    TORCH_CHECK(own,
                "memory that this process has shared with itself is gone: its message was received before"
                "\n  remedy: send a tensor once for each time that it is received");
    return own;
  }
  std::shared_ptr<Origin> origin;
  try {
    origin = origin_at(address);
  } catch (const std::system_error& error) {
    TORCH_CHECK(false, "memory that process ", process_of(address),
                " has shared is gone: the process has ended (", error.code().message(),
                ")\n  remedy: let the process that sends a tensor live until it is received");
  }
  return origin->take(memory);
}

bool is_imported(const c10::Storage& storage) {
  return storage.data_ptr().get_deleter() == &give_up;
}

std::pair<std::string, uint64_t> forward_import(const c10::Storage& storage) {
  const auto* const imported = static_cast<const Imported*>(storage.data_ptr().get_context());
  imported->origin->forward(imported->memory);
  return {imported->origin->address(), imported->memory};
}

}  // namespace opsmith
