// opsmith_triton_launch(): kernels that Triton's backend `host` has compiled for this processor. An image is
// a shared library, with one function that runs one program.
#include <opsmith_triton.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "entry.h"
#include "memory.h"

namespace sim {
namespace {

using Program = void (*)(const char* arguments, const uint32_t id[3], const uint32_t grid[3]);

// Null, with last_error() set, where the image is no such library.
void* load(const opsmith_triton_binary& binary) {
  // Under a name of its own: the dynamic linker takes two files of one name for one library.
  const char* const folder = std::getenv("TMPDIR");
  std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/opsmith-triton-XXXXXX";
  const int file = mkostemp(path.data(), O_CLOEXEC);
  const auto* const image = static_cast<const char*>(binary.image);
  size_t written = 0;
  while (file >= 0 && written < binary.size) {
    const ssize_t count = write(file, image + written, binary.size - written);
    if (count <= 0) {
      break;
    }
    written += static_cast<size_t>(count);
  }
  void* const library = written == binary.size ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  void* const program = library != nullptr ? dlsym(library, binary.name) : nullptr;
  if (program == nullptr) {
    const char* const reason = dlerror();
    fail(OPSMITH_FAILED, "cannot load the kernel `%s`: %s", binary.name,
         reason != nullptr ? reason : ("its image cannot be written to " + path).c_str());
  }
  if (file >= 0) {
    unlink(path.c_str());
    close(file);
  }
  return program;
}

opsmith_status launch(opsmith_triton_binary& binary, opsmith_stream stream, const uint32_t grid[3],
                      const char* arguments, const opsmith_triton_argument* layout, uint32_t count) {
  if (stream->device() != binary.device) {
    return fail(OPSMITH_INVALID_ARGUMENT, "the stream is not of device %d", binary.device);
  }
  if (binary.loaded == nullptr && (binary.loaded = load(binary)) == nullptr) {
    return OPSMITH_FAILED;
  }
  const uint32_t bytes = count == 0 ? 0 : layout[count - 1].offset + layout[count - 1].size;
  const auto block = std::make_shared<std::vector<char>>(arguments, arguments + bytes);
  for (uint32_t i = 0; i < count; ++i) {
    void* address = nullptr;
    if (!layout[i].is_pointer) {
      continue;
    }
    char* const at = block->data() + layout[i].offset;
    std::memcpy(&address, at, sizeof(address));
    if (address == nullptr) {
      continue;
    }
    const char* const seen = Simulator::instance()->window(address);
    if (seen == nullptr) {
      return fail(OPSMITH_INVALID_ARGUMENT, "argument %u of the kernel `%s` is no address of the device", i,
                  binary.name);
    }
    std::memcpy(at, &seen, sizeof(seen));
  }
  const auto program = reinterpret_cast<Program>(binary.loaded);
  const uint32_t x = grid[0];
  const uint32_t y = grid[1];
  const uint32_t z = grid[2];
  stream->enqueue(binary.name, [block, program, x, y, z] {
    const uint32_t size[3] = {x, y, z};
    uint32_t id[3];
    for (id[2] = 0; id[2] < z; ++id[2]) {
      for (id[1] = 0; id[1] < y; ++id[1]) {
        for (id[0] = 0; id[0] < x; ++id[0]) {
          program(block->data(), id, size);
        }
      }
    }
  });
  return OPSMITH_OK;
}

}  // namespace
}  // namespace sim

extern "C" __attribute__((visibility("default"))) opsmith_status
opsmith_triton_launch(opsmith_triton_binary* binary, opsmith_stream stream, const uint32_t grid[3],
                      const void* arguments, const opsmith_triton_argument* layout, uint32_t count) {
  return sim::on_stream(stream, [&] {
    return sim::launch(*binary, stream, grid, static_cast<const char*>(arguments), layout, count);
  });
}
