// See watched_streams.h.
#include <opsmith/device/watched_streams.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include <c10/util/StringUtil.h>

#include <opsmith/device/allocator.h>
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/unwatched.h>

namespace opsmith {

namespace {

opsmith_driver unwatched;

// Up to which use of each stream something is known.
using Known = std::unordered_map<opsmith_stream, uint64_t>;

void learn(Known& known, const Known& more) {
  for (const auto& [stream, number] : more) {
    uint64_t& mine = known[stream];
    mine = std::max(mine, number);
  }
}

struct Use {
  uint64_t number;
  const char* operator_name;
};

// The last one of each stream: it comes after all others there.
using Uses = std::unordered_map<opsmith_stream, Use>;

class Watch {
 public:
  void use(const void* block, opsmith_stream stream, const char* operator_name) {
    const std::lock_guard lock(mutex_);
    const uint64_t number = ++streams_[stream][stream];
    uses_[block].insert_or_assign(stream, Use{number, operator_name});
  }

  void record(opsmith_event event, opsmith_stream stream) {
    const std::lock_guard lock(mutex_);
    events_[event] = streams_[stream];
  }
  void wait(opsmith_stream stream, opsmith_event event) {
    const std::lock_guard lock(mutex_);
    learn(streams_[stream], events_[event]);
  }
  void forget(opsmith_event event) {
    const std::lock_guard lock(mutex_);
    events_.erase(event);
  }
  void host_waited(opsmith_stream stream) {
    const std::lock_guard lock(mutex_);
    learn(host_, streams_[stream]);
  }
  void host_waited(opsmith_event event) {
    const std::lock_guard lock(mutex_);
    learn(host_, events_[event]);
  }

