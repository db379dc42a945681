// See graph.h.
#include "graph.h"

#include <atomic>
#include <string>

#include "device.h"
#include "errors.h"
#include "stream.h"

struct opsmith_graph_s {
  const int device;
  const CUgraph graph;
  const CUgraphExec executable;
  const CUdeviceptr faults;  // of the stream that it was captured from; 0: none
};

namespace cuda {
namespace {

// So that nothing is asked of streams where nothing is captured.
std::atomic<int> captures = 0;

}  // namespace

bool is_captured(opsmith_stream stream) {
  if (captures.load(std::memory_order_relaxed) == 0) {
    return false;
  }
  use_device(stream->device);
  int state = kCaptureNone;
  check(api().StreamIsCapturing(stream->stream, &state), "ask whether a stream is captured");
  return state != kCaptureNone;
}

void refuse_captured(opsmith_stream stream, const char* action) {
  if (is_captured(stream)) {
    throw Failure(OPSMITH_INVALID_ARGUMENT,
                  std::string("cannot ") + action + ": the stream is captured, and its work does not run");
  }
}

opsmith_status capture_begin(opsmith_stream stream) {
  return entry([&] {
    use_device(given(stream, "stream")->device);
    check(api().StreamBeginCapture(stream->stream, kCaptureRelaxed), "capture a stream");
    ++captures;
  });
}

opsmith_status capture_end(opsmith_stream stream, opsmith_graph* graph) {
  return entry([&] {
    use_device(given(stream, "stream")->device);
    CUgraph made = nullptr;
    const CUresult ended = api().StreamEndCapture(stream->stream, &made);
    --captures;
    check(ended, "end the capture of a stream");
    CUgraphExec executable = nullptr;
    const CUresult instantiated = api().GraphInstantiateWithFlags(&executable, made, 0);
    if (instantiated != kSuccess) {
      api().GraphDestroy(made);
    }
    check(instantiated, "make a graph");
    *graph = new opsmith_graph_s{stream->device, made, executable, stream->own_faults()};
  });
}

opsmith_status stream_is_captured(opsmith_stream stream, int* captured) {
  return entry([&] { *captured = is_captured(given(stream, "stream")) ? 1 : 0; });
}

opsmith_status graph_launch(opsmith_graph graph, opsmith_stream stream) {
  return entry([&] {
    use_device(given(graph, "graph")->device);
    check(api().GraphLaunch(graph->executable, given(stream, "stream")->stream), "launch a graph");
    if (graph->faults != 0) {
      stream->expect_fault_at(graph->faults);
    }
  });
}

opsmith_status graph_destroy(opsmith_graph graph) {
  return entry([&] {
    use_device(given(graph, "graph")->device);
    check(api().GraphExecDestroy(graph->executable), "destroy a graph");
    check(api().GraphDestroy(graph->graph), "destroy a graph");
    delete graph;
  });
}

opsmith_status graph_dump(opsmith_graph graph, const char* path) {
  return entry([&] {
    constexpr unsigned kVerbose = 1;
    use_device(given(graph, "graph")->device);
    check(api().GraphDebugDotPrint(graph->graph, path, kVerbose), "write a graph to a file");
  });
}

}  // namespace cuda
