/* The driver of chip, a discrete, asynchronous device: the host cannot address its memory, a call queues its
 * work and returns, and work fails when it runs. The device is simulated: each stream has a thread that does
 * what is queued. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "chip.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORTED __attribute__((visibility("default")))

enum { kAlignment = 64, kMostPending = 1024 };
static const uint64_t kMemory = 1ull << 30;

/* Guards all that is below; nobody holds it while work is done. `changed` tells of all changes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* ---- errors ---- */

static _Thread_local const char* message = "nothing has failed";

static opsmith_status failed(opsmith_status status, const char* text) {
  message = text;
  return status;
}

static opsmith_status no_device(void) {
  return failed(OPSMITH_INVALID_ARGUMENT, "chip has one device, with the index 0");
}

static opsmith_status no_host_memory(void) {
  return failed(OPSMITH_OUT_OF_MEMORY, "the host has no memory left");
}

static const char* last_error(void) {
  return message;
}

/* ---- streams ---- */

/* Does the work of a task; returns NULL, or why it failed. */
typedef const char* (*work)(const void* arguments);

typedef struct task {
  struct task* next;
  work run;
  max_align_t arguments[]; /* the task's own copy */
} task;

struct opsmith_stream_s {
  task *first, **end;
  uint64_t queued, done; /* tasks */
  const char* failure;   /* of the first task that failed since somebody waited */
  int closing;
};

/* The thread of a stream. */
static void* serve(void* argument) {
  opsmith_stream stream = argument;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (stream->first == NULL && !stream->closing) pthread_cond_wait(&changed, &lock);
    task* next = stream->first;
    if (next == NULL) break;
    stream->first = next->next;
    if (stream->first == NULL) stream->end = &stream->first;
    pthread_mutex_unlock(&lock);
    const char* failure = next->run(next->arguments);
    free(next);
    pthread_mutex_lock(&lock);
    if (stream->failure == NULL) stream->failure = failure;
    ++stream->done;
    pthread_cond_broadcast(&changed);
  }
  pthread_mutex_unlock(&lock);
  free(stream);
  return NULL;
}

/* Waits, with the lock held, until `tasks` of the stream are done; tells what of them failed, once. */
static opsmith_status wait_for(opsmith_stream stream, uint64_t tasks) {
  while (stream->done < tasks) pthread_cond_wait(&changed, &lock);
  const char* failure = stream->failure;
  stream->failure = NULL;
  return failure == NULL ? OPSMITH_OK : failed(OPSMITH_FAILED, failure);
}

/* Queues `run` with a copy of its arguments. `waits`: returns when it is done. */
static opsmith_status enqueue(opsmith_stream stream, work run, const void* arguments, size_t size,
                              int waits) {
  task* made = malloc(sizeof *made + size);
  if (made == NULL) return no_host_memory();
  made->next = NULL;
  made->run = run;
  memcpy(made->arguments, arguments, size);
  pthread_mutex_lock(&lock);
  while (stream->queued - stream->done >= kMostPending) pthread_cond_wait(&changed, &lock);
  *stream->end = made;
  stream->end = &made->next;
  const uint64_t tasks = ++stream->queued;
  pthread_cond_broadcast(&changed);
  const opsmith_status status = waits ? wait_for(stream, tasks) : OPSMITH_OK;
  pthread_mutex_unlock(&lock);
  return status;
}

static opsmith_status stream_create(int device, int priority, opsmith_stream* stream) {
  if (device != 0) return no_device();
  opsmith_stream made = calloc(1, sizeof *made);
  if (made == NULL) return no_host_memory();
  made->end = &made->first;
  pthread_t thread;
  if (pthread_create(&thread, NULL, serve, made) != 0) {
    free(made);
    return failed(OPSMITH_OUT_OF_MEMORY, "the host starts no more threads");
  }
  pthread_detach(thread);
  *stream = made;
  return OPSMITH_OK;
}

/* Its work is still done; then its thread frees it. */
static opsmith_status stream_destroy(opsmith_stream stream) {
  pthread_mutex_lock(&lock);
  stream->closing = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return OPSMITH_OK;
}

static opsmith_status stream_query(opsmith_stream stream) {
  pthread_mutex_lock(&lock);
  const int is_idle = stream->done == stream->queued;
  const opsmith_status status = is_idle ? wait_for(stream, stream->queued) : OPSMITH_NOT_READY;
  pthread_mutex_unlock(&lock);
  return status;
}

static opsmith_status stream_synchronize(opsmith_stream stream) {
  pthread_mutex_lock(&lock);
  const opsmith_status status = wait_for(stream, stream->queued);
  pthread_mutex_unlock(&lock);
  return status;
}

static opsmith_stream the_default_stream;

static void make_default_stream(void) {
  stream_create(0, 0, &the_default_stream);
}

