// See exports.h. A thread answers, since the ones of the program may be busy for long; it needs nothing of
// Python's.
#include <opsmith/sharing/exports.h>

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include <c10/util/Exception.h>

#include <opsmith/device/allocator.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/driver_result.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/waiting.h>
#include <opsmith/sharing/messages.h>

namespace opsmith {

namespace {

constexpr int kMillisecondsBetweenTries = 100;

MemoryPlace place_in_driver(const c10::Storage& storage) {
  const std::optional<MemoryPlace> place = place_of(storage.data_ptr());
  TORCH_CHECK(place.has_value(), "memory of ", storage.device(),
              " cannot be shared with another process: it was not allocated by opsmith"
              "\n  remedy: hand over a copy, .clone()");
  return *place;
}

// A new handle of the allocation; the file, if any, is the caller's.
opsmith_status new_handle(const MemoryPlace& place, opsmith_memory_handle& handle, Descriptor& file) {
  handle = {.bytes = {}, .file = -1};
  const opsmith_status status = driver().memory_export(place.device, place.allocation, &handle);
  if (status == OPSMITH_OK) {
    file = Descriptor(handle.file);
  }
  return status;
}

class Exports {
 public:
  static Exports& of_process() {
    static Exports* const made = new Exports;  // never destroyed, nor is what others may still hold
    return *made;
  }

  // Empty until something is exported.
  std::string address() {
    const std::lock_guard lock(mutex_);
    return address_;
  }

  uint64_t add(const c10::Storage& storage) {
    const MemoryPlace place = place_in_driver(storage);
    opsmith_memory_handle handle;
    Descriptor file;
    check(new_handle(place, handle, file), "export memory", place.device);
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!is_stopped_, "memory of ", storage.device(),
                " cannot be shared with another process: this process is about to end"
                "\n  remedy: send it before");
    start();
    c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
    const auto [found, is_new] = numbers_.try_emplace(impl, next_);
    if (is_new) {
      exported_.emplace(next_++, Exported{storage, place, impl->resizable()});
      impl->set_resizable(false);
    }
    ++exported_.at(found->second).under_way;
    return found->second;
  }

  c10::Storage take_back(uint64_t memory) {
    c10::Storage unused;
    const std::lock_guard lock(mutex_);
    const auto found = exported_.find(memory);
    if (found == exported_.end()) {
      return {};
    }
    const c10::Storage storage = found->second.storage;
    arrived(found->second);
    unused = removed_if_unused(memory);
    return storage;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
    }
    if (thread_.joinable()) {
      eventfd_write(wake_.number(), 1);
      thread_.join();
      listener_ = {};
      connections_.clear();
    }
  }

 private:
  struct Exported {
    c10::Storage storage;
    MemoryPlace place;
    bool was_resizable;
    uint64_t under_way = 0;                               // messages
    std::unordered_map<const void*, uint64_t> held_by{};  // connections, and how often
  };

  struct Connection {
    Descriptor socket;
  };

  // ---- with the lock held ----

  void start() {
    if (thread_.joinable()) {
      return;
    }
    address_ = new_address();
    listener_ = listen_at(address_);
    wake_ = Descriptor(eventfd(0, EFD_CLOEXEC));
    // Signals are for the program's own threads.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { serve(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread_.native_handle(), "opsmith_sharing");
  }

  static void arrived(Exported& exported) { exported.under_way -= exported.under_way > 0 ? 1 : 0; }

  // To be dropped without the lock: the storage's end may need Python's, whose holder may wait for this one.
  c10::Storage removed_if_unused(uint64_t memory) {
    const auto found = exported_.find(memory);
    if (found == exported_.end() || found->second.under_way > 0 || !found->second.held_by.empty()) {
      return {};
    }
    c10::Storage storage = std::move(found->second.storage);
    storage.unsafeGetStorageImpl()->set_resizable(found->second.was_resizable);
    numbers_.erase(storage.unsafeGetStorageImpl());
    exported_.erase(found);
    return storage;
  }

  // ---- the thread ----

