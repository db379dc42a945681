// One trace from its start to its end: where it is written, how much may be, and the names of what is in it.
#pragma once

#include <c10/core/DispatchKey.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace opsmith::trace {

class Log;
class Session;

// The number of the trace that runs; 0: none does. A fork's is another than its parent's.
extern std::atomic<uint64_t> active;

// The trace that runs; null: none does.
Session* running_session();

struct Options {
  std::string folder;
  int64_t limit;      // records in all
  bool shapes;        // details of tensors
  bool only_modules;  // records only while a module is entered, and in the backward of what it did
};

class Session {
 public:
  explicit Session(Options options);

  const Options& options() const { return options_; }

  // Tells it from all others of the process; 1 or more.
  uint32_t serial() const { return serial_; }

  // The number of `name` in this process's file of names.
  uint32_t name(std::string_view name);

  // Takes room for some records from what is left of the limit; 0: none is left.
  int64_t take_room();

  // A log for the calling thread; null where no file can be written, and after close().
  Log* open_log();

  // The thread of `log` needs it no more.
  void release(Log* log);

  // From now on nothing is recorded but what is inside of something that is.
  void begin_closing() { closing_.store(true, std::memory_order_seq_cst); }
  bool closing() const { return closing_.load(std::memory_order_seq_cst); }

  // Whether other threads are inside of what they record.
  bool others_are_recording() const;

  // Notes what the clock says; two such notes tell its rate.
  void note_clock();

  // Notes the name of the out-of-tree device, which a program may give at any time.
  void note_device();

  // Closes the files of all threads; those that are inside of what they record close theirs when they leave
  // it. No trace runs any more.
  void close();

  // In the child of a fork: its records and names go to files of its own.
  void forked();

  // ---- the sequence numbers of the nodes that entered modules made, by forward thread

  void add_range(uint64_t thread, uint64_t first, uint64_t end);
  bool made_in_module(uint64_t thread, uint64_t sequence);

 private:
  void append(const std::string& line);

  const Options options_;
  const uint32_t serial_;
  std::atomic<int64_t> left_;
  std::atomic<bool> closing_{false};
  mutable std::mutex mutex_;
  std::unordered_map<std::string, uint32_t> numbers_;
  std::string lines_;  // all that was appended, for forks
  int names_ = -1;
  std::vector<Log*> logs_;
  bool closed_ = false;
  std::unordered_map<uint64_t, std::vector<std::pair<uint64_t, uint64_t>>> ranges_;
};

}  // namespace opsmith::trace
