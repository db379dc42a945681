// opsmith_caching_allocator.h alone, over a device of this file: `caching_allocator CASE` ends with 0, or
// says which claim does not hold. test_caching_allocator.py runs the cases.
#include <opsmith_caching_allocator.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace opsmith::caching;

namespace {

#define CLAIM(condition)                                          \
  do {                                                            \
    if (!(condition)) {                                           \
      std::printf("line %d: not so: %s\n", __LINE__, #condition); \
      std::exit(1);                                               \
    }                                                             \
  } while (false)

// A stream is busy from work() until finish().
struct FakeStream {
  int queued = 0;
  int done = 0;
};

struct FakeEvent {
  FakeStream* stream;
  int place;
};

class FakeDevice final : public DeviceMemory {
 public:
  size_t capacity = size_t{1} << 30;
  bool has_events = true;
  std::map<void*, size_t> live;
  size_t used = 0;
  int allocations = 0;
  int waits = 0;
  std::vector<std::string> reports;

  NewMemory allocate(size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes > capacity - used) {
      return {nullptr, "it is full"};
    }
    void* const data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    live[data] = bytes;
    used += bytes;
    ++allocations;
    return {data, {}};
  }
  void release(void* data) noexcept override {
    const std::lock_guard lock(mutex_);
    CLAIM(live.count(data) == 1);
    used -= live[data];
    live.erase(data);
    std::free(data);
  }
  std::pair<uint64_t, uint64_t> free_and_total() noexcept override {
    const std::lock_guard lock(mutex_);
    return {capacity - used, capacity};
  }

  bool is_idle(Stream stream) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto& fake = *static_cast<FakeStream*>(stream);
    return fake.done == fake.queued;
  }
  void synchronize(Stream stream) noexcept override {
    const std::lock_guard lock(mutex_);
    auto& fake = *static_cast<FakeStream*>(stream);
    fake.done = fake.queued;
    ++waits;
  }

  Event make_event() noexcept override { return has_events ? new FakeEvent{} : nullptr; }
  bool record(Event event, Stream stream) noexcept override {
    const std::lock_guard lock(mutex_);
    auto* const fake = static_cast<FakeStream*>(stream);
    *static_cast<FakeEvent*>(event) = {fake, fake->queued};
    return true;
  }
  bool is_done(Event event) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto& fake = *static_cast<FakeEvent*>(event);
    return fake.stream->done >= fake.place;
  }
  void synchronize_event(Event event) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto& fake = *static_cast<FakeEvent*>(event);
    fake.stream->done = std::max(fake.stream->done, fake.place);
    ++waits;
  }

  void fill(void* data, uint8_t value, size_t bytes, Stream) noexcept override {
    std::memset(data, value, bytes);
  }
  bool read(void* host, const void* data, size_t bytes, Stream) noexcept override {
    std::memcpy(host, data, bytes);
    return true;
  }
  void report(const std::string& what) noexcept override { reports.push_back(what); }

 private:
  std::mutex mutex_;
};

FakeDevice device;
FakeStream first;
FakeStream second;

int64_t reserved(const CachingAllocator& allocator) {
  return allocator.statistics().reserved_bytes.all.current;
}

void a_freed_block_serves_its_stream_at_once() {
  CachingAllocator allocator(device);
  Block* const block = allocator.allocate(1000, &first);
  void* const data = allocator.data(block);
  ++first.queued;
  allocator.free(block);
  Block* const again = allocator.allocate(900, &first);
  CLAIM(allocator.data(again) == data);
  Block* const other = allocator.allocate(900, &second);
  CLAIM(allocator.data(other) != data);
  CLAIM(device.allocations == 2);
  CLAIM(device.waits == 0);
  CLAIM(allocator.contains(data));
  allocator.free(again);
  CLAIM(!allocator.contains(data));
  allocator.free(other);
  allocator.empty_cache();
  CLAIM(device.waits == 1);  // the first stream's work used memory that the device got back
  CLAIM(device.live.empty());
}

void blocks_of_other_streams_come_back_when_they_are_done() {
  for (const bool has_events : {true, false}) {
    device.has_events = has_events;
    first = second = {};
    CachingAllocator allocator(device);
    Block* const block = allocator.allocate(1000, &first);
    void* const data = allocator.data(block);
    ++second.queued;
    allocator.record_stream(block, &second);
    allocator.record_stream(block, &second);
    allocator.free(block);
    const Statistics statistics = allocator.statistics();
    CLAIM(statistics.allocated_bytes.all.current == 0);
    CLAIM(statistics.active_bytes.all.current == 1024);
    CLAIM(allocator.data(allocator.allocate(1000, &first)) != data);
    ++second.done;
    ++second.queued;  // of no interest to the block, but a stream without events must be idle
    CLAIM((allocator.data(allocator.allocate(1000, &first)) == data) == has_events);
    second.done = second.queued;
    CLAIM((allocator.data(allocator.allocate(1000, &first)) == data) != has_events);
    CLAIM(device.waits == 0);
  }
}

