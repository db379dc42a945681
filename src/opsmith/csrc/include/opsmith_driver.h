/* opsmith_driver.h: the whole contract between opsmith and a device.
 *
 * A driver is a shared library that exports one function, opsmith_get_driver(), which returns a
 * table of functions that lives as long as the process.  Everything that PyTorch asks of the device
 * goes through this table; nothing else of the vendor's stack is seen by opsmith.
 *
 * Rules for every function:
 *   - it is plain C and lets no exception out; it may be called from any thread at any time;
 *   - it returns OPSMITH_OK or another opsmith_status; after a failure last_error() tells, for the
 *     calling thread, what went wrong in one line of text;
 *   - a device is an ordinal in [0, device_count); OPSMITH_HOST stands for the host's memory;
 *   - sizes are in bytes, times in milliseconds.
 *
 * Entries marked "optional" may be NULL; the runtime degrades as the comment says.
 */
#ifndef OPSMITH_DRIVER_H
#define OPSMITH_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever the table's layout or an entry's meaning changes. */
#define OPSMITH_DRIVER_ABI_VERSION 1u

/* The "device" of a host address in copy(). */
#define OPSMITH_HOST (-1)

typedef enum opsmith_status {
  OPSMITH_OK = 0,
  OPSMITH_NOT_READY = 1,        /* only from the two queries: work is still pending */
  OPSMITH_OUT_OF_MEMORY = 2,    /* recoverable: freeing memory and asking again may succeed */
  OPSMITH_INVALID_ARGUMENT = 3, /* the caller's mistake */
  OPSMITH_FAILED = 4,           /* this operation failed; the device is still usable */
  OPSMITH_DEVICE_LOST = 5       /* the device is gone; every later call on it fails alike */
} opsmith_status;

/* Opaque to opsmith. A stream belongs to one device; so does an event, once recorded. */
typedef struct opsmith_stream_s* opsmith_stream;
typedef struct opsmith_event_s* opsmith_event;
typedef struct opsmith_graph_s* opsmith_graph; /* recorded work, of one device */

typedef struct opsmith_device_properties {
  char name[128];        /* shown to people, e.g. "sim accelerator" */
  char architecture[64]; /* shown to people, e.g. "host x86-64" */
  uint64_t total_memory; /* bytes */
  uint32_t alignment;    /* every allocation starts at a multiple of it; a power of two */
  uint32_t multiprocessors;
} opsmith_device_properties;

/* The handle by which another process uses an allocation of this one. opsmith carries it there. */
typedef struct opsmith_memory_handle {
  uint8_t bytes[64]; /* the driver's own: an id, an offset, a cudaIpcMemHandle_t, ... */
  int32_t file;      /* a file descriptor that goes with them, of a memfd or a dma-buf; -1: none */
} opsmith_memory_handle;