  // The uses of `block`, which are forgotten, that its stream may run beside.
  Uses take_unordered(const caching::Block& block) {
    const std::lock_guard lock(mutex_);
    const auto found = uses_.find(block.data);
    if (found == uses_.end()) {
      return {};
    }
    Uses uses = std::move(found->second);
    uses_.erase(found);
    const Known& later = streams_[static_cast<opsmith_stream>(block.segment->stream)];
    const auto& recorded = block.other_streams;
    std::erase_if(uses, [&](const Uses::value_type& last) {
      const auto& [stream, use] = last;
      const auto covers = [&](const Known& known) {
        const auto entry = known.find(stream);
        return entry != known.end() && entry->second >= use.number;
      };
      return std::find(recorded.begin(), recorded.end(), stream) != recorded.end() || covers(host_) ||
             covers(later);
    });
    return uses;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<opsmith_stream, Known> streams_;
  std::unordered_map<opsmith_event, Known> events_;
  Known host_;
  std::unordered_map<const void*, Uses> uses_;  // by the start of the block
};

// Never destroyed: tensors may be released while the process ends.
Watch* const watch = new Watch;

// "stream 3", where it is not of `here` with its device.
std::string name_of(opsmith_stream stream, c10::DeviceIndex here) {
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    if (const int64_t id = stream_id(stream, device); id >= 0) {
      return device == here ? c10::str("stream ", id)
                            : c10::str("stream ", id, " of ", c10::Device(c10::kPrivateUse1, device));
    }
  }
  return "a stream";
}

void report(c10::DeviceIndex device, const std::string& what) {
  keep_failure(OPSMITH_FAILED, c10::str(c10::Device(c10::kPrivateUse1, device), ": ", what));
}

// `pointer`, of device memory, is given to work that is queued on `stream`.
void note_pointer(const void* pointer, opsmith_stream stream, const char* operator_name) {
  const std::optional<BlockPlace> found = block_at(pointer);
  if (!found.has_value()) {
    return;
  }
  const auto& [device, block] = *found;
  if (!block.is_allocated) {
    report(device, c10::str(operator_name, ", queued on ", name_of(stream, device), ", was given memory of ",
                            block.requested,
                            " bytes that had been freed: keep the tensor whose address it is until then"));
  } else if (block.stream != stream) {
    watch->use(block.start, stream, operator_name);
  }
}

// `status`, of which `note` takes account if a watched call succeeded.
template <class Note>
opsmith_status noted(opsmith_status status, const Note& note) {
  if (status == OPSMITH_OK && !detail::is_unwatched) {
    note();
  }
  return status;
}

opsmith_status copy(void* destination, int destination_device, const void* source, int source_device,
                    size_t bytes, opsmith_stream stream) {
  const opsmith_status status =
      unwatched.copy(destination, destination_device, source, source_device, bytes, stream);
  return noted(status, [&] {
    if (destination_device != OPSMITH_HOST) {
      note_pointer(destination, stream, "a copy");
    }
    if (source_device != OPSMITH_HOST) {
      note_pointer(source, stream, "a copy");
    }
  });
}

opsmith_status fill(int device, void* destination, uint8_t value, size_t bytes, opsmith_stream stream) {
  return noted(unwatched.fill(device, destination, value, bytes, stream),
               [&] { note_pointer(destination, stream, "a fill"); });
}

opsmith_status stream_query(opsmith_stream stream) {
  return noted(unwatched.stream_query(stream), [&] { watch->host_waited(stream); });
}

opsmith_status stream_synchronize(opsmith_stream stream) {
  return noted(unwatched.stream_synchronize(stream), [&] { watch->host_waited(stream); });
}

opsmith_status event_destroy(opsmith_event event) {
  watch->forget(event);
  return unwatched.event_destroy(event);
}

opsmith_status event_record(opsmith_event event, opsmith_stream stream) {
  return noted(unwatched.event_record(event, stream), [&] { watch->record(event, stream); });
}

opsmith_status event_query(opsmith_event event) {
  return noted(unwatched.event_query(event), [&] { watch->host_waited(event); });
}

opsmith_status event_synchronize(opsmith_event event) {
  return noted(unwatched.event_synchronize(event), [&] { watch->host_waited(event); });
}

opsmith_status stream_wait_event(opsmith_stream stream, opsmith_event event) {
  return noted(unwatched.stream_wait_event(stream, event), [&] { watch->wait(stream, event); });
}

// Before `block` is given back. What is found, the next check() raises.
void check_uses_before_release(const caching::Block& block, c10::DeviceIndex device) noexcept {
  try {
    for (const auto& [stream, use] : watch->take_unordered(block)) {
      const std::string own = name_of(static_cast<opsmith_stream>(block.segment->stream), device);
      report(device, c10::str("memory of ", block.requested, " bytes of ", own, " was freed while ",
                              use.operator_name, ", queued on ", name_of(stream, device),
                              ", may still use it: call Tensor.record_stream with that stream, or let ", own,
                              " or the host wait for it before the tensor goes"));
    }
  } catch (const std::exception&) {  // out of memory: then something else fails soon
  }
}

}  // namespace

namespace detail {

bool streams_are_watched = false;

void note_use(const at::TensorBase& tensor, const char* operator_name) {
  if (tensor.is_privateuseone() && tensor.has_storage() && tensor.storage().data() != nullptr) {
    note_pointer(tensor.storage().data(), current_stream(tensor.device().index()), operator_name);
  }
}

}  // namespace detail

void watch_streams(opsmith_driver& table) {
  unwatched = table;
  table.copy = copy;
  table.fill = fill;
  table.stream_query = stream_query;
  table.stream_synchronize = stream_synchronize;
  if (table.event_create != nullptr) {
    table.event_destroy = event_destroy;
    table.event_record = event_record;
    table.event_query = event_query;
    table.event_synchronize = event_synchronize;
    table.stream_wait_event = stream_wait_event;
  }
  observe_releases(check_uses_before_release);
  detail::streams_are_watched = true;
}

}  // namespace opsmith