  void serve() {
    for (bool is_short = false;;) {
      std::vector<pollfd> watched{{wake_.number(), POLLIN, 0},
                                  {listener_.number(), static_cast<short>(is_short ? 0 : POLLIN), 0}};
      for (const auto& connection : connections_) {
        watched.push_back({connection->socket.number(), POLLIN, 0});
      }
      // Who waits to be accepted would wake it at once, again and again.
      if (poll(watched.data(), watched.size(), is_short ? kMillisecondsBetweenTries : -1) < 0) {
        continue;  // a signal of a debugger's
      }
      is_short = false;
      if (watched[0].revents != 0) {
        return;
      }
      for (size_t i = watched.size() - 1; i >= 2; --i) {
        if (watched[i].revents != 0 && !serve(*connections_[i - 2])) {
          forget(*connections_[i - 2]);
          connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i - 2));
        }
      }
      if (watched[1].revents != 0) {
        if (Descriptor accepted = accept_from(listener_, is_short); accepted.is_open()) {
          connections_.push_back(std::make_unique<Connection>(Connection{std::move(accepted)}));
        }
      }
    }
  }

  // Answers all that was said. False when the other side has ended.
  bool serve(const Connection& connection) {
    for (;;) {
      Request request{};
      switch (receive_message(connection.socket, &request, sizeof(request), Wait::kNo)) {
        case Received::kMessage:
          break;
        case Received::kNothing:
          return true;
        case Received::kEnd:
          return false;
      }
      Descriptor file;
      const std::optional<Reply> reply = answer(request, connection, file);
      if (reply && !send_message(connection.socket, &*reply, sizeof(Reply), Wait::kNo, file.number())) {
        return false;
      }
    }
  }

  std::optional<Reply> answer(const Request& request, const Connection& connection, Descriptor& file) {
    c10::Storage unused;
    std::unique_lock lock(mutex_);
    const auto found = exported_.find(request.memory);
    Reply reply;
    if (request.question == Question::kFlush) {
      return reply;
    }
    if (found == exported_.end()) {
      reply.outcome = Outcome::kGone;
      const bool is_question =
          request.question != Question::kReceived && request.question != Question::kRelease;
      return is_question ? std::optional(reply) : std::nullopt;
    }
    Exported& exported = found->second;
    switch (request.question) {
      case Question::kTake:
        arrived(exported);
        ++exported.held_by[&connection];
        reply.device = exported.place.device;
        reply.allocation = reinterpret_cast<uintptr_t>(exported.place.allocation);
        reply.offset = exported.place.offset;
        reply.bytes = exported.storage.nbytes();
        return reply;
      case Question::kHandle: {
        const MemoryPlace place = exported.place;
        lock.unlock();  // who asks holds the memory
        if (const opsmith_status status = new_handle(place, reply.handle, file); status != OPSMITH_OK) {
          reply.outcome = Outcome::kFailed;
          std::snprintf(reply.failure, sizeof(reply.failure), "%s", last_error().c_str());
        }
        return reply;
      }
      case Question::kForward:
        ++exported.under_way;
        return reply;
      case Question::kReceived:
        arrived(exported);
        break;
      case Question::kRelease:
        if (const auto held = exported.held_by.find(&connection);
            held != exported.held_by.end() && --held->second == 0) {
          exported.held_by.erase(held);
        }
        break;
      case Question::kFlush:
        break;
    }
    unused = removed_if_unused(request.memory);
    lock.unlock();
    return std::nullopt;
  }

  // A process has ended, or given up all it held.
  void forget(const Connection& connection) {
    std::vector<c10::Storage> unused;
    const std::lock_guard lock(mutex_);
    std::vector<uint64_t> held;
    for (auto& [memory, exported] : exported_) {
      if (exported.held_by.erase(&connection) == 1) {
        held.push_back(memory);
      }
    }
    for (const uint64_t memory : held) {
      unused.push_back(removed_if_unused(memory));
    }
  }

  std::mutex mutex_;
  bool is_stopped_ = false;
  uint64_t next_ = 1;
  std::string address_;
  std::unordered_map<uint64_t, Exported> exported_;
  std::unordered_map<const c10::StorageImpl*, uint64_t> numbers_;
  std::thread thread_;
  Descriptor listener_;
  Descriptor wake_;
  std::vector<std::unique_ptr<Connection>> connections_;  // the thread's
};

}  // namespace

void check_exportable(const c10::Storage& storage) {
  TORCH_CHECK(driver().memory_export != nullptr, "memory of ", storage.device(),
              " cannot be shared with another process: the driver has no way to export it"
              "\n  remedy: hand over a copy in the CPU's memory, .cpu(), and move it to the device there");
  storage.unsafeGetStorageImpl()->mutable_data();  // what is copied on write is copied now
  place_in_driver(storage);
  synchronize_device(storage.device().index());
}

std::pair<std::string, uint64_t> export_storage(const c10::Storage& storage) {
  Exports& exports = Exports::of_process();
  const uint64_t memory = exports.add(storage);
  return {exports.address(), memory};
}

bool is_exported_here(const std::string& address) {
  return Exports::of_process().address() == address;
}

c10::Storage take_back(uint64_t memory) {
  return Exports::of_process().take_back(memory);
}

void flush_exports() {
  const std::string address = Exports::of_process().address();
  if (address.empty()) {
    return;
  }
  const Descriptor connection = connect_to(address);
  const Request request{Question::kFlush, 0};
  Reply reply;
  if (send_message(connection, &request, sizeof(request), Wait::kYes)) {
    receive_message(connection, &reply, sizeof(reply), Wait::kYes);
  }
}

void stop_exports() {
  if (is_in_bad_fork()) {
    return;  // there is no thread
  }
  Exports::of_process().stop();
}

}  // namespace opsmith
