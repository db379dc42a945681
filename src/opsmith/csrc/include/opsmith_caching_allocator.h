// A caching allocator for the memory of one device, in C++20 and without PyTorch: opsmith's own, for every
// driver. Derive from DeviceMemory, and use it alone:
//
//   opsmith::caching::CachingAllocator allocator(memory, opsmith::caching::parse_settings("debug:True"));
//   Block* block = allocator.allocate(bytes, stream);  // data(block) is the address
//   allocator.free(block);
//
// Memory is taken from the device in segments, which are cut into blocks. A block that is freed goes back to
// the stream that it was allocated on: work that is queued there later runs after the work that used the
// block, so nobody waits. Work on other streams must be told of with record_stream(); then the block comes
// back when that work is done. Free neighbours are merged. Segments go back to the device when empty_cache()
// is called, when the device is out of memory, or when garbage_collection_threshold is passed.
//
// Memory of a private pool serves nothing else until the pool is dissolved: a graph uses the addresses that
// it was recorded with.
//
// All functions may be called from any thread. No lock is held while the device works.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <opsmith/caching/blocks.h>
#include <opsmith/caching/device_memory.h>
#include <opsmith/caching/guards.h>
#include <opsmith/caching/heap.h>
#include <opsmith/caching/history.h>
#include <opsmith/caching/out_of_memory.h>
#include <opsmith/caching/settings.h>
#include <opsmith/caching/statistics.h>

namespace opsmith::caching {

class CachingAllocator {
 public:
  // Blocks begin at multiples of `alignment`, a power of two, if segments do.
  explicit CachingAllocator(DeviceMemory& memory, const Settings& settings = {}, size_t alignment = 1)
      : memory_(memory),
        settings_(settings),
        granule_(std::max(kSmallest, alignment)),
        guards_(memory, settings.debug ? granule_ : 0),
        heap_(*this, settings_, granule_) {
    if (settings.memory_fraction < 1) {
      set_memory_fraction(settings.memory_fraction);
    }
  }
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Memory for work that is queued on `stream` from now on, of `pool`; `bytes` > 0. Throws OutOfMemory, and
  // what the device throws.
  Block* allocate(size_t bytes, Stream stream, PrivatePool pool = 0) {
    Request request{bytes, size_of(bytes), stream, pool, {}};
    if (is_recording()) {
      request.context = recorded_context();
    }
    if (some_await_.load(std::memory_order_relaxed)) {
      collect(Wait::kNo);
    }
    Block* block = nullptr;
    {
      const std::lock_guard lock(mutex_);
      block = take_cached(request);
    }
    if (block == nullptr) {
      block = allocate_new(request);
    }
    if (settings_.debug) {
      guards_.arm(*block);
    }
    return block;
  }

  void* data(const Block* block) const { return block->data + guards_.front(); }

  // Gives `block` back; work that is queued on its streams may still use it.
  void free(Block* block) noexcept {
    if (!settings_.cache || settings_.debug) {
      free_when_done(block);
      return;
    }
    std::shared_ptr<void> context;
    if (is_recording()) {
      context = recorded_context();
    }
    std::vector<Mark> marks = marks_of(*block);
    const std::lock_guard lock(mutex_);
    count_free(*block, std::move(context));
    if (marks.empty()) {
      put_back(block);
    } else {
      block->state = BlockState::kAwaiting;
      awaiting_.push_back({block, std::move(marks)});
      some_await_.store(true, std::memory_order_relaxed);
    }
  }

  // From now on `stream` uses `block` too.
  void record_stream(Block* block, Stream stream) {
    const std::lock_guard lock(mutex_);
    std::vector<Stream>& others = block->other_streams;
    if (stream != block->segment->stream && std::find(others.begin(), others.end(), stream) == others.end()) {
      others.push_back(stream);
    }
  }

  // Gives back to the device what it can, when the streams that used it are done.
  void empty_cache() noexcept { release_all(); }

