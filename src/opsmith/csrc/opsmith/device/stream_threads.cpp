// See stream_threads.h.
#include <opsmith/device/stream_threads.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

namespace opsmith {

namespace {

thread_local int part = 0;
thread_local bool is_in_loop = false;

// The parts of one loop.
class Loop {
 public:
  Loop(int64_t begin, int64_t end, int64_t parts, c10::function_ref<void(int64_t, int64_t)> work)
      : begin_(begin), end_(end), length_((end - begin + parts - 1) / parts), work_(work) {}

  void run(int number) noexcept {
    const int64_t from = begin_ + number * length_;
    part = number;
    is_in_loop = true;
    try {
      if (from < end_) {
        work_(from, std::min(end_, from + length_));
      }
    } catch (...) {
      if (!has_thrown_.test_and_set()) {
        thrown_ = std::current_exception();
      }
    }
    part = 0;
    is_in_loop = false;
  }

  void rethrow() const {
    if (thrown_) {
      std::rethrow_exception(thrown_);
    }
  }

 private:
  const int64_t begin_;
  const int64_t end_;
  const int64_t length_;
  const c10::function_ref<void(int64_t, int64_t)> work_;
  std::atomic_flag has_thrown_;
  std::exception_ptr thrown_;
};

// Gives its turn to others for a while, since loops follow one another; false when that is over.
template <class Condition>
bool yields_until(const Condition& condition) {
  constexpr std::chrono::microseconds kWhile{200};
  const auto last = std::chrono::steady_clock::now() + kWhile;
  for (int turn = 1; !condition(); ++turn) {
    if (turn % 16 == 0 && std::chrono::steady_clock::now() > last) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

class Team {
 public:
  explicit Team(int others) : others_(others) {
    for (int number = 1; number <= others; ++number) {
      std::thread([this, number] { serve(number); }).detach();
    }
  }

  // Whether the team was free, and the loop is done.
  bool run(Loop& loop) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
      return false;
    }
    loop_ = &loop;
    pending_.store(others_, std::memory_order_relaxed);
    turn_.fetch_add(1, std::memory_order_release);
    turn_.notify_all();
    loop.run(0);
    const auto is_done = [this] { return pending_.load(std::memory_order_acquire) == 0; };
    if (!yields_until(is_done)) {
      for (int left = pending_.load(std::memory_order_acquire); left != 0;
           left = pending_.load(std::memory_order_acquire)) {
        pending_.wait(left, std::memory_order_acquire);
      }
    }
    return true;
  }

 private:
  void serve(int number) {
    uint64_t seen = 0;
    for (;;) {
      const auto is_called = [&] { return turn_.load(std::memory_order_acquire) != seen; };
      if (!yields_until(is_called)) {
        turn_.wait(seen, std::memory_order_acquire);
      }
      seen = turn_.load(std::memory_order_acquire);
      loop_->run(number);  // which may have no part for it
      if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        pending_.notify_one();
      }
    }
  }

  const int others_;
  std::mutex mutex_;
  Loop* loop_ = nullptr;
  std::atomic<int> pending_{0};
  std::atomic<uint64_t> turn_{0};
};

// Never destroyed: streams may have work while the process ends.
Team& team() {
  static auto* const threads =
      new Team(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())) - 1);
  return *threads;
}

}  // namespace

int part_on_stream() noexcept {
  return part;
}

void parallel_on_stream(int64_t begin, int64_t end, int64_t grain_size,
                        c10::function_ref<void(int64_t, int64_t)> work) {
  const int64_t size = end - begin;
  if (size <= 0) {
    return;
  }
  const int64_t most = grain_size > 0 ? (size + grain_size - 1) / grain_size : size;
  const int64_t parts = std::min<int64_t>(detail::stream_threads, most);
  // A loop within a loop, and one beside another stream's, is done by its own thread.
  if (parts > 1 && !is_in_loop) {
    Loop loop(begin, end, parts, work);
    if (team().run(loop)) {
      return loop.rethrow();
    }
  }
  work(begin, end);
}

}  // namespace opsmith