void neighbours_are_merged() {
  CachingAllocator allocator(device);
  std::vector<Block*> blocks;
  for (int i = 0; i < 300; ++i) {
    blocks.push_back(allocator.allocate(1 + 997 * i % 5000, &first));
  }
  CLAIM(device.allocations == 1);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(0));
  for (Block* const block : blocks) {
    allocator.free(block);
  }
  const Snapshot snapshot = allocator.snapshot();
  CLAIM(snapshot.segments.size() == 1);
  CLAIM(snapshot.segments[0].blocks.size() == 1);
  CLAIM(allocator.statistics().inactive_split.all.current == 0);
  CLAIM(reserved(allocator) == 2 << 20);
}

void sizes_and_their_segments() {
  CachingAllocator allocator(device, {}, 4096);
  const auto segment_of = [&](size_t bytes) { return allocator.allocate(bytes, &first)->segment->size; };
  CLAIM(allocator.allocate(1, &first)->size == 4096);
  CLAIM(segment_of(kMiB) == 2 * kMiB);
  CLAIM(segment_of(kMiB + 1) == 20 * kMiB);
  CLAIM(segment_of(9 * kMiB) == 20 * kMiB);
  CLAIM(segment_of(21 * kMiB) == 22 * kMiB);
  CLAIM(segment_of(21 * kMiB + 1) == 22 * kMiB);
}

void a_full_device_gets_the_cache_back() {
  device.capacity = 64 * kMiB;
  CachingAllocator allocator(device);
  Block* const kept = allocator.allocate(kMiB + 1, &second);
  allocator.free(allocator.allocate(40 * kMiB, &first));
  Block* const large = allocator.allocate(42 * kMiB, &second);
  CLAIM(allocator.statistics().retries == 1);
  try {
    allocator.allocate(4 * kMiB, &first);
    CLAIM(!"an exception");
  } catch (const OutOfMemory& error) {
    CLAIM(std::string(error.what()) ==
          "out of memory. Tried to allocate 4.00 MiB: 2.00 MiB of 64.00 MiB are free, and this process holds "
          "62.00 MiB: 43.00 MiB in allocations (2) and 19.00 MiB in its cache");
    CLAIM(error.shortage().failure == "it is full");
  }
  CLAIM(allocator.statistics().out_of_memory == 1);
  allocator.allocate(2 * kMiB, &first);  // a usual segment does not fit, but this does
  allocator.free(large);
  allocator.free(kept);
  allocator.empty_cache();
  CLAIM(device.used == 2 * kMiB);
}

void a_full_device_waits_for_streams() {
  device.capacity = 40 * kMiB;
  CachingAllocator allocator(device);
  Block* const block = allocator.allocate(30 * kMiB, &first);
  ++second.queued;
  allocator.record_stream(block, &second);
  allocator.free(block);
  CLAIM(allocator.allocate(36 * kMiB, &first) != nullptr);
  CLAIM(device.waits == 1);
  CLAIM(allocator.statistics().synchronizations == 1);
}

void limits_are_kept() {
  device.capacity = 100 * kMiB;
  CachingAllocator allocator(device, parse_settings("per_process_memory_fraction:0.5"));
  Block* const block = allocator.allocate(40 * kMiB, &first);
  try {
    allocator.allocate(20 * kMiB, &first);
    CLAIM(!"an exception");
  } catch (const OutOfMemory& error) {
    CLAIM(std::strstr(error.what(), "holds 40.00 MiB of the 50.00 MiB that it may") != nullptr);
  }
  allocator.set_memory_fraction(1);
  allocator.free(allocator.allocate(20 * kMiB, &first));
  allocator.set_memory_fraction(0.5);
  allocator.free(block);
  allocator.allocate(50 * kMiB, &first);  // the cache gives way
}

void memory_of_a_private_pool_stays_its_own() {
  CachingAllocator allocator(device);
  Block* const own = allocator.allocate(1000, &first, 7);
  void* const data = allocator.data(own);
  allocator.free(own);
  allocator.empty_cache();
  CLAIM(device.live.size() == 1);  // a graph's work may use what its capture gave back
  CLAIM(allocator.data(allocator.allocate(1000, &first)) != data);
  CLAIM(allocator.data(allocator.allocate(1000, &first, 8)) != data);
  Block* const again = allocator.allocate(1000, &first, 7);
  CLAIM(allocator.data(again) == data);
  CLAIM(allocator.snapshot().segments.size() == 3);
  allocator.dissolve(7);
  CLAIM(allocator.contains(data));
  allocator.free(again);
  allocator.empty_cache();
  CLAIM(device.live.size() == 2);
}