  // Makes memory of `pool`, which may still be in use, memory like any other from now on.
  void dissolve(PrivatePool pool) {
    const std::lock_guard lock(mutex_);
    heap_.dissolve(pool);
  }

  // The most that this process may hold, of all that the device has; 1 is no limit.
  void set_memory_fraction(double fraction) {
    const auto total = static_cast<double>(memory_.free_and_total().second);
    limit_.store(fraction < 1 ? static_cast<uint64_t>(fraction * total) : UINT64_MAX,
                 std::memory_order_relaxed);
    fraction_.store(fraction, std::memory_order_relaxed);
  }
  double memory_fraction() const { return fraction_.load(std::memory_order_relaxed); }

  DeviceMemory& memory() const { return memory_; }
  const Settings& settings() const { return settings_; }

  Statistics statistics() const {
    const std::lock_guard lock(mutex_);
    return heap_.statistics;
  }
  void reset_peaks() {
    const std::lock_guard lock(mutex_);
    heap_.statistics.reset_peaks();
  }
  void reset_accumulated() {
    const std::lock_guard lock(mutex_);
    heap_.statistics.reset_accumulated();
  }

  // Whether `pointer` lies in a block that is allocated. Walks the blocks of a segment.
  bool contains(const void* pointer) const {
    const std::optional<BlockView> block = block_at(pointer);
    return block.has_value() && block->is_allocated;
  }

  // The block that `pointer` lies in, allocated or free; none for memory of elsewhere. Walks likewise.
  std::optional<BlockView> block_at(const void* pointer) const {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const std::lock_guard lock(mutex_);
    const Block* const block = heap_.find(address);
    if (block == nullptr) {
      return std::nullopt;
    }
    return BlockView{block->data, block->requested, block->segment->stream,
                     block->state == BlockState::kAllocated};
  }

  // Starts to record what happens, or without a value stops.
  void record_history(const std::optional<Recording>& recording, bool clear) {
    const std::lock_guard lock(mutex_);
    recording_ = recording.value_or(Recording{});
    if (recording.has_value()) {
      history_.restart(recording->entries ? recording->most_entries : 0, clear);
    }
    is_recording_.store(recording.has_value(), std::memory_order_relaxed);
  }

  Snapshot snapshot() {
    const std::lock_guard lock(mutex_);
    Snapshot taken{heap_.snapshot(), history_.oldest_first()};
    remember({Action::kSnapshot, 0, 0, nullptr, 0, nullptr});
    return taken;
  }

 private:
  struct Request {
    size_t bytes;
    size_t size;  // of its block
    Stream stream;
    PrivatePool pool;
    std::shared_ptr<void> context;
  };

  // Work that was queued on a stream at some time is done when the event is, or else when the stream is idle.
  struct Mark {
    Stream stream;
    Event event;
  };

  struct Awaiting {
    Block* block;
    std::vector<Mark> marks;
  };

  enum class Wait : uint8_t { kNo, kYes };

  // How long a thread that finds no memory waits for what others are giving back at that moment. Bounded,
  // since the others may wait for a lock that this thread holds, such as Python's.
  static constexpr std::chrono::seconds kPatience{1};

  static constexpr int kMostAttempts = 64;  // to allocate from a full device

  // No device has more, and a larger size would be a small one once it is rounded up.
  static constexpr size_t kMostBytes = size_t{1} << 62;

  static uintptr_t address_of(const char* data) { return reinterpret_cast<uintptr_t>(data); }

  size_t size_of(size_t bytes) const {
    bytes = std::min(bytes, kMostBytes);
    if (settings_.debug) {
      return heap_.rounded(guards_.front() + bytes + Guards::kTail);
    }
    return settings_.cache ? heap_.rounded(bytes) : bytes;
  }

  // ---- with the lock held ----

  Block* take_cached(Request& request) {
    Block* const block = heap_.take(request.size, request.bytes, request.stream, request.pool);
    if (block != nullptr && is_recording()) {
      remember_allocation(block, request);
    }
    return block;
  }

  void count_free(const Block& block, std::shared_ptr<void> context) {
    heap_.count_free(block);
    remember(Action::kFreeRequested, block, std::move(context));
  }

