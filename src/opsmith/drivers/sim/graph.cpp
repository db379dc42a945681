// See graph.h.
#include "graph.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace sim {

std::shared_ptr<Capture> Capture::begin(opsmith_stream origin) {
  const std::shared_ptr<Capture> capture(new Capture(origin));
  return capture->take(origin) ? capture : nullptr;
}

// The stream's thread waits until the capture is over, so the stream is not idle.
bool Capture::take(opsmith_stream stream) {
  {
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
    before_.emplace_back();
  }
  const std::shared_ptr<Capture> self = shared_from_this();
  if (stream->begin_capture(self, [self] { self->is_over_.wait(); })) {
    return true;
  }
  const std::lock_guard lock(mutex_);
  streams_.pop_back();
  before_.pop_back();
  return false;
}

size_t Capture::number_of(opsmith_stream stream) {
  return static_cast<size_t>(std::find(streams_.begin(), streams_.end(), stream) - streams_.begin());
}

void Capture::add(opsmith_stream stream, const char* what, std::function<void()> run) {
  const std::lock_guard lock(mutex_);
  const size_t number = number_of(stream);
  tasks_.push_back({what, number, std::move(run)});
  ++before_[number][number];
}

Before Capture::before(opsmith_stream stream) {
  const std::lock_guard lock(mutex_);
  return before_[number_of(stream)];
}

bool Capture::wait(opsmith_stream stream, const Before& event) {
  const std::shared_ptr<Capture> other = stream->capture();
  if (other == nullptr ? !take(stream) : other.get() != this) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  Before& before = before_[number_of(stream)];
  for (const auto& [number, count] : event) {
    before[number] = std::max(before[number], count);
  }
  return true;
}

std::unique_ptr<opsmith_graph_s> Capture::end(opsmith_stream stream) {
  std::vector<opsmith_stream> streams;
  {
    const std::lock_guard lock(mutex_);
    streams = streams_;
  }
  for (const opsmith_stream each : streams) {
    each->end_capture();
  }
  is_over_.complete();
  const std::lock_guard lock(mutex_);
  Before& joined = before_[number_of(stream)];
  for (size_t number = 0; number < before_.size(); ++number) {
    if (joined[number] < before_[number][number]) {
      return nullptr;
    }
  }
  return std::make_unique<opsmith_graph_s>(
      opsmith_graph_s{stream->device(), std::make_shared<std::vector<RecordedTask>>(std::move(tasks_))});
}

void dump(const opsmith_graph_s& graph, const std::string& path) {
  std::ofstream file(path);
  file << "digraph sim {\n";
  const std::vector<RecordedTask>& tasks = *graph.tasks;
  for (size_t index = 0; index < tasks.size(); ++index) {
    file << "  " << index << " [label=\"" << tasks[index].what << "\\nstream " << tasks[index].stream
         << "\"];\n";
    if (index > 0) {
      file << "  " << index - 1 << " -> " << index << ";\n";
    }
  }
  file << "}\n";
  if (!file.flush()) {
    throw std::runtime_error("cannot write the file `" + path + "`");
  }
}

}  // namespace sim
