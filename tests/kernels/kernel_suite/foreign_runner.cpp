// A program for another processor that has the kernels of some libraries and what these need of ExecuTorch's
// runtime, whose libraries are for this one: foreign_calls.py builds it, and an emulator runs it. Reads the
// calls of direct_calls.cpp from standard input, and writes what came of each to standard output.
#include "direct_calls.cpp"

#include <algorithm>
#include <cstdio>

#include <executorch_library/registration.h>

#include <executorch/runtime/core/function_ref.h>

namespace {

const opsmith::executorch_library::Library* library = nullptr;

thread_local int64_t part = 0;

}  // namespace

// ---- of the runtime, what kernels and the generated registrations call beside csrc/lean

namespace opsmith::executorch_library {

bool join(const Library& generated) {
  library = &generated;
  return true;
}

}  // namespace opsmith::executorch_library

namespace executorch::extension {

// In parts, as if there were threads, one after the other.
bool parallel_for(const int64_t begin, const int64_t end, const int64_t grain_size,
                  runtime::FunctionRef<void(int64_t, int64_t)> work) {
  constexpr int64_t kParts = 3;
  const int64_t each =
      std::max<int64_t>(std::max<int64_t>(grain_size, 1), (end - begin + kParts - 1) / kParts);
  for (int64_t from = begin; from < end; from += each) {
    part = (from - begin) / each;
    work(from, std::min(end, from + each));
  }
  part = 0;
  return true;
}

int64_t get_thread_num() {
  return part;
}

}  // namespace executorch::extension

namespace executorch::extension::threadpool {

void NoThreadPoolGuard::set_enabled(bool) {}

}  // namespace executorch::extension::threadpool

namespace executorch::runtime {

template <>
ArrayRef<std::optional<Tensor>> BoxedEvalueList<std::optional<Tensor>>::get() const {
  for (size_t i = 0; i < wrapped_vals_.size(); ++i) {
    new (&unwrapped_vals_[i]) std::optional<Tensor>(wrapped_vals_[i]->toOptional<Tensor>());
  }
  return {unwrapped_vals_, wrapped_vals_.size()};
}

Result<OpFunction> get_op_function_from_registry(const char*, Span<const TensorMeta>) {
  return Error::OperatorMissing;
}

}  // namespace executorch::runtime

// ---- calls

namespace {

bool read_exactly(void* to, size_t size) {
  return std::fread(to, 1, size, stdin) == size;
}

// How long what probe_call wrote is.
size_t size_of(const char* answer) {
  Reader reader{answer};
  for (int32_t left = reader.get<int32_t>(); left > 0; --left) {
    reader.at += 4 * reader.get<int32_t>();
    const auto bytes = reader.get<int64_t>();
    reader.at += bytes;
  }
  return static_cast<size_t>(reader.at - answer);
}

}  // namespace

int main() {
  probe_arm();
  std::vector<char> text, answer(16 << 20);
  // The kernel's place in the library, how many values it gets, and how long their text is.
  int32_t head[3];
  while (read_exactly(head, sizeof head)) {
    text.resize(static_cast<size_t>(head[2]));
    if (!read_exactly(text.data(), text.size())) {
      return 1;
    }
    void* const function = reinterpret_cast<void*>(library->kernels[head[0]].function);
    const int32_t status = probe_call(function, text.data(), head[1], 1, answer.data());
    const int32_t size = status == -1 ? 0 : static_cast<int32_t>(size_of(answer.data()));
    std::fwrite(&status, sizeof status, 1, stdout);
    std::fwrite(&size, sizeof size, 1, stdout);
    std::fwrite(answer.data(), 1, static_cast<size_t>(size), stdout);
  }
  return 0;
}
