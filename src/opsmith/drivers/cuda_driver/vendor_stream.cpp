// The entry of opsmith_cuda.h.
#include <opsmith_cuda.h>

#include "device.h"
#include "errors.h"
#include "stream.h"

using namespace cuda;

extern "C" __attribute__((visibility("default"))) opsmith_status opsmith_cuda_stream(opsmith_stream stream,
                                                                                     void** cuda_stream) {
  return entry([&] {
    use_device(stream->device);
    *cuda_stream = stream->stream;
  });
}
