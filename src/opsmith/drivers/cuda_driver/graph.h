// Work of streams that is recorded once and run often: CUDA's graphs, captured from streams.
#pragma once

#include <opsmith_driver.h>

namespace cuda {

opsmith_status capture_begin(opsmith_stream stream);
opsmith_status capture_end(opsmith_stream stream, opsmith_graph* graph);
opsmith_status stream_is_captured(opsmith_stream stream, int* is_captured);
opsmith_status graph_launch(opsmith_graph graph, opsmith_stream stream);
opsmith_status graph_destroy(opsmith_graph graph);
opsmith_status graph_dump(opsmith_graph graph, const char* path);

bool is_captured(opsmith_stream stream);

// Throws Failure where `stream` is captured: CUDA itself would then give up the whole capture.
void refuse_captured(opsmith_stream stream, const char* action);

}  // namespace cuda
