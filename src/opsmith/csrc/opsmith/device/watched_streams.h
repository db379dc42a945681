// OPSMITH_ALLOC_CONF=debug:True: which stream's work uses which memory, and what it is ordered before. Memory
// that is freed while the program has not made sure that another stream is done with it is told of, however
// quick that stream was this time; so is a copy or a kernel that is given freed memory.
//
// Note [What comes before what]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// Each stream counts the uses that are queued on it. A stream knows, of each other stream, up to which use
// its own work comes later: it learns that from the events that it waits for. The host knows up to which use
// each stream is done: it learns that when it waits, or is told that a stream is idle or an event done. Freed
// memory serves its own stream again, so each use has to be known to one of these two, or to be recorded
// (Tensor.record_stream). All of it is learned from the calls of the driver's table.
#pragma once

#include <opsmith_driver.h>

#include <ATen/core/TensorBase.h>
#include <c10/core/Device.h>
#include <c10/macros/Macros.h>

namespace opsmith {

namespace detail {
extern bool streams_are_watched;
void note_use(const at::TensorBase& tensor, const char* operator_name);
}  // namespace detail

// Has `table`, the driver's, tell of what passes through it. Called by load_driver() in the debug mode.
void watch_streams(opsmith_driver& table);

// Work of `operator_name` that uses `tensor` is queued on the current stream of its device.
inline void note_use(const at::TensorBase& tensor, const char* operator_name) {
  if (C10_UNLIKELY(detail::streams_are_watched)) {
    detail::note_use(tensor, operator_name);
  }
}

}  // namespace opsmith