  void put_back(Block* block) {
    remember(Action::kFreeCompleted, *block, nullptr);
    heap_.put_back(block);
  }

  // ---- work that is not done ----

  std::vector<Mark> marks_of(const Block& block) noexcept {
    std::vector<Mark> marks;
    for (const Stream stream : block.other_streams) {
      if (!memory_.is_idle(stream)) {
        marks.push_back(mark(stream));
      }
    }
    return marks;
  }

  Mark mark(Stream stream) noexcept {
    Event event = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (!spare_events_.empty()) {
        event = spare_events_.back();
        spare_events_.pop_back();
      }
    }
    if (event == nullptr) {
      event = memory_.make_event();
    }
    if (event != nullptr && !memory_.record(event, stream)) {
      const std::lock_guard lock(mutex_);
      spare_events_.push_back(event);
      event = nullptr;
    }
    return {stream, event};
  }

  bool is_done(const Mark& mark, Wait wait) noexcept {
    if (mark.event == nullptr && memory_.is_captured(mark.stream)) {
      return false;
    }
    if (wait == Wait::kYes) {
      mark.event != nullptr ? memory_.synchronize_event(mark.event) : memory_.synchronize(mark.stream);
      return true;
    }
    return mark.event != nullptr ? memory_.is_done(mark.event) : memory_.is_idle(mark.stream);
  }

  // Puts the blocks back whose work is done, or waits for all of it. Whether there were any.
  bool collect(Wait wait) noexcept {
    std::vector<Awaiting> mine;
    {
      const std::lock_guard lock(mutex_);
      if (awaiting_.empty()) {
        return false;
      }
      mine.swap(awaiting_);
      ++others_must_wait_;
      heap_.statistics.synchronizations += wait == Wait::kYes ? 1 : 0;
    }
    std::vector<Stream> busy;  // what was queued there later is not done either
    std::vector<Event> events;
    for (Awaiting& awaiting : mine) {
      std::erase_if(awaiting.marks, [&](const Mark& mark) {
        if (std::find(busy.begin(), busy.end(), mark.stream) != busy.end() || !is_done(mark, wait)) {
          busy.push_back(mark.stream);
          return false;
        }
        if (mark.event != nullptr) {
          events.push_back(mark.event);
        }
        return true;
      });
    }
    const std::lock_guard lock(mutex_);
    for (Awaiting& awaiting : mine) {
      if (awaiting.marks.empty()) {
        put_back(awaiting.block);
      } else {
        awaiting_.push_back(std::move(awaiting));
      }
    }
    spare_events_.insert(spare_events_.end(), events.begin(), events.end());
    some_await_.store(!awaiting_.empty(), std::memory_order_relaxed);
    let_others_go_on();
    return true;
  }

  void let_others_go_on() {
    --others_must_wait_;
    given_back_.notify_all();
  }

  // Whether any were about to give something back, and have.
  bool wait_for_others() {
    std::unique_lock lock(mutex_);
    const bool any = others_must_wait_ > 0;
    return given_back_.wait_for(lock, kPatience, [&] { return others_must_wait_ == 0; }) && any;
  }

  void finish_work(const Block& block) noexcept {
    finish_work(block.segment->stream);
    for (const Stream stream : block.other_streams) {
      finish_work(stream);
    }
  }

  void finish_work(Stream stream) noexcept {
    if (!memory_.is_idle(stream) && !memory_.is_captured(stream)) {
      memory_.synchronize(stream);
    }
  }

  // ---- without a cache, or with guards: freed when the work is done ----

  void free_when_done(Block* block) noexcept {
    finish_work(*block);
    if (settings_.debug) {
      guards_.check_ends(*block);
      guards_.poison(*block);
    }
    std::shared_ptr<void> context;
    if (is_recording()) {
      context = recorded_context();
    }
    {
      const std::lock_guard lock(mutex_);
      count_free(*block, std::move(context));
    }
    if (!settings_.debug) {
      release_block(block);
      return;
    }
    std::vector<Block*> leaving;
    {
      const std::lock_guard lock(mutex_);
      block->state = BlockState::kAwaiting;
      leaving = quarantine_.admit(block);
    }
    end_quarantine(leaving);
  }

