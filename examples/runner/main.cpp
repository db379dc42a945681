// Runs a program of ExecuTorch on Tensors of ones, and prints what it gives: in C++ alone.
//
// It uses what the wheels of ExecuTorch 1.4 and 1.5 both have headers for; 1.5 has Module and FileDataLoader
// too.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/core/data_loader.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>
#include <opsmith_executorch.h>

using namespace executorch::runtime;
using executorch::aten::ScalarType;
using executorch::extension::make_tensor_ptr;
using executorch::extension::TensorPtr;

namespace {

// A file, of which the runtime reads parts.
class LoadedFile final : public DataLoader {
 public:
  explicit LoadedFile(const char* path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  Result<FreeableBuffer> load(size_t offset, size_t size, const SegmentInfo&) const override {
    if (offset > bytes_.size() || size > bytes_.size() - offset) {
      return Error::InvalidArgument;
    }
    return FreeableBuffer(bytes_.data() + offset, size, nullptr);
  }

  Error load_into(size_t offset, size_t size, const SegmentInfo& segment, void* buffer) const override {
    const auto part = load(offset, size, segment);
    if (part.ok()) {
      std::memcpy(buffer, part->data(), size);
    }
    return part.error();
  }

  Result<size_t> size() const override { return bytes_.size(); }

 private:
  std::vector<char> bytes_;
};

// Memory that the runtime takes from its beginning on.
struct Pool {
  explicit Pool(size_t size) : bytes(size), allocator(size, bytes.data()) {}

  std::vector<uint8_t> bytes;
  MemoryAllocator allocator;
};

constexpr size_t kMethodBytes = 4 << 20;
constexpr size_t kTemporaryBytes = 64 << 20;

int failed(const char* what, Error error) {
  std::fprintf(stderr, "%s: error 0x%x\n", what, static_cast<unsigned>(error));
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: runner PROGRAM.pte\n");
    return 2;
  }
  // Its kernels have joined the runtime before main, or this says why not.
  if (const char* reason = opsmith_executorch_error(); *reason != '\0') {
    std::fprintf(stderr, "the kernels cannot be used: %s\n", reason);
    return 1;
  }
  runtime_init();

  LoadedFile file(argv[1]);
  Result<Program> program = Program::load(&file, Program::Verification::InternalConsistency);
  if (!program.ok()) {
    return failed((std::string(argv[1]) + " cannot be loaded").c_str(), program.error());
  }
  const Result<MethodMeta> meta = program->method_meta("forward");
  if (!meta.ok()) {
    return failed("it has no method forward", meta.error());
  }

  // The memory that the export has planned, and what the runtime and the kernels need beside it.
  std::vector<std::vector<uint8_t>> planned;
  std::vector<Span<uint8_t>> spans;
  for (size_t place = 0; place < meta->num_memory_planned_buffers(); ++place) {
    planned.emplace_back(static_cast<size_t>(meta->memory_planned_buffer_size(place).get()));
    spans.emplace_back(planned.back().data(), planned.back().size());
  }
  HierarchicalAllocator arenas({spans.data(), spans.size()});
  Pool own(kMethodBytes), temporary(kTemporaryBytes);
  MemoryManager memory(&own.allocator, &arenas, &temporary.allocator);
  Result<Method> method = program->load_method("forward", &memory);
  if (!method.ok()) {
    return failed("the method cannot be loaded", method.error());
  }

  std::vector<TensorPtr> inputs;
  for (size_t place = 0; place < meta->num_inputs(); ++place) {
    const Result<TensorInfo> input = meta->input_tensor_meta(place);
    if (!input.ok() || input->scalar_type() != ScalarType::Float) {
      std::fprintf(stderr, "input %zu is no Tensor of float32\n", place);
      return 1;
    }
    std::vector<float> values(input->nbytes() / sizeof(float), 1.0f);
    const auto sizes = input->sizes();
    inputs.push_back(make_tensor_ptr({sizes.begin(), sizes.end()}, std::move(values)));
    if (const Error error = method->set_input(*inputs.back(), place); error != Error::Ok) {
      return failed("an input is refused", error);
    }
  }
  if (const Error error = method->execute(); error != Error::Ok) {
    return failed("it failed", error);
  }
  for (size_t place = 0; place < method->outputs_size(); ++place) {
    const auto& tensor = method->get_output(place).toTensor();
    for (ssize_t item = 0; item < tensor.numel(); ++item) {
      std::printf("%.6f%c", tensor.const_data_ptr<float>()[item], item + 1 == tensor.numel() ? '\n' : ' ');
    }
  }
  return 0;
}