void large_segments_stay_whole() {
  CachingAllocator allocator(device, parse_settings("max_split_size_mb:32"));
  allocator.free(allocator.allocate(64 * kMiB, &first));
  Block* const small = allocator.allocate(12 * kMiB, &first);
  CLAIM(small->segment->size == 12 * kMiB);
  CLAIM(allocator.allocate(50 * kMiB, &first)->segment->size == 64 * kMiB);
  CLAIM(allocator.statistics().oversize_segment.current == 1);
}

void garbage_is_collected() {
  device.capacity = 100 * kMiB;
  CachingAllocator allocator(device, parse_settings("garbage_collection_threshold: 0.6"));
  Block* const older = allocator.allocate(20 * kMiB, &first);
  Block* const younger = allocator.allocate(22 * kMiB, &first);
  allocator.free(older);
  allocator.allocate(512, &first);
  allocator.free(younger);
  allocator.allocate(30 * kMiB, &first);  // 2 + 22 + 30: the older one is enough
  CLAIM(reserved(allocator) == static_cast<int64_t>(54 * kMiB));
  CLAIM(allocator.statistics().retries == 0);
}

void nothing_is_kept_without_a_cache() {
  CachingAllocator allocator(device, parse_settings("backend:none"));
  Block* const block = allocator.allocate(1000, &first);
  CLAIM(device.used == 1000);
  ++first.queued;
  allocator.free(block);
  CLAIM(device.waits == 1);
  CLAIM(device.used == 0);
  CLAIM(reserved(allocator) == 0);
}

void guards_report_mistakes() {
  CachingAllocator allocator(device, parse_settings("debug:True"));
  Block* block = allocator.allocate(1000, &first);
  auto* data = static_cast<char*>(allocator.data(block));
  CLAIM(data[0] == '\xff' && data[999] == '\xff');
  std::memset(data, 0, 1000);
  allocator.free(block);
  CLAIM(device.reports.empty());

  block = allocator.allocate(1000, &first);
  data = static_cast<char*>(allocator.data(block));
  data[1003] = 1;
  data[-8] = 1;
  allocator.free(block);
  CLAIM(device.reports.size() == 2);
  CLAIM(device.reports[0] == "memory of 1000 bytes was written to before its start, at byte -8");
  CLAIM(device.reports[1] == "memory of 1000 bytes was written to past its end, at byte 1003");

  block = allocator.allocate(24, &first);
  data = static_cast<char*>(allocator.data(block));
  allocator.free(block);
  CLAIM(data[23] == '\xff');
  data[20] = 0;
  allocator.empty_cache();
  CLAIM(device.reports.size() == 3);
  CLAIM(
      device.reports[2] ==
      "memory of 24 bytes was written to after it was freed, at byte 20: by what had kept its address, or by "
      "work on a stream that nobody told it of (Tensor.record_stream)");
  CLAIM(device.live.empty());
}

void settings_that_cannot_be() {
  const std::pair<const char*, const char*> cases[] = {
      {"max_split_size_mb:20", "its option `max_split_size_mb` must be a whole number above 20, not `20`"},
      {"max_split_size_mb:many",
       "its option `max_split_size_mb` must be a whole number above 20, not `many`"},
      {"debug:True,garbage_collection_threshold:1",
       "its option `garbage_collection_threshold` must be a number between 0 and 1, not `1`"},
      {"per_process_memory_fraction:-1",
       "its option `per_process_memory_fraction` must be a number from 0 to 1, not `-1`"},
      {"backend:cuda", "its option `backend` must be native or none, not `cuda`"},
      {"debug:", "its option `debug` must be True or False, not ``"},
      {"expandable_segments:True", "it has no option `expandable_segments`; known are "},
      {"debug", "`debug` is no `option:value`; known are "},
  };
  for (const auto& [text, wanted] : cases) {
    try {
      parse_settings(text);
      CLAIM(!"an exception");
    } catch (const std::invalid_argument& error) {
      if (std::string(error.what()).rfind(wanted, 0) != 0) {
        std::printf("%s: %s\n", text, error.what());
        std::exit(1);
      }
    }
  }
  CLAIM(parse_settings(" max_split_size_mb : 64 , debug:1,").max_split_size == 64 * kMiB);
}