  bool leave_quarantine(size_t most_bytes) noexcept {
    std::vector<Block*> leaving;
    {
      const std::lock_guard lock(mutex_);
      leaving = quarantine_.leave(most_bytes);
    }
    end_quarantine(leaving);
    return !leaving.empty();
  }

  void end_quarantine(const std::vector<Block*>& leaving) noexcept {
    for (Block* const block : leaving) {
      guards_.check_poison(*block);
      if (settings_.cache) {
        const std::lock_guard lock(mutex_);
        put_back(block);
      } else {
        release_block(block);
      }
    }
  }

  // Gives `block`, which is all of its segment, to the device.
  void release_block(Block* block) noexcept {
    std::unique_ptr<Segment> segment;
    {
      const std::lock_guard lock(mutex_);
      remember(Action::kFreeCompleted, *block, nullptr);
      ++others_must_wait_;
      segment = heap_.take_segment_of(block);
    }
    release_segment(*segment);
    const std::lock_guard lock(mutex_);
    let_others_go_on();
  }

  // ---- the device's memory ----

  Block* allocate_new(Request& request) {
    collect_garbage(request.size);
    std::string failure;
    if (Block* const block = allocate_segment(request, failure)) {
      return block;
    }
    // More than once: other threads may be quicker to take what was made free.
    for (int attempt = 0; attempt < kMostAttempts && make_room(); ++attempt) {
      {
        const std::lock_guard lock(mutex_);
        heap_.statistics.retries += attempt == 0 ? 1 : 0;
        if (Block* const block = take_cached(request)) {
          return block;
        }
      }
      if (Block* const block = allocate_segment(request, failure)) {
        return block;
      }
    }
    throw_out_of_memory(request, std::move(failure));
  }

  // A block of a new segment: of the usual size, or else just large enough.
  Block* allocate_segment(Request& request, std::string& failure) {
    const size_t usual = heap_.segment_size(request.size);
    Block* const block = allocate_segment(usual, request, failure);
    return block != nullptr || usual == request.size ? block
                                                     : allocate_segment(request.size, request, failure);
  }

  Block* allocate_segment(size_t bytes, Request& request, std::string& failure) {
    if (!reserve(bytes)) {
      failure = "";
      return nullptr;
    }
    NewMemory made;
    try {
      made = memory_.allocate(bytes);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      reserved_ -= bytes;
      throw;
    }
    const std::lock_guard lock(mutex_);
    if (made.data == nullptr) {
      reserved_ -= bytes;
      failure = std::move(made.failure);
      return nullptr;
    }
    Block* const block =
        heap_.add_segment(made.data, bytes, request.size, request.bytes, request.stream, request.pool);
    if (is_recording()) {
      block->segment->context = request.context;
      remember(Action::kSegmentAllocate, *block->segment, request.context);
      remember_allocation(block, request);
    }
    return block;
  }

  bool reserve(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const uint64_t limit = limit_.load(std::memory_order_relaxed);
    if (bytes > limit || reserved_ > limit - bytes) {
      return false;
    }
    reserved_ += bytes;
    return true;
  }

  void release_segment(const Segment& segment) noexcept {
    memory_.release(segment.data);
    const std::lock_guard lock(mutex_);
    reserved_ -= segment.size;
    heap_.count_release(segment);
    remember(Action::kSegmentFree, segment, nullptr);
  }

  // Whether anything was given back, by this thread or by others.
  bool make_room() noexcept {
    const bool is_released = release_all();
    return wait_for_others() || is_released;
  }

  bool release_all() noexcept {
    const bool has_left = leave_quarantine(0);
    const bool is_collected = collect(Wait::kYes);
    return release_cached(std::numeric_limits<size_t>::max()) || has_left || is_collected;
  }

