// Graphs: work of streams that is recorded while they are captured, and run as one task. The order in which
// it was queued heeds all that it waits for, so a run does one piece of work after the other.
#pragma once

#include <opsmith_driver.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "stream.h"

namespace sim {

struct RecordedTask {
  const char* what;  // for people
  size_t stream;     // the number of its stream in the graph
  std::function<void()> run;
};

}  // namespace sim

struct opsmith_graph_s {
  const int device;
  // Shared with runs that are queued.
  const std::shared_ptr<const std::vector<sim::RecordedTask>> tasks;
};

namespace sim {

// How many pieces of work of each stream, by its number, come before.
using Before = std::map<size_t, size_t>;

// The recording of a graph on one stream and those that join it.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  // Begins on `origin`. Returns nullptr where that is captured already.
  static std::shared_ptr<Capture> begin(opsmith_stream origin);

  // Work of `stream`, which is captured.
  void add(opsmith_stream stream, const char* what, std::function<void()> run);

  // The work before an event that is recorded on `stream` now.
  Before before(opsmith_stream stream);

  // Makes work queued on `stream` from now on come after `event`. false: another capture has the stream.
  bool wait(opsmith_stream stream, const Before& event);

  // Gives all streams back. Returns nullptr where some have work that `stream` does not wait for.
  std::unique_ptr<opsmith_graph_s> end(opsmith_stream stream);

  bool has_ended() const { return is_over_.is_complete(); }
  opsmith_stream origin() const { return origin_; }

 private:
  explicit Capture(opsmith_stream origin) : origin_(origin) {}

  bool take(opsmith_stream stream);
  size_t number_of(opsmith_stream stream);  // needs the lock

  const opsmith_stream origin_;
  Record is_over_;
  std::mutex mutex_;
  std::vector<opsmith_stream> streams_;
  std::vector<Before> before_;  // of what is queued next, by stream
  std::vector<RecordedTask> tasks_;
};

// Writes `graph` in Graphviz's DOT. Throws std::runtime_error where the file cannot be written.
void dump(const opsmith_graph_s& graph, const std::string& path);

}  // namespace sim
