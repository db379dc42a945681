// The operators of the `opsmith` namespace with which Python's memory functions reach the allocator: what
// c10::DeviceAllocator has no entry for. The history's stacks are PyTorch's CapturedTracebacks.
#include <opsmith/device/allocator.h>

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/library.h>

#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/memory_pool.h>
#include <opsmith/device/pinned.h>
#include <opsmith/device/pool_of_thread.h>

namespace opsmith {

namespace {

c10::DeviceIndex existing(int64_t device) {
  driver();  // raises after a fork
  TORCH_CHECK(device >= 0 && device < device_count(), device_type_name(), ":", device,
              " does not exist: there are ", static_cast<int>(device_count()), " devices");
  return static_cast<c10::DeviceIndex>(device);
}

caching::CachingAllocator& cache_of(int64_t device) {
  return device_cache(existing(device));
}

double memory_fraction(int64_t device) {
  return cache_of(device).memory_fraction();
}

void set_memory_fraction(double fraction, int64_t device) {
  cache_of(device).set_memory_fraction(fraction);
}

std::tuple<int64_t, int64_t> memory_info_of(int64_t device) {
  const auto [free_bytes, total_bytes] = memory_info(existing(device));
  return {static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
}

std::string allocator_backend() {
  return allocator_settings().cache ? "native" : "none";
}

// Of pinned memory: current, peak, allocated and freed, of the blocks and of their bytes.
std::tuple<std::vector<int64_t>, std::vector<int64_t>> host_memory_stats() {
  const auto row = [](const c10::CachingAllocator::Stat& stat) {
    return std::vector<int64_t>{stat.current, stat.peak, stat.allocated, stat.freed};
  };
  const PinnedStatistics statistics = pinned_statistics();
  return {row(statistics.count), row(statistics.bytes)};
}

void reset_host_memory_stats(bool peak) {
  peak ? pinned_allocator().reset_peak_stats() : pinned_allocator().reset_accumulated_stats();
}

int64_t make_memory_pool(int64_t device) {
  const uint64_t pool = new_pool();
  hold_pool(existing(device), pool);
  return static_cast<int64_t>(pool);
}

void hold_memory_pool(int64_t device, int64_t pool) {
  hold_pool(existing(device), static_cast<uint64_t>(pool));
}

void release_memory_pool(int64_t device, int64_t pool) {
  if (detail::loaded_driver != nullptr) {  // in a forked child: nothing of this is ours
    release_pool(static_cast<c10::DeviceIndex>(device), static_cast<uint64_t>(pool));
  }
}

int64_t memory_pool_holders(int64_t device, int64_t pool) {
  return pool_holders(existing(device), static_cast<uint64_t>(pool));
}

int64_t exchange_memory_pool(int64_t device, int64_t pool) {
  return static_cast<int64_t>(exchange_pool_of_thread(existing(device), static_cast<uint64_t>(pool)));
}

// nullptr when the stack cannot be had: then the entry goes without.
std::shared_ptr<void> stack(bool python, bool cpp) noexcept {
  try {
    return torch::CapturedTraceback::gather(python, /*script=*/false, cpp);
  } catch (const std::exception&) {
    return nullptr;
  }
}

void record_memory_history(bool enabled, bool entries, const std::string& stacks, int64_t most_entries,
                           bool clear) {
  std::optional<caching::Recording> recording;
  if (enabled) {
    recording.emplace();
    recording->entries = entries;
    recording->most_entries = static_cast<size_t>(most_entries);
    if (!stacks.empty()) {
      recording->context = [cpp = stacks == "all"] { return stack(/*python=*/true, cpp); };
    }
  }
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    device_cache(device).record_history(recording, clear);
  }
}

// Each stack once, and each frame once.
class Stacks {
 public:
  // Its number; -1 for none.
  int64_t number_of(const std::shared_ptr<void>& context) {
    if (context == nullptr) {
      return -1;
    }
    const auto [found, is_new] = numbers_.try_emplace(context.get(), static_cast<int64_t>(stacks_.size()));
    if (is_new) {
      stacks_.push_back(static_cast<torch::CapturedTraceback*>(context.get()));
    }
    return found->second;
  }