  // Gives segments back that are wholly free, those first that were used last the longest ago, until `bytes`
  // are given back or none is left.
  bool release_cached(size_t bytes) noexcept {
    Heap::Segments segments;
    {
      const std::lock_guard lock(mutex_);
      segments = heap_.take_free_segments(bytes);
      if (segments.empty()) {
        return false;
      }
      ++others_must_wait_;
    }
    for (const auto& segment : segments) {
      finish_work(segment->stream);
      release_segment(*segment);
    }
    const std::lock_guard lock(mutex_);
    let_others_go_on();
    return true;
  }

  // Before a new segment would take the process beyond its threshold.
  void collect_garbage(size_t size) noexcept {
    if (settings_.garbage_collection_threshold == 0) {
      return;
    }
    const uint64_t most = std::min(limit_.load(std::memory_order_relaxed), memory_.free_and_total().second);
    const auto threshold =
        static_cast<uint64_t>(settings_.garbage_collection_threshold * static_cast<double>(most));
    uint64_t wanted = heap_.segment_size(size);
    {
      const std::lock_guard lock(mutex_);
      wanted += reserved_;
    }
    if (wanted > threshold) {
      release_cached(wanted - threshold);
    }
  }

  [[noreturn]] void throw_out_of_memory(const Request& request, std::string failure) {
    const auto [device_free, device_total] = memory_.free_and_total();
    MemoryShortage shortage{};
    {
      const std::lock_guard lock(mutex_);
      ++heap_.statistics.out_of_memory;
      shortage.held = static_cast<uint64_t>(heap_.statistics.reserved_bytes.all.current);
      shortage.allocated = static_cast<uint64_t>(heap_.statistics.allocated_bytes.all.current);
      shortage.allocations = heap_.statistics.allocation.all.current;
      remember({Action::kOutOfMemory, device_free, request.bytes, request.stream, 0, request.context});
    }
    shortage.asked = request.bytes;
    shortage.device_free = device_free;
    shortage.device_total = device_total;
    shortage.limit = limit_.load(std::memory_order_relaxed);
    shortage.failure = std::move(failure);
    throw OutOfMemory(std::move(shortage));
  }

  // ---- the history ----

  std::shared_ptr<void> recorded_context() noexcept {
    std::function<std::shared_ptr<void>()> context;
    {
      const std::lock_guard lock(mutex_);
      context = recording_.context;
    }
    return context ? context() : nullptr;
  }

  bool is_recording() const { return is_recording_.load(std::memory_order_relaxed); }

  void remember(HistoryEntry entry) {
    if (is_recording() && recording_.entries) {
      history_.add(std::move(entry));
    }
  }

  void remember(Action action, const Block& block, std::shared_ptr<void> context) {
    if (is_recording()) {
      remember(
          {action, address_of(block.data), block.requested, block.segment->stream, 0, std::move(context)});
    }
  }

  void remember(Action action, const Segment& segment, std::shared_ptr<void> context) {
    if (is_recording()) {
      remember({action, address_of(segment.data), segment.size, segment.stream, 0, std::move(context)});
    }
  }

  void remember_allocation(Block* block, const Request& request) {
    block->context = request.context;
    remember(Action::kAllocate, *block, request.context);
  }

  DeviceMemory& memory_;
  const Settings settings_;
  const size_t granule_;
  Guards guards_;
  std::atomic<uint64_t> limit_{UINT64_MAX};
  std::atomic<double> fraction_{1};
  std::atomic<bool> is_recording_{false};
  std::atomic<bool> some_await_{false};  // whether awaiting_ has any

  mutable std::mutex mutex_;  // of all below
  std::condition_variable given_back_;
  int others_must_wait_ = 0;  // threads that are about to put blocks back, or give segments to the device
  uint64_t reserved_ = 0;     // bytes of segments, and of those that are being made
  Heap heap_;
  std::vector<Awaiting> awaiting_;
  std::vector<Event> spare_events_;
  Quarantine quarantine_;
  Recording recording_;
  History history_;
};

}  // namespace opsmith::caching
