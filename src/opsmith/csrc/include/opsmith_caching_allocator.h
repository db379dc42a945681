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
// All functions may be called from any thread. No lock is held while the device works.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <opsmith/caching/blocks.h>
#include <opsmith/caching/device_memory.h>
#include <opsmith/caching/guards.h>
#include <opsmith/caching/history.h>
#include <opsmith/caching/out_of_memory.h>
#include <opsmith/caching/settings.h>
#include <opsmith/caching/statistics.h>

namespace opsmith::caching {

// When a block may be used again that was used on its own stream only.
enum class Reuse : uint8_t {
  kInStreamOrder,  // at once, by what is queued later
  kWhenIdle,       // when that work is done, since the host may touch new memory without a look at the stream
};

class CachingAllocator {
 public:
  // Blocks begin at multiples of `alignment`, a power of two, if segments do.
  explicit CachingAllocator(DeviceMemory& memory, const Settings& settings = {}, size_t alignment = 1,
                            Reuse reuse = Reuse::kInStreamOrder)
      : memory_(memory),
        settings_(settings),
        granule_(std::max(kSmallest, alignment)),
        reuse_(reuse),
        guards_(memory, settings.debug ? granule_ : 0) {
    if (settings.memory_fraction < 1) {
      set_memory_fraction(settings.memory_fraction);
    }
  }
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Memory for work that is queued on `stream` from now on; `bytes` > 0. Throws OutOfMemory, and what the
  // device throws.
  Block* allocate(size_t bytes, Stream stream) {
    Request request{bytes, size_of(bytes), stream, {}};
    if (is_recording_.load(std::memory_order_relaxed)) {
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
    if (is_recording_.load(std::memory_order_relaxed)) {
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
    return statistics_;
  }
  void reset_peaks() {
    const std::lock_guard lock(mutex_);
    statistics_.reset_peaks();
  }
  void reset_accumulated() {
    const std::lock_guard lock(mutex_);
    statistics_.reset_accumulated();
  }

  // Whether `pointer` lies in a block that is allocated. Walks the blocks of a segment.
  bool contains(const void* pointer) const {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const std::lock_guard lock(mutex_);
    auto found = segments_.upper_bound(address);
    if (found == segments_.begin()) {
      return false;
    }
    const Block* block = (--found)->second->first;
    while (block != nullptr && address_of(block->data) + block->size <= address) {
      block = block->next;
    }
    return block != nullptr && block->state == BlockState::kAllocated;
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
    Snapshot taken{{}, history_.oldest_first()};
    remember(Action::kSnapshot, 0, 0, nullptr, nullptr);
    for (const auto& [address, segment] : segments_) {
      SegmentSnapshot& made = taken.segments.emplace_back(
          SegmentSnapshot{address, segment->size, segment->stream, segment->kind, {}, segment->context});
      for (const Block* block = segment->first; block != nullptr; block = block->next) {
        made.blocks.push_back(
            {address_of(block->data), block->size, block->requested, block->state, block->context});
      }
    }
    return taken;
  }

 private:
  struct Request {
    size_t bytes;
    size_t size;  // of its block
    Stream stream;
    std::shared_ptr<void> context;
  };

  struct Pools {
    Stream stream;
    std::array<FreeBlocks, 2> of_kind;  // by PoolKind
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

  static uintptr_t address_of(const char* data) { return reinterpret_cast<uintptr_t>(data); }

  // ---- sizes ----

  size_t rounded(size_t bytes) const { return (bytes + granule_ - 1) & ~(granule_ - 1); }

  size_t size_of(size_t bytes) const {
    if (settings_.debug) {
      return rounded(guards_.front() + bytes + Guards::kTail);
    }
    return settings_.cache ? rounded(bytes) : bytes;
  }

  static PoolKind kind_of(size_t size) { return size <= kMostSmall ? PoolKind::kSmall : PoolKind::kLarge; }

  size_t segment_size(size_t size) const {
    if (!settings_.cache) {
      return size;
    }
    if (size <= kMostSmall) {
      return std::max(kSmallSegment, granule_);
    }
    constexpr size_t kStep = kSmallSegment;
    return size < kLeastAlone ? std::max(kLargeSegment, granule_) : (size + kStep - 1) / kStep * kStep;
  }

  // The largest block that may serve a request: large blocks are kept for large requests.
  size_t most_for(size_t size) const {
    if (size < settings_.max_split_size) {
      return settings_.max_split_size - 1;
    }
    return size + kLargeSegment;
  }

  bool is_split(const Block& block, size_t size) const {
    const size_t rest = block.size - size;
    return block.segment->kind == PoolKind::kSmall ? rest >= granule_
                                                   : rest > kMostSmall && size < settings_.max_split_size;
  }

  // ---- blocks; with the lock held ----

  FreeBlocks& pool(Stream stream, PoolKind kind) {
    for (const auto& pools : pools_) {
      if (pools->stream == stream) {
        return pools->of_kind[static_cast<size_t>(kind)];
      }
    }
    pools_.push_back(std::make_unique<Pools>(Pools{stream, {FreeBlocks(granule_), FreeBlocks(granule_)}}));
    return pools_.back()->of_kind[static_cast<size_t>(kind)];
  }

  Block* take_cached(Request& request) {
    if (!settings_.cache) {
      return nullptr;
    }
    FreeBlocks& free_blocks = pool(request.stream, kind_of(request.size));
    Block* const block = free_blocks.find(request.size, most_for(request.size));
    if (block != nullptr) {
      remove_free(block);
      hand_out(block, request);
    }
    return block;
  }

  void insert_free(Block* block) {
    block->segment->pool->insert(block);
    if (!block->is_whole_segment()) {
      statistics_.inactive_split.add(block->segment->kind, 1);
      statistics_.inactive_split_bytes.add(block->segment->kind, static_cast<int64_t>(block->size));
    }
  }

  void remove_free(Block* block) {
    block->segment->pool->remove(block);
    if (!block->is_whole_segment()) {
      statistics_.inactive_split.subtract(block->segment->kind, 1);
      statistics_.inactive_split_bytes.subtract(block->segment->kind, static_cast<int64_t>(block->size));
    }
  }

  // Cuts `block`, which is in no pool, to what is asked for and counts it.
  void hand_out(Block* block, Request& request) {
    if (is_split(*block, request.size)) {
      Block* const rest = blocks_.make();
      rest->data = block->data + request.size;
      rest->size = block->size - request.size;
      rest->segment = block->segment;
      rest->state = BlockState::kFree;
      rest->previous = block;
      rest->next = block->next;
      if (block->next != nullptr) {
        block->next->previous = rest;
      }
      block->next = rest;
      block->size = request.size;
      insert_free(rest);
    }
    block->state = BlockState::kAllocated;
    block->requested = request.bytes;
    const PoolKind kind = block->segment->kind;
    const auto size = static_cast<int64_t>(block->size);
    statistics_.allocation.add(kind, 1);
    statistics_.allocated_bytes.add(kind, size);
    statistics_.active.add(kind, 1);
    statistics_.active_bytes.add(kind, size);
    statistics_.requested_bytes.add(kind, static_cast<int64_t>(request.bytes));
    if (block->size >= settings_.max_split_size) {
      statistics_.oversize_allocation.add(1);
    }
    ++tick_;
    if (is_recording_.load(std::memory_order_relaxed)) {
      block->context = request.context;
      remember(Action::kAllocate, address_of(block->data), request.bytes, request.stream,
               std::move(request.context));
    }
  }

  // What a user gave back is no longer the user's, whether or not it can be used again.
  void count_free(const Block& block, std::shared_ptr<void> context) {
    const PoolKind kind = block.segment->kind;
    statistics_.allocation.subtract(kind, 1);
    statistics_.allocated_bytes.subtract(kind, static_cast<int64_t>(block.size));
    statistics_.requested_bytes.subtract(kind, static_cast<int64_t>(block.requested));
    if (block.size >= settings_.max_split_size) {
      statistics_.oversize_allocation.subtract(1);
    }
    remember(Action::kFreeRequested, address_of(block.data), block.requested, block.segment->stream,
             std::move(context));
  }

  void end_use(Block* block) {
    statistics_.active.subtract(block->segment->kind, 1);
    statistics_.active_bytes.subtract(block->segment->kind, static_cast<int64_t>(block->size));
    remember(Action::kFreeCompleted, address_of(block->data), block->requested, block->segment->stream,
             nullptr);
    block->other_streams.clear();
    block->context.reset();
    block->requested = 0;
    block->state = BlockState::kFree;
  }

  void put_back(Block* block) {
    end_use(block);
    if (Block* const before = block->previous; before != nullptr && before->state == BlockState::kFree) {
      remove_free(before);
      block->data = before->data;
      block->size += before->size;
      block->previous = before->previous;
      (before->previous != nullptr ? before->previous->next : block->segment->first) = block;
      blocks_.give_back(before);
    }
    if (Block* const after = block->next; after != nullptr && after->state == BlockState::kFree) {
      remove_free(after);
      block->size += after->size;
      block->next = after->next;
      if (after->next != nullptr) {
        after->next->previous = block;
      }
      blocks_.give_back(after);
    }
    insert_free(block);
    if (block->is_whole_segment()) {
      block->segment->last_use = tick_;
    }
  }

  // ---- work that is not done ----

  std::vector<Mark> marks_of(const Block& block) noexcept {
    std::vector<Mark> marks;
    if (reuse_ == Reuse::kWhenIdle && !memory_.is_idle(block.segment->stream)) {
      marks.push_back(mark(block.segment->stream));
    }
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
      statistics_.synchronizations += wait == Wait::kYes ? 1 : 0;
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

  // Whether any were about to give something back.
  bool wait_for_others() {
    std::unique_lock lock(mutex_);
    const bool any = others_must_wait_ > 0;
    given_back_.wait_for(lock, kPatience, [&] { return others_must_wait_ == 0; });
    return any;
  }

  void finish_work(const Block& block) noexcept {
    finish_work(block.segment->stream);
    for (const Stream stream : block.other_streams) {
      finish_work(stream);
    }
  }

  void finish_work(Stream stream) noexcept {
    if (!memory_.is_idle(stream)) {
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
    if (is_recording_.load(std::memory_order_relaxed)) {
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
      end_use(block);
      ++others_must_wait_;
      segment = take_segment(block->segment);
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
        statistics_.retries += attempt == 0 ? 1 : 0;
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
    const size_t usual = segment_size(request.size);
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
    Block* const block = insert_segment(static_cast<char*>(made.data), bytes, request);
    hand_out(block, request);
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

  Block* insert_segment(char* data, size_t bytes, const Request& request) {
    const PoolKind kind = kind_of(request.size);
    auto segment = std::make_unique<Segment>(
        Segment{this, data, bytes, request.stream, kind, &pool(request.stream, kind)});
    Block* const block = blocks_.make();
    block->data = data;
    block->size = bytes;
    block->segment = segment.get();
    block->previous = block->next = nullptr;
    segment->first = block;
    segment->context = request.context;
    segments_.emplace(address_of(data), std::move(segment));
    ++statistics_.device_allocations;
    statistics_.segment.add(kind, 1);
    statistics_.reserved_bytes.add(kind, static_cast<int64_t>(bytes));
    if (bytes >= settings_.max_split_size) {
      statistics_.oversize_segment.add(1);
    }
    remember(Action::kSegmentAllocate, address_of(data), bytes, request.stream, request.context);
    return block;
  }

  // Takes a segment out whose one block is in no pool.
  std::unique_ptr<Segment> take_segment(Segment* segment) {
    blocks_.give_back(segment->first);
    const auto found = segments_.find(address_of(segment->data));
    std::unique_ptr<Segment> taken = std::move(found->second);
    segments_.erase(found);
    return taken;
  }

  void release_segment(const Segment& segment) noexcept {
    memory_.release(segment.data);
    const std::lock_guard lock(mutex_);
    reserved_ -= segment.size;
    ++statistics_.device_releases;
    statistics_.segment.subtract(segment.kind, 1);
    statistics_.reserved_bytes.subtract(segment.kind, static_cast<int64_t>(segment.size));
    if (segment.size >= settings_.max_split_size) {
      statistics_.oversize_segment.subtract(1);
    }
    remember(Action::kSegmentFree, address_of(segment.data), segment.size, segment.stream, nullptr);
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
    std::vector<std::unique_ptr<Segment>> segments;
    {
      const std::lock_guard lock(mutex_);
      segments = take_free_segments(bytes);
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

  std::vector<std::unique_ptr<Segment>> take_free_segments(size_t bytes) {
    std::vector<Segment*> free_ones;
    for (const auto& [address, segment] : segments_) {
      if (segment->first->is_whole_segment() && segment->first->state == BlockState::kFree) {
        free_ones.push_back(segment.get());
      }
    }
    std::sort(free_ones.begin(), free_ones.end(),
              [](const Segment* a, const Segment* b) { return a->last_use < b->last_use; });
    std::vector<std::unique_ptr<Segment>> taken;
    for (Segment* const segment : free_ones) {
      if (bytes == 0) {
        break;
      }
      bytes -= std::min(bytes, segment->size);
      remove_free(segment->first);
      taken.push_back(take_segment(segment));
    }
    return taken;
  }

  // Before a new segment would take the process beyond its threshold.
  void collect_garbage(size_t size) noexcept {
    if (settings_.garbage_collection_threshold == 0) {
      return;
    }
    const uint64_t most = std::min(limit_.load(std::memory_order_relaxed), memory_.free_and_total().second);
    const auto threshold =
        static_cast<uint64_t>(settings_.garbage_collection_threshold * static_cast<double>(most));
    uint64_t wanted = segment_size(size);
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
      ++statistics_.out_of_memory;
      shortage.held = static_cast<uint64_t>(statistics_.reserved_bytes.all.current);
      shortage.allocated = static_cast<uint64_t>(statistics_.allocated_bytes.all.current);
      shortage.allocations = statistics_.allocation.all.current;
      remember(Action::kOutOfMemory, device_free, request.bytes, request.stream, request.context);
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

  void remember(Action action, uintptr_t address, size_t size, Stream stream, std::shared_ptr<void> context) {
    if (is_recording_.load(std::memory_order_relaxed) && recording_.entries) {
      history_.add({action, address, size, stream, 0, std::move(context)});
    }
  }

  DeviceMemory& memory_;
  const Settings settings_;
  const size_t granule_;
  const Reuse reuse_;
  Guards guards_;
  std::atomic<uint64_t> limit_{UINT64_MAX};
  std::atomic<double> fraction_{1};
  std::atomic<bool> is_recording_{false};
  std::atomic<bool> some_await_{false};  // whether awaiting_ has any

  mutable std::mutex mutex_;  // of all below
  std::condition_variable given_back_;
  int others_must_wait_ = 0;  // threads that are about to put blocks back, or give segments to the device
  uint64_t reserved_ = 0;     // bytes of segments, and of those that are being made
  uint64_t tick_ = 0;         // allocations
  Statistics statistics_;
  BlockStore blocks_;
  std::vector<std::unique_ptr<Pools>> pools_;
  std::map<uintptr_t, std::unique_ptr<Segment>> segments_;
  std::vector<Awaiting> awaiting_;
  std::vector<Event> spare_events_;
  Quarantine quarantine_;
  Recording recording_;
  History history_;
};

}  // namespace opsmith::caching
