// The device's work as a profiler is told of it: kernels and copies, each with its stream, its time and the
// operator that launched it, and what the host computes in the device's place. Nothing costs more than a load
// unless an observer records.
//
// Work that is recorded inside of another piece of work in the same thread is part of it: a kernel that calls
// other operators is one event. What the host computes in the device's place is not the device's: the copies
// in it are events of their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

namespace opsmith::profile {

// kHostKernel runs on the host, on copies.
enum class Kind : uint8_t { kKernel, kCopy, kHostKernel, kFallback };

// Whether the host computes it in the device's place.
constexpr bool is_of_host(Kind kind) {
  return kind >= Kind::kHostKernel;
}

// A piece of work, the observer's.
struct Work;

// The profiler's functions. A piece of work that it does not record is null.
struct WorkObserver {
  Work* (*launch)(const char* name, c10::DeviceIndex device);
  void (*begin)(Work& work) noexcept;
  // These throw what waiting for the stream throws.
  Work* (*begin_on_host)(const char* name, c10::DeviceIndex device, Kind kind, uint64_t bytes);
  Work* (*begin_on_stream)(const char* name, c10::DeviceIndex device, Kind kind, uint64_t bytes);
  // A call of the fallback, and whether it is a piece of work by itself.
  std::pair<Work*, bool> (*begin_fallback)(const std::string& operator_name, c10::DeviceIndex device);
  void (*set_bytes)(Work& work, uint64_t bytes) noexcept;
  void (*end)(Work* work) noexcept;
  void (*drop)(Work* work) noexcept;  // launched, and never begun
};

// Called when the library is loaded; there is one observer.
void observe_work(const WorkObserver& observer);

namespace detail {
inline constinit std::atomic<bool> is_recording{false};  // the observer's to set

struct Drop {
  void operator()(Work* work) const noexcept;
};
using WorkPtr = std::unique_ptr<Work, Drop>;

// Cold: compilers then weigh them as nothing where they are called, in each generated function.
[[gnu::cold]] WorkPtr launch(const char* name, c10::DeviceIndex device);
[[gnu::cold]] void begin(Work& work) noexcept;
[[gnu::cold]] void end(Work* work) noexcept;
[[gnu::cold]] Work* begin_on_host(const char* name, Kind kind);
[[gnu::cold]] Work* begin_on_host(const char* name, c10::DeviceIndex device, Kind kind, uint64_t bytes);
[[gnu::cold]] Work* begin_on_stream(const char* name);
[[gnu::cold]] Work* begin_on_stream(const char* name, c10::DeviceIndex device, Kind kind, uint64_t bytes);
[[gnu::cold]] void set_bytes(Work& work, uint64_t bytes) noexcept;
}  // namespace detail

C10_ALWAYS_INLINE bool is_recording() noexcept {
  return C10_UNLIKELY(detail::is_recording.load(std::memory_order_relaxed));
}

// A kernel for the host, launched by this thread on the current stream of `device`, that is to run on any
// thread. Whoever queues it keeps this with it, and hands it to Running where it runs.
class Launch {
 public:
  Launch() = default;
  Launch(const char* name, c10::DeviceIndex device) {
    if (is_recording()) {
      work_ = detail::launch(name, device);
    }
  }

 private:
  friend class Running;
  detail::WorkPtr work_;
};

// A launched kernel runs on this thread while this lives: its time is the host's between the two.
class Running {
 public:
  explicit Running(Launch launch) noexcept : work_(std::move(launch.work_)) {
    if (C10_UNLIKELY(work_ != nullptr)) {
      detail::begin(*work_);
    }
  }
  ~Running() {
    if (C10_UNLIKELY(work_ != nullptr)) {
      detail::end(work_.release());
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  detail::WorkPtr work_;
};

// Work that this thread does itself, at once, when the current stream of `device` has come so far. Its time
// is the host's.
class HostWork {
 public:
  // On the current device. A null `name` is no work. Throws what waiting for the stream throws.
  C10_ALWAYS_INLINE explicit HostWork(const char* name, Kind kind = Kind::kKernel) {
    if (is_recording()) {
      work_ = detail::begin_on_host(name, kind);
    }
  }
  // `bytes`: that are moved.
  HostWork(const char* name, c10::DeviceIndex device, Kind kind = Kind::kKernel, uint64_t bytes = 0) {
    if (is_recording()) {
      work_ = detail::begin_on_host(name, device, kind, bytes);
    }
  }
  C10_ALWAYS_INLINE ~HostWork() {
    if (C10_UNLIKELY(work_ != nullptr)) {
      detail::end(work_);
    }
  }
  // Sets the bytes that were moved between host and device.
  void set_bytes(uint64_t bytes) noexcept {
    if (C10_UNLIKELY(work_ != nullptr)) {
      detail::set_bytes(*work_, bytes);
    }
  }
  HostWork(const HostWork&) = delete;
  HostWork& operator=(const HostWork&) = delete;

 private:
  Work* work_ = nullptr;
};

// Work that is queued on the current stream of `device` while this lives. Its time is the device's.
class StreamWork {
 public:
  C10_ALWAYS_INLINE explicit StreamWork(const char* name) {
    if (is_recording()) {
      work_ = detail::begin_on_stream(name);
    }
  }
  StreamWork(const char* name, c10::DeviceIndex device, Kind kind = Kind::kKernel, uint64_t bytes = 0) {
    if (is_recording()) {
      work_ = detail::begin_on_stream(name, device, kind, bytes);
    }
  }
  C10_ALWAYS_INLINE ~StreamWork() {
    if (C10_UNLIKELY(work_ != nullptr)) {
      detail::end(work_);
    }
  }
  StreamWork(const StreamWork&) = delete;
  StreamWork& operator=(const StreamWork&) = delete;

 private:
  Work* work_ = nullptr;
};

// A call that the fallback serves: an event of its own, or the name of what this thread is in, if that is the
// kernel that did not take the call.
class FallbackWork {
 public:
  FallbackWork() = default;
  ~FallbackWork();
  FallbackWork(const FallbackWork&) = delete;
  FallbackWork& operator=(const FallbackWork&) = delete;

  // Throws what waiting for the stream throws.
  void begin(const std::string& operator_name, c10::DeviceIndex device);

  // Sets the bytes that were moved between host and device.
  void set_bytes(uint64_t bytes) noexcept;

 private:
  Work* work_ = nullptr;
  bool is_own_ = false;
};

}  // namespace opsmith::profile
