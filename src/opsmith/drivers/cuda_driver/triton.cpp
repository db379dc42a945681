// opsmith_triton_launch(): cubins that Triton's backend for NVIDIA's devices has compiled.
#include <opsmith_triton.h>

#include "device.h"
#include "errors.h"
#include "stream.h"

namespace {

using namespace cuda;

constexpr unsigned kSharedMemoryWithoutAsking = 48 << 10;
constexpr int kMaxDynamicSharedMemory = 8;  // CUfunction_attribute
// The keys of cuLaunchKernel's last parameter, a list of pairs up to a null.
void* const kParameterBuffer = reinterpret_cast<void*>(1);
void* const kParameterBufferSize = reinterpret_cast<void*>(2);

CUfunction load(const opsmith_triton_binary& binary) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  check(api().ModuleLoadData(&module, binary.image), "load a kernel of Triton's");
  check(api().ModuleGetFunction(&function, module, binary.name), "find a kernel in its module");
  if (binary.shared_memory > kSharedMemoryWithoutAsking) {
    check(api().FuncSetAttribute(function, kMaxDynamicSharedMemory, static_cast<int>(binary.shared_memory)),
          "give a kernel its shared memory");
  }
  return function;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) opsmith_status
opsmith_triton_launch(opsmith_triton_binary* binary, opsmith_stream stream, const uint32_t grid[3],
                      const void* arguments, const opsmith_triton_argument* layout, uint32_t count) {
  return entry([&] {
    use_device(stream->device);
    if (binary->loaded == nullptr) {
      binary->loaded = load(*binary);
    }
    size_t size = count == 0 ? 0 : layout[count - 1].offset + layout[count - 1].size;
    void* extra[] = {kParameterBuffer, const_cast<void*>(arguments), kParameterBufferSize, &size, nullptr};
    check(api().LaunchKernel(static_cast<CUfunction>(binary->loaded), grid[0], grid[1], grid[2],
                             binary->threads, 1, 1, binary->shared_memory, stream->stream, nullptr, extra),
          "launch a kernel of Triton's");
  });
}