  torch::SymbolizedTracebacks symbolized() const { return torch::symbolize(stacks_); }

 private:
  std::map<void*, int64_t> numbers_;
  std::vector<torch::CapturedTraceback*> stacks_;
};

int64_t number(uintptr_t address) {
  return static_cast<int64_t>(address);
}

int64_t number(caching::Stream stream) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(stream));
}

// Rows of numbers and of texts, as runtime/module/memory.py puts them together.
using SnapshotRows =
    std::tuple<std::vector<std::vector<int64_t>>, std::vector<std::vector<int64_t>>, std::vector<std::string>,
               std::vector<std::vector<int64_t>>, std::vector<std::vector<int64_t>>, std::vector<std::string>,
               std::vector<std::string>, std::vector<int64_t>>;

SnapshotRows memory_snapshot(int64_t device) {
  caching::CachingAllocator* const used = used_device_cache(existing(device));
  const caching::Snapshot taken = used == nullptr ? caching::Snapshot() : used->snapshot();
  Stacks stacks;
  SnapshotRows rows;
  auto& [segments, blocks, actions, entries, frames_of_stacks, names, files, lines] = rows;
  for (const caching::SegmentSnapshot& segment : taken.segments) {
    segments.push_back({number(segment.address), static_cast<int64_t>(segment.size), number(segment.stream),
                        segment.kind == caching::PoolKind::kSmall, stacks.number_of(segment.context),
                        static_cast<int64_t>(segment.private_pool),
                        static_cast<int64_t>(segment.blocks.size())});
    for (const caching::BlockSnapshot& block : segment.blocks) {
      blocks.push_back({number(block.address), static_cast<int64_t>(block.size),
                        static_cast<int64_t>(block.requested), static_cast<int64_t>(block.state),
                        stacks.number_of(block.context)});
    }
  }
  for (const caching::HistoryEntry& entry : taken.history) {
    actions.emplace_back(caching::action_name(entry.action));
    entries.push_back({number(entry.address), static_cast<int64_t>(entry.size), number(entry.stream),
                       entry.time_us, stacks.number_of(entry.context)});
  }
  const torch::SymbolizedTracebacks symbolized = stacks.symbolized();
  for (const std::vector<uint64_t>& frames : symbolized.tracebacks) {
    frames_of_stacks.emplace_back(frames.begin(), frames.end());
  }
  for (const torch::unwind::Frame& frame : symbolized.all_frames) {
    names.push_back(frame.funcname);
    files.push_back(frame.filename);
    lines.push_back(static_cast<int64_t>(frame.lineno));
  }
  return rows;
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("memory_fraction(int device) -> float", &memory_fraction);
  m.def("set_memory_fraction(float fraction, int device) -> ()", &set_memory_fraction);
  m.def("memory_info(int device) -> (int free, int total)", &memory_info_of);
  m.def("allocator_backend() -> str", &allocator_backend);
  m.def("can_pin_memory() -> bool", [] { return driver().pinned_allocate != nullptr; });
  m.def("host_memory_stats() -> (int[] blocks, int[] bytes)", &host_memory_stats);
  m.def("reset_host_memory_stats(bool peak) -> ()", &reset_host_memory_stats);
  m.def("make_memory_pool(int device) -> int", &make_memory_pool);
  m.def("hold_memory_pool(int device, int pool) -> ()", &hold_memory_pool);
  m.def("release_memory_pool(int device, int pool) -> ()", &release_memory_pool);
  m.def("memory_pool_holders(int device, int pool) -> int", &memory_pool_holders);
  m.def("exchange_memory_pool(int device, int pool) -> int", &exchange_memory_pool);
  m.def("record_memory_history(bool enabled, bool entries, str stacks, int most_entries, bool clear) -> ()",
        &record_memory_history);
  m.def(
      "memory_snapshot(int device) -> (int[][] segments, int[][] blocks, str[] actions, int[][] entries, "
      "int[][] frames_of_stacks, str[] names, str[] files, int[] lines)",
      &memory_snapshot);
}

}  // namespace

}  // namespace opsmith