void the_history_is_bounded_and_ordered() {
  CachingAllocator allocator(device);
  auto context = std::make_shared<int>(7);
  allocator.record_history(Recording{true, 4, [&] { return context; }}, true);
  Block* const block = allocator.allocate(1000, &first);
  allocator.free(block);
  allocator.allocate(2000, &first);
  const Snapshot snapshot = allocator.snapshot();
  std::string actions;
  for (const HistoryEntry& entry : snapshot.history) {
    actions += std::string(action_name(entry.action)) + " " + std::to_string(entry.size) + "; ";
  }
  CLAIM(actions == "alloc 1000; free_requested 1000; free_completed 1000; alloc 2000; ");
  CLAIM(snapshot.segments[0].blocks[0].context == context);
  CLAIM(snapshot.segments[0].blocks[0].requested == 2000);
  allocator.record_history({}, false);
  allocator.allocate(3000, &first);
  CLAIM(allocator.snapshot().history.size() == 4);
}

Block* allocate_or_nothing(CachingAllocator& allocator, size_t bytes, Stream stream) {
  try {
    return allocator.allocate(bytes, stream);
  } catch (const OutOfMemory&) {
    return nullptr;
  }
}

// Each of some threads writes its own bytes to what it gets and finds them again.
void exercise(CachingAllocator& allocator, std::vector<FakeStream>& streams, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<std::pair<Block*, char>> mine;
  const auto give_back = [&](size_t i) {
    const auto [block, mark] = mine[i];
    const char* const data = static_cast<char*>(allocator.data(block));
    CLAIM(data[0] == mark && data[block->requested / 2] == mark && data[block->requested - 1] == mark);
    if (random() % 8 == 0) {
      allocator.record_stream(block, &streams[random() % streams.size()]);
    }
    allocator.free(block);
    mine[i] = mine.back();
    mine.pop_back();
  };
  for (int step = 0; step < 4000; ++step) {
    if (mine.size() < 40 && random() % 2 == 0) {
      const size_t bytes = 1 + random() % (size_t{1} << (1 + random() % 22));
      Block* const block = allocate_or_nothing(allocator, bytes, &streams[random() % 3]);
      if (block == nullptr) {
        while (mine.size() > 5) {
          give_back(0);
        }
        continue;
      }
      CLAIM(block->size >= bytes);
      const auto mark = static_cast<char>(random());
      char* const data = static_cast<char*>(allocator.data(block));
      data[0] = data[bytes / 2] = data[bytes - 1] = mark;
      mine.emplace_back(block, mark);
    } else if (!mine.empty()) {
      give_back(random() % mine.size());
    }
    if (step % 1000 == 999) {
      allocator.empty_cache();
    }
  }
  while (!mine.empty()) {
    give_back(0);
  }
}

void threads_share_it() {
  for (const char* const settings : {"", "garbage_collection_threshold:0.1", "backend:none", "debug:1"}) {
    device.capacity = 160 * kMiB;
    CachingAllocator allocator(device, parse_settings(settings));
    std::vector<FakeStream> streams(5);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 6; ++thread) {
      threads.emplace_back([&, thread] { exercise(allocator, streams, thread); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    CLAIM(device.reports.empty());
    allocator.empty_cache();
    CLAIM(device.live.empty());
    Statistics statistics = allocator.statistics();
    CLAIM(statistics.allocation.all.allocated > 1000);
    statistics.for_each_count([](const Count& count) {
      CLAIM(count.current == 0);
      CLAIM(count.allocated == count.freed);
    });
  }
}

#define CASE(name) {#name, name}
const std::map<std::string, void (*)()> cases = {
    CASE(a_freed_block_serves_its_stream_at_once),
    CASE(blocks_of_other_streams_come_back_when_they_are_done),
    CASE(neighbours_are_merged),
    CASE(sizes_and_their_segments),
    CASE(a_full_device_gets_the_cache_back),
    CASE(a_full_device_waits_for_streams),
    CASE(limits_are_kept),
    CASE(memory_of_a_private_pool_stays_its_own),
    CASE(large_segments_stay_whole),
    CASE(garbage_is_collected),
    CASE(nothing_is_kept_without_a_cache),
    CASE(guards_report_mistakes),
    CASE(settings_that_cannot_be),
    CASE(the_history_is_bounded_and_ordered),
    CASE(threads_share_it),
};

}  // namespace

int main(int count, char** arguments) {
  if (count == 1) {
    for (const auto& [name, run] : cases) {
      std::printf("%s\n", name.c_str());
    }
    return 0;
  }
  cases.at(arguments[1])();
  return 0;
}