typedef struct opsmith_driver {
  uint32_t abi_version; /* OPSMITH_DRIVER_ABI_VERSION of the header that the driver was built with */
  uint32_t struct_size; /* sizeof(opsmith_driver), likewise */
  const char* name;     /* the driver's name, e.g. "sim" */

  /* The message of this thread's last failed call; never NULL. */
  const char* (*last_error)(void);

  /* ---- devices ---- */
  opsmith_status (*device_count)(int* count);
  opsmith_status (*device_properties)(int device, opsmith_device_properties* properties);
  opsmith_status (*device_memory)(int device, uint64_t* free_bytes, uint64_t* total_bytes);

  /* ---- memory ---- */
  opsmith_status (*allocate)(int device, size_t bytes, void** pointer); /* bytes > 0 */
  /* The caller guarantees that no stream still uses the memory. */
  opsmith_status (*release)(int device, void* pointer);
  /* Enqueues on `stream` (of either device that takes part). Host memory that is not pinned may be
   * read or written before the call returns; pinned memory must stay valid until the copy is done. */
  opsmith_status (*copy)(void* destination, int destination_device, const void* source, int source_device,
                         size_t bytes, opsmith_stream stream);
  opsmith_status (*fill)(int device, void* destination, uint8_t value, size_t bytes, opsmith_stream stream);

  /* ---- streams: in-order queues ---- */
  opsmith_status (*default_stream)(int device, opsmith_stream* stream); /* never destroyed */
  /* priority: 0 is normal, lower is more urgent (PyTorch's convention); a hint. */
  opsmith_status (*stream_create)(int device, int priority, opsmith_stream* stream);
  opsmith_status (*stream_destroy)(opsmith_stream stream);
  opsmith_status (*stream_query)(opsmith_stream stream); /* OPSMITH_OK: idle; OPSMITH_NOT_READY */
  opsmith_status (*stream_synchronize)(opsmith_stream stream);
  /* Optional. Runs `function(argument)` on the host, on a thread of the driver's, when the work queued before
   * it is done; what is queued later waits for it. The function may take long and calls no entry of this
   * table. NULL: host-side kernels synchronise the stream and run on the calling thread. */
  opsmith_status (*stream_host_function)(opsmith_stream stream, void (*function)(void*), void* argument);

  /* ---- events. Optional as a whole (all seven NULL): waiting synchronises the stream instead, and
   * elapsed time raises. ---- */
  opsmith_status (*event_create)(int device, int timing, opsmith_event* event);
  opsmith_status (*event_destroy)(opsmith_event event);
  opsmith_status (*event_record)(opsmith_event event, opsmith_stream stream);
  opsmith_status (*event_query)(opsmith_event event);
  opsmith_status (*event_synchronize)(opsmith_event event);
  opsmith_status (*event_elapsed)(opsmith_event start, opsmith_event end, double* milliseconds);
  opsmith_status (*stream_wait_event)(opsmith_stream stream, opsmith_event event);

  /* ---- pinned host memory. Optional as a whole: pin_memory() raises, copies are pageable. ---- */
  opsmith_status (*pinned_allocate)(size_t bytes, void** pointer);
  opsmith_status (*pinned_release)(void* pointer);
  int (*pinned_contains)(const void* pointer); /* 1 when `pointer` lies in pinned memory */

  /* Optional. The host address at which the bytes of device address `pointer` can be read and
   * written, or NULL when `pointer` is no device address. The distance is the same within one
   * allocation. NULL entry: the fallback and host-side kernels work on copies. */
  void* (*host_window)(const void* pointer);

  /* ---- ranges of the program, for the vendor's tools. Optional as a pair: nobody sees them. ----
   * Ranges nest, for each thread by itself; `text` is copied. */
  opsmith_status (*range_push)(const char* text);
  opsmith_status (*range_pop)(void); /* only for a range that is open in the calling thread */

  /* ---- memory shared with other processes. Optional as a whole (all three NULL): tensors cannot be sent to
   * another process. The work that wrote the memory is done before it is exported, and the exporting process
   * keeps the allocation until every process has given it up, unless it ends before. ---- */
  /* `pointer` is what allocate() gave. handle->file, if any, is a new descriptor, which the caller closes. */
  opsmith_status (*memory_export)(int device, void* pointer, opsmith_memory_handle* handle);
  /* In another process: `pointer` is the address, on `device` here, of the same bytes, which the other
   * entries take like any address of the device; not release(). It counts as nobody's memory in
   * device_memory(). handle->file is the caller's, and closed after the call. An allocation may be imported
   * again while it is; each time is given up. */
  opsmith_status (*memory_import)(int device, const opsmith_memory_handle* handle, void** pointer);
  /* Gives up what memory_import() gave. The caller guarantees that no stream still uses it. */
  opsmith_status (*memory_unimport)(int device, void* pointer);

  /* ---- graphs: work that is recorded once and run often. Optional as a whole (all six NULL): capturing a
   * graph raises. ---- */
  /* From now on what is queued on `stream` is recorded and does not run: copies, fills, functions of the
   * host, kernels, graphs, events. So is what is queued on another stream of the device once that has waited
   * for an event that was recorded so. A captured stream is OPSMITH_NOT_READY; waiting for it or for such an
   * event fails, as do copies with host memory that is not pinned. A failed call records nothing. */
  opsmith_status (*capture_begin)(opsmith_stream stream);
  /* Ends what capture_begin() began on `stream`, whatever it returns: all streams work as before. With
   * OPSMITH_OK `graph` is what was recorded. Fails where other streams have recorded work that `stream` does
   * not wait for. */
  opsmith_status (*capture_end)(opsmith_stream stream, opsmith_graph* graph);
  opsmith_status (*stream_is_captured)(opsmith_stream stream, int* is_captured);
  /* Queues the recorded work on `stream`, of the same device. A graph may be queued again while it runs; runs
   * on several streams are the caller's to order. */
  opsmith_status (*graph_launch)(opsmith_graph graph, opsmith_stream stream);
  /* The caller guarantees that it does not run any more. */
  opsmith_status (*graph_destroy)(opsmith_graph graph);
  /* Writes what is recorded to the file `path`, for people: Graphviz's DOT. */
  opsmith_status (*graph_dump)(opsmith_graph graph, const char* path);
} opsmith_driver;

/* The one symbol that a driver exports. */
const opsmith_driver* opsmith_get_driver(void);
typedef const opsmith_driver* (*opsmith_get_driver_fn)(void);
#define OPSMITH_GET_DRIVER_SYMBOL "opsmith_get_driver"

/* A driver may export this one too, for `opsmith driver check`: it queues work on `stream` that fails when it
 * runs, as a kernel with a fault does. stream_synchronize() then has to return the failure. */
opsmith_status opsmith_launch_failing_work(opsmith_stream stream);

#ifdef __cplusplus
}
#endif

#endif /* OPSMITH_DRIVER_H */