static opsmith_status default_stream(int device, opsmith_stream* stream) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (device != 0) return no_device();
  pthread_once(&once, make_default_stream);
  *stream = the_default_stream;
  return the_default_stream == NULL ? no_host_memory() : OPSMITH_OK;
}

/* ---- events ---- */

/* One time that an event was recorded: the event, the queue and those that wait hold it, so many `uses`. */
typedef struct record {
  int uses;
  int done;
  opsmith_stream stream;
  const char* failure; /* what had failed on the stream by then */
  struct timespec time;
} record;

struct opsmith_event_s {
  record* last; /* NULL: it was not recorded, and has happened */
};

static void drop(record* dropped) {
  if (dropped != NULL && --dropped->uses == 0) free(dropped);
}

static const char* run_mark(const void* arguments) {
  record* mark = *(record* const*)arguments;
  pthread_mutex_lock(&lock);
  clock_gettime(CLOCK_MONOTONIC, &mark->time);
  mark->failure = mark->stream->failure;
  mark->done = 1;
  drop(mark);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static const char* run_wait(const void* arguments) {
  record* mark = *(record* const*)arguments;
  pthread_mutex_lock(&lock);
  while (!mark->done) pthread_cond_wait(&changed, &lock);
  drop(mark);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static opsmith_status event_create(int device, int timing, opsmith_event* event) {
  if (device != 0) return no_device();
  *event = calloc(1, sizeof **event);
  return *event == NULL ? no_host_memory() : OPSMITH_OK;
}

static opsmith_status event_destroy(opsmith_event event) {
  pthread_mutex_lock(&lock);
  drop(event->last);
  pthread_mutex_unlock(&lock);
  free(event);
  return OPSMITH_OK;
}

static opsmith_status event_record(opsmith_event event, opsmith_stream stream) {
  record* mark = calloc(1, sizeof *mark);
  if (mark == NULL) return no_host_memory();
  mark->uses = 2;
  mark->stream = stream;
  const opsmith_status status = enqueue(stream, run_mark, &mark, sizeof mark, 0);
  if (status != OPSMITH_OK) {
    free(mark);
    return status;
  }
  pthread_mutex_lock(&lock);
  drop(event->last);
  event->last = mark;
  pthread_mutex_unlock(&lock);
  return OPSMITH_OK;
}

static opsmith_status event_query(opsmith_event event) {
  pthread_mutex_lock(&lock);
  const int happened = event->last == NULL || event->last->done;
  pthread_mutex_unlock(&lock);
  return happened ? OPSMITH_OK : OPSMITH_NOT_READY;
}

static opsmith_status event_synchronize(opsmith_event event) {
  pthread_mutex_lock(&lock);
  record* mark = event->last;
  const char* failure = NULL;
  if (mark != NULL) {
    ++mark->uses;
    while (!mark->done) pthread_cond_wait(&changed, &lock);
    failure = mark->failure;
    drop(mark);
  }
  pthread_mutex_unlock(&lock);
  return failure == NULL ? OPSMITH_OK : failed(OPSMITH_FAILED, failure);
}

static opsmith_status event_elapsed(opsmith_event start, opsmith_event end, double* milliseconds) {
  if (start->last == NULL || end->last == NULL || event_query(start) != OPSMITH_OK ||
      event_query(end) != OPSMITH_OK) {
    return failed(OPSMITH_INVALID_ARGUMENT, "an event has no time before it has happened");
  }
  const struct timespec *from = &start->last->time, *to = &end->last->time;
  *milliseconds = (to->tv_sec - from->tv_sec) * 1e3 + (to->tv_nsec - from->tv_nsec) / 1e6;
  return OPSMITH_OK;
}

static opsmith_status stream_wait_event(opsmith_stream stream, opsmith_event event) {
  pthread_mutex_lock(&lock);
  record* mark = event->last;
  if (mark != NULL) ++mark->uses;
  pthread_mutex_unlock(&lock);
  if (mark == NULL) return OPSMITH_OK;
  const opsmith_status status = enqueue(stream, run_wait, &mark, sizeof mark, 0);
  if (status != OPSMITH_OK) {
    pthread_mutex_lock(&lock);
    drop(mark);
    pthread_mutex_unlock(&lock);
  }
  return status;
}

/* ---- devices ---- */

static uint64_t used;

static opsmith_status device_count(int* count) {
  *count = 1;
  return OPSMITH_OK;
}

static opsmith_status device_properties(int device, opsmith_device_properties* properties) {
  if (device != 0) return no_device();
  *properties = (opsmith_device_properties){.name = "chip, simulated",
                                            .architecture = "threads of the host",
                                            .total_memory = kMemory,
                                            .alignment = kAlignment,
                                            .multiprocessors = 1};
  return OPSMITH_OK;
}

static opsmith_status device_memory(int device, uint64_t* free_bytes, uint64_t* total_bytes) {
  if (device != 0) return no_device();
  pthread_mutex_lock(&lock);
  *free_bytes = kMemory - used;
  pthread_mutex_unlock(&lock);
  *total_bytes = kMemory;
  return OPSMITH_OK;
}

/* ---- memory ---- */

/* Set in each address of the device, and in none of the host's: a host that reads there gets a SIGSEGV. */
static const uintptr_t kOnDevice = (uintptr_t)1 << 55;

static int is_on_device(const void* address) {
  return ((uintptr_t)address & kOnDevice) != 0;
}

/* The bytes of an address of the host or of the device. */
static void* bytes_at(const void* address) {
  return (void*)((uintptr_t)address & ~kOnDevice);
}

static opsmith_status allocate(int device, size_t bytes, void** pointer) {
  if (device != 0) return no_device();
  const uint64_t size = bytes > kMemory ? UINT64_MAX : (bytes + kAlignment - 1) / kAlignment * kAlignment;
  pthread_mutex_lock(&lock);
  uint64_t* block = size <= kMemory - used ? aligned_alloc(kAlignment, kAlignment + size) : NULL;
  used += block == NULL ? 0 : size;
  pthread_mutex_unlock(&lock);
  if (block == NULL) return failed(OPSMITH_OUT_OF_MEMORY, "chip has no memory left");
  *block = size; /* for release; the bytes that are handed out come after it */
  *pointer = (void*)(((uintptr_t)block + kAlignment) | kOnDevice);
  return OPSMITH_OK;
}

static opsmith_status release(int device, void* pointer) {
  if (device != 0) return no_device();
  uint64_t* block = bytes_at((char*)pointer - kAlignment);
  pthread_mutex_lock(&lock);
  used -= *block;
  pthread_mutex_unlock(&lock);
  free(block);
  return OPSMITH_OK;
}

/* Pinned memory: what copies reach while the host goes on. */
typedef struct pinned {
  struct pinned* next;
  size_t bytes;
} pinned;

static pinned* all_pinned;

static void* pinned_bytes(pinned* block) {
  return (char*)block + kAlignment;
}

static opsmith_status pinned_allocate(size_t bytes, void** pointer) {
  const size_t most = SIZE_MAX / 2;
  pinned* block =
      bytes > most ? NULL : aligned_alloc(kAlignment, (bytes + 2 * kAlignment - 1) / kAlignment * kAlignment);
  if (block == NULL) return no_host_memory();
  block->bytes = bytes;
  pthread_mutex_lock(&lock);
  block->next = all_pinned;
  all_pinned = block;
  pthread_mutex_unlock(&lock);
  *pointer = pinned_bytes(block);
  return OPSMITH_OK;
}

static opsmith_status pinned_release(void* pointer) {
  pthread_mutex_lock(&lock);
  pinned** link = &all_pinned;
  while (*link != NULL && pinned_bytes(*link) != pointer) link = &(*link)->next;
  pinned* block = *link;
  if (block != NULL) *link = block->next;
  pthread_mutex_unlock(&lock);
  if (block == NULL) return failed(OPSMITH_INVALID_ARGUMENT, "this is no pinned memory");
  free(block);
  return OPSMITH_OK;
}

static int pinned_contains(const void* pointer) {
  pthread_mutex_lock(&lock);
  pinned* block = all_pinned;
  while (block != NULL && (uintptr_t)pointer - (uintptr_t)pinned_bytes(block) >= block->bytes)
    block = block->next;
  pthread_mutex_unlock(&lock);
  return block != NULL;
}

typedef struct copy_arguments {
  void* to;
  const void* from;
  size_t bytes;
} copy_arguments;

static const char* run_copy(const void* arguments) {
  const copy_arguments* of = arguments;
  memmove(bytes_at(of->to), bytes_at(of->from), of->bytes);
  return NULL;
}

static opsmith_status copy(void* to, int to_device, const void* from, int from_device, size_t bytes,
                           opsmith_stream stream) {
  if (to_device > 0 || from_device > 0) return no_device();
  const copy_arguments arguments = {to, from, bytes};
  const int waits = (to_device == OPSMITH_HOST && !pinned_contains(to)) ||
                    (from_device == OPSMITH_HOST && !pinned_contains(from));
  return enqueue(stream, run_copy, &arguments, sizeof arguments, waits);
}

typedef struct fill_arguments {
  void* to;
  uint8_t value;
  size_t bytes;
} fill_arguments;

static const char* run_fill(const void* arguments) {
  const fill_arguments* of = arguments;
  memset(bytes_at(of->to), of->value, of->bytes);
  return NULL;
}

static opsmith_status fill(int device, void* to, uint8_t value, size_t bytes, opsmith_stream stream) {
  if (device != 0) return no_device();
  const fill_arguments arguments = {to, value, bytes};
  return enqueue(stream, run_fill, &arguments, sizeof arguments, 0);
}

/* ---- programs ---- */

/* A real device's memory unit finds it out as late. */
static const char* const kFault = "a program was launched with an address that is not in the memory of chip";

static float* element(const chip_matrix* matrix, int64_t row, int64_t column) {
  return (float*)bytes_at(matrix->data) + row * matrix->row_stride + column * matrix->column_stride;
}

static const char* run_matmul(const void* arguments) {
  const chip_matmul* of = arguments;
  if (!is_on_device(of->a.data) || !is_on_device(of->b.data) || !is_on_device(of->out.data)) return kFault;
  for (int64_t i = 0; i < of->out.rows; ++i) {
    for (int64_t j = 0; j < of->out.columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < of->a.columns; ++k) sum += *element(&of->a, i, k) * *element(&of->b, k, j);
      *element(&of->out, i, j) = sum;
    }
  }
  return NULL;
}

/* The operand of element `i`, which each thread of a GPU would find in the same way. */
static float* operand_of(const chip_operand* operand, const chip_pointwise* of, int64_t i) {
  if (operand->data == NULL) return (float*)&operand->number;
  float* at = bytes_at(operand->data);
  for (int64_t dim = 0; dim < of->dims; i /= of->shape[dim++])
    at += i % of->shape[dim] * operand->strides[dim];
  return at;
}

static const char* pointwise(const chip_pointwise* of, float (*function)(float a, float b, float alpha)) {
  const chip_operand* operands[] = {&of->out, &of->a, &of->b};
  for (int k = 0; k < 3; ++k) {
    if (operands[k]->data != NULL && !is_on_device(operands[k]->data)) return kFault;
  }
  int64_t elements = 1;
  for (int64_t dim = 0; dim < of->dims; ++dim) elements *= of->shape[dim];
  for (int64_t i = 0; i < elements; ++i) {
    *operand_of(&of->out, of, i) =
        function(*operand_of(&of->a, of, i), *operand_of(&of->b, of, i), of->alpha);
  }
  return NULL;
}

static float add(float a, float b, float alpha) {
  return a + alpha * b;
}

static float mul(float a, float b, float alpha) {
  return a * b;
}

static const char* run_add(const void* arguments) {
  return pointwise(arguments, add);
}

static const char* run_mul(const void* arguments) {
  return pointwise(arguments, mul);
}

EXPORTED opsmith_status chip_launch(opsmith_stream stream, const char* program, const void* arguments,
                                    size_t size) {
  static const struct {
    const char* name;
    work run;
    size_t size;
  } programs[] = {{"matmul", run_matmul, sizeof(chip_matmul)},
                  {"add", run_add, sizeof(chip_pointwise)},
                  {"mul", run_mul, sizeof(chip_pointwise)}};
  for (size_t i = 0; i < sizeof programs / sizeof *programs; ++i) {
    if (strcmp(program, programs[i].name) == 0 && size == programs[i].size) {
      return enqueue(stream, programs[i].run, arguments, size, 0);
    }
  }
  return failed(OPSMITH_INVALID_ARGUMENT, "chip has no program of this name and size of arguments");
}

/* ---- for `opsmith driver check` ---- */

static const char* fail_as_asked(const void* arguments) {
  (void)arguments;
  return "this work was made to fail";
}

EXPORTED opsmith_status opsmith_launch_failing_work(opsmith_stream stream) {
  return enqueue(stream, fail_as_asked, "", 0, 0);
}

/* ---- the table ---- */

EXPORTED const opsmith_driver* opsmith_get_driver(void) {
  static const opsmith_driver driver = {.abi_version = OPSMITH_DRIVER_ABI_VERSION,
                                        .struct_size = sizeof(opsmith_driver),
                                        .name = "chip",
                                        .last_error = last_error,
                                        .device_count = device_count,
                                        .device_properties = device_properties,
                                        .device_memory = device_memory,
                                        .allocate = allocate,
                                        .release = release,
                                        .copy = copy,
                                        .fill = fill,
                                        .default_stream = default_stream,
                                        .stream_create = stream_create,
                                        .stream_destroy = stream_destroy,
                                        .stream_query = stream_query,
                                        .stream_synchronize = stream_synchronize,
                                        .event_create = event_create,
                                        .event_destroy = event_destroy,
                                        .event_record = event_record,
                                        .event_query = event_query,
                                        .event_synchronize = event_synchronize,
                                        .event_elapsed = event_elapsed,
                                        .stream_wait_event = stream_wait_event,
                                        .pinned_allocate = pinned_allocate,
                                        .pinned_release = pinned_release,
                                        .pinned_contains = pinned_contains};
  return &driver;
}
