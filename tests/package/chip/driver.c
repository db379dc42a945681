/* A device that is memory of the host. */
#include <opsmith_driver.h>

#include <stdlib.h>
#include <string.h>

enum { kAlignment = 64 };
static const uint64_t kMemory = 1ull << 30;
static struct opsmith_stream_s {
  int device;
} the_stream; /* work is done in the call, so it is always idle */

static const char* last_error(void) {
  return "out of memory";
}

static opsmith_status device_count(int* count) {
  *count = 1;
  return OPSMITH_OK;
}

static opsmith_status device_properties(int device, opsmith_device_properties* properties) {
  memset(properties, 0, sizeof *properties);
  strcpy(properties->name, "mychip on paper");
  strcpy(properties->architecture, "host memory");
  properties->total_memory = kMemory;
  properties->alignment = kAlignment;
  properties->multiprocessors = 1;
  return OPSMITH_OK;
}

static opsmith_status device_memory(int device, uint64_t* free_bytes, uint64_t* total_bytes) {
  *free_bytes = *total_bytes = kMemory;
  return OPSMITH_OK;
}

static opsmith_status allocate(int device, size_t bytes, void** pointer) {
  *pointer = aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return *pointer ? OPSMITH_OK : OPSMITH_OUT_OF_MEMORY;
}

static opsmith_status release(int device, void* pointer) {
  free(pointer);
  return OPSMITH_OK;
}

static opsmith_status copy(void* to, int to_device, const void* from, int from_device, size_t bytes,
                           opsmith_stream stream) {
  memmove(to, from, bytes);
  return OPSMITH_OK;
}

static opsmith_status fill(int device, void* to, uint8_t value, size_t bytes, opsmith_stream stream) {
  memset(to, value, bytes);
  return OPSMITH_OK;
}

static opsmith_status default_stream(int device, opsmith_stream* stream) {
  *stream = &the_stream;
  return OPSMITH_OK;
}

static opsmith_status stream_create(int device, int priority, opsmith_stream* stream) {
  return default_stream(device, stream);
}

static opsmith_status stream_done(opsmith_stream stream) {
  return OPSMITH_OK;
}

static void* host_window(const void* pointer) {
  return (void*)pointer;
} /* the host addresses this memory */

__attribute__((visibility("default"))) const opsmith_driver* opsmith_get_driver(void) {
  static const opsmith_driver driver = {
      .abi_version = OPSMITH_DRIVER_ABI_VERSION,
      .struct_size = sizeof(opsmith_driver),
      .name = "mychip",
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
      .stream_destroy = stream_done,
      .stream_query = stream_done,
      .stream_synchronize = stream_done,
      .host_window = host_window, /* the other entries are optional */
  };
  return &driver;
}
