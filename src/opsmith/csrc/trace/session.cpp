// See session.h.
#include "session.h"

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace opsmith::trace {

std::atomic<uint64_t> active{0};

namespace {

// Threads take room in blocks; a small limit is shared in small ones.
constexpr int64_t kBlock = 1024;
constexpr int64_t kShares = 64;

std::string clock_line() {
  const auto pair = c10::ApproximateClockToUnixTimeConverter::measurePair();
  return c10::str("C ", pair.approx_t_, " ", pair.t_, "\n");
}

// "float32", as torch.dtype says it.
std::string dtype_name(c10::ScalarType dtype) {
  try {
    return std::string(c10::getDtypeNames(dtype).first);
  } catch (const std::exception&) {
    return c10::toString(dtype);
  }
}

std::string device_line(c10::DeviceType type) {
  return c10::str("D ", static_cast<int>(type), " ", c10::DeviceTypeName(type, /*lower_case=*/true), "\n");
}

// The names of the numbers that records hold for keys, dtypes and devices.
std::string number_lines() {
  std::string lines;
  for (uint16_t key = 0; key <= static_cast<uint16_t>(c10::DispatchKey::EndOfRuntimeBackendKeys); ++key) {
    lines += c10::str("K ", key, " ", c10::toString(static_cast<c10::DispatchKey>(key)), "\n");
  }
  for (int dtype = 0; dtype < static_cast<int>(c10::ScalarType::NumOptions); ++dtype) {
    lines += c10::str("T ", dtype, " ", dtype_name(static_cast<c10::ScalarType>(dtype)), "\n");
  }
  for (int type = 0; type < c10::COMPILE_TIME_MAX_DEVICE_TYPES; ++type) {
    lines += device_line(static_cast<c10::DeviceType>(type));
  }
  return lines;
}

void write_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) {
      return;  // the disk is full; the reader shows numbers where it has no names
    }
    done += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
}

uint32_t next_serial() {
  static std::atomic<uint32_t> last{0};
  return ++last;
}

int create(const std::string& path) {
  return ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
}

}  // namespace

Session::Session(Options options)
    : options_(std::move(options)), serial_(next_serial()), left_(options_.limit) {
  const std::string path = c10::str(options_.folder, "/", ::getpid(), ".names");
  names_ = create(path);
  TORCH_CHECK(names_ >= 0, "`", path, "` cannot be written: ", std::strerror(errno));
  append(number_lines());
  append(clock_line());
  // Where the process is killed, this is all that tells the clock's rate.
  ::usleep(5000);
  append(clock_line());
}

void Session::append(const std::string& line) {
  lines_ += line;
  write_all(names_, line);
}

uint32_t Session::name(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = numbers_.try_emplace(std::string(name), numbers_.size());
  if (is_new) {
    append(c10::str("N ", name, "\n"));
  }
  return found->second;
}

int64_t Session::take_room() {
  const int64_t wanted = std::clamp<int64_t>(options_.limit / kShares, 1, kBlock);
  int64_t left = left_.load(std::memory_order_relaxed);
  while (left > 0 && !left_.compare_exchange_weak(left, left - std::min(left, wanted))) {
  }
  return std::max<int64_t>(0, std::min(left, wanted));
}

void Session::note_clock() {
  const std::lock_guard lock(mutex_);
  append(clock_line());
}

void Session::note_device() {
  const std::lock_guard lock(mutex_);
  append(device_line(c10::DeviceType::PrivateUse1));
}

void Session::forked() {
  // The parent's other threads are gone, whatever they held.
  new (&mutex_) std::mutex();
  logs_.clear();
  ::close(names_);
  names_ = create(c10::str(options_.folder, "/", ::getpid(), ".names"));
  write_all(names_, lines_);
}

void Session::add_range(uint64_t thread, uint64_t first, uint64_t end) {
  if (first != end) {
    const std::lock_guard lock(mutex_);
    ranges_[thread].emplace_back(first, end);
  }
}

bool Session::made_in_module(uint64_t thread, uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(thread);
  if (found == ranges_.end()) {
    return false;
  }
  // The latest first: a step's backward follows its forward.
  return std::any_of(found->second.rbegin(), found->second.rend(),
                     [&](const auto& range) { return range.first <= sequence && sequence < range.second; });
}

}  // namespace opsmith::trace
