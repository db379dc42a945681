// The caller of direct_calls.py: kernels of ExecuTorch's ABI with whatever arguments they are given, in
// memory between pages that nobody may touch, and with crashes and aborts told instead of taken.
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/kernel/kernel_includes.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/extension/threadpool/threadpool_guard.h>

#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace {

using executorch::aten::ArrayRef;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using executorch::aten::TensorShapeDynamism;
using executorch::runtime::BoxedEvalueList;
using executorch::runtime::EValue;
using executorch::runtime::KernelRuntimeContext;
using executorch::runtime::OpFunction;
using executorch::runtime::Span;

constexpr size_t kPage = 4096;
constexpr size_t kRoom = 64 * kPage;  // of one Tensor
constexpr size_t kSlots = 48;
constexpr unsigned char kPaint = 0xA5;

char* arena() {
  static char* const memory = [] {
    char* const all = static_cast<char*>(mmap(nullptr, kSlots * (kRoom + 2 * kPage), PROT_NONE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (size_t i = 0; i < kSlots; ++i) {
      mprotect(all + i * (kRoom + 2 * kPage) + kPage, kRoom, PROT_READ | PROT_WRITE);
    }
    return all;
  }();
  return memory;
}

char* slot(size_t i) {
  return arena() + i * (kRoom + 2 * kPage) + kPage;
}

struct Held {
  std::vector<int32_t> sizes;
  std::vector<uint8_t> order;
  std::vector<int32_t> strides;
  std::optional<TensorImpl> impl;
  size_t bytes = 0;  // of the memory that it has
  char* data = nullptr;
  size_t slot_index = 0;
  bool writable = false;
};

struct Reader {
  const char* at;
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, at, sizeof(T));
    at += sizeof(T);
    return value;
  }
};

struct Call {
  std::deque<Held> tensors;
  std::deque<std::vector<EValue*>> wrapped;
  std::deque<std::vector<int64_t>> ints;
  std::deque<std::vector<char>> strings;
  std::deque<ArrayRef<char>> string_refs;
  std::deque<std::vector<double>> doubles;
  std::deque<ArrayRef<double>> double_refs;
  std::deque<std::vector<char>> bools;
  std::deque<ArrayRef<bool>> bool_refs;
  std::deque<BoxedEvalueList<int64_t>> int_lists;
  std::deque<std::vector<char>> tensor_memory;
  std::deque<BoxedEvalueList<Tensor>> tensor_lists;
  std::deque<BoxedEvalueList<std::optional<Tensor>>> optional_lists;
  std::deque<EValue> values;  // last: they look at the lists when they end

  EValue* read(Reader& r) {
    const char tag = r.get<char>();
    switch (tag) {
      case 'N':
        values.emplace_back();
        break;
      case 'I':
        values.emplace_back(r.get<int64_t>());
        break;
      case 'D':
        values.emplace_back(r.get<double>());
        break;
      case 'B':
        values.emplace_back(r.get<int64_t>() != 0);
        break;
      case 'S': {
        const auto n = r.get<int64_t>();
        strings.emplace_back(r.at, r.at + n);
        r.at += n;
        string_refs.emplace_back(strings.back().data(), strings.back().size());
        values.emplace_back(&string_refs.back());
        break;
      }
      case 'T':
        return tensor(r);
      case 'i': {
        const auto n = r.get<int64_t>();
        std::vector<EValue*> items;
        for (int64_t k = 0; k < n; ++k) {
          values.emplace_back(r.get<int64_t>());
          items.push_back(&values.back());
        }
        items.reserve(1);
        wrapped.push_back(items);
        wrapped.back().reserve(1);
        ints.emplace_back(n + 1);
        int_lists.emplace_back(wrapped.back().data(), ints.back().data(), static_cast<int>(n));
        values.emplace_back(&int_lists.back());
        break;
      }
      case 'd': {
        const auto n = r.get<int64_t>();
        doubles.emplace_back();
        for (int64_t k = 0; k < n; ++k) doubles.back().push_back(r.get<double>());
        double_refs.emplace_back(doubles.back().data(), doubles.back().size());
        values.emplace_back(&double_refs.back());
        break;
      }
      case 'b': {
        const auto n = r.get<int64_t>();
        bools.emplace_back();
        for (int64_t k = 0; k < n; ++k) bools.back().push_back(r.get<int64_t>() != 0);
        bool_refs.emplace_back(reinterpret_cast<bool*>(bools.back().data()), bools.back().size());
        values.emplace_back(&bool_refs.back());
        break;
      }
      case 't':
      case 'o': {
        const auto n = r.get<int64_t>();
        std::vector<EValue*> items;
        for (int64_t k = 0; k < n; ++k) items.push_back(read(r));
        items.reserve(1);
        wrapped.push_back(items);
        wrapped.back().reserve(1);
        tensor_memory.emplace_back((n + 1) * sizeof(std::optional<Tensor>) + 64);
        if (tag == 't') {
          tensor_lists.emplace_back(wrapped.back().data(),
                                    reinterpret_cast<Tensor*>(tensor_memory.back().data()),
                                    static_cast<int>(n));
          values.emplace_back(&tensor_lists.back());
        } else {
          optional_lists.emplace_back(wrapped.back().data(),
                                      reinterpret_cast<std::optional<Tensor>*>(tensor_memory.back().data()),
                                      static_cast<int>(n));
          values.emplace_back(&optional_lists.back());
        }
        break;
      }
      default:
        return nullptr;
    }
    return &values.back();
  }

  EValue* tensor(Reader& r) {
    tensors.emplace_back();
    Held& held = tensors.back();
    held.slot_index = tensors.size() - 1;
    const auto dtype = static_cast<ScalarType>(r.get<int32_t>());
    const auto dynamism = static_cast<TensorShapeDynamism>(r.get<int32_t>());
    held.writable = r.get<int32_t>() != 0;
    const auto rank = r.get<int32_t>();
    for (int32_t d = 0; d < rank; ++d) held.sizes.push_back(r.get<int32_t>());
    for (int32_t d = 0; d < rank; ++d) held.order.push_back(static_cast<uint8_t>(r.get<int32_t>()));
    held.strides.resize(static_cast<size_t>(rank));
    int32_t stride = 1;
    for (int32_t k = rank - 1; k >= 0; --k) {
      held.strides[held.order[k]] = stride;
      stride *= held.sizes[held.order[k]] > 0 ? held.sizes[held.order[k]] : 1;
    }
    held.sizes.reserve(1);
    held.order.reserve(1);
    held.strides.reserve(1);
    held.bytes = static_cast<size_t>(r.get<int64_t>());  // of content, which is the room too
    if (held.bytes > kRoom || held.slot_index >= kSlots) return nullptr;
    char* const room = slot(held.slot_index);
    mprotect(room, kRoom, PROT_READ | PROT_WRITE);
    held.data = room + kRoom - held.bytes;
    const size_t paint = std::min<size_t>(kRoom - held.bytes, 256);
    std::memset(held.data - paint, kPaint, paint);
    std::memcpy(held.data, r.at, held.bytes);
    r.at += held.bytes;
    held.impl.emplace(dtype, rank, held.sizes.data(), held.data, held.order.data(), held.strides.data(),
                      dynamism);
    values.emplace_back(Tensor(&*held.impl));
    return &values.back();
  }
};

sigjmp_buf back;
volatile sig_atomic_t armed = 0;
void caught(int number) {
  if (armed) {
    armed = 0;
    siglongjmp(back, number);
  }
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

extern "C" {

void* probe_function(const char* name, int dtype, int rank) {
  uint8_t order[16];
  for (int i = 0; i < rank; ++i) order[i] = static_cast<uint8_t>(i);
  const executorch::runtime::TensorMeta meta(static_cast<ScalarType>(dtype),
                                             {order, static_cast<size_t>(rank)});
  const auto found = executorch::runtime::get_op_function_from_registry(name, {&meta, rank < 0 ? 0u : 1u});
  return found.ok() ? reinterpret_cast<void*>(*found) : nullptr;
}

void probe_arm() {
  executorch::extension::threadpool::NoThreadPoolGuard::set_enabled(true);
  static char stack[1 << 16];
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof(stack);
  sigaltstack(&alternate, nullptr);
  struct sigaction action{};
  action.sa_handler = caught;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL, SIGALRM})
    sigaction(number, &action, nullptr);
}

// Calls the function with the values that `text` spells. Returns the error (0: none), 1000 + the signal that
// it raised, 2000 where it wrote before a Tensor, or -1 where the text is wrong. Writes what every Tensor
// then is to `answer`: how many there are, and of each rank, sizes, bytes, content.
int probe_call(void* function, const char* text, int count, int with_allocator, char* answer) {
  Call call;
  Reader reader{text};
  std::vector<EValue*> stack;
  for (int i = 0; i < count; ++i) {
    stack.push_back(call.read(reader));
    if (stack.back() == nullptr) return -1;
  }
  stack.push_back(stack.back());
  for (Held& held : call.tensors) {
    if (!held.writable) mprotect(slot(held.slot_index), kRoom, PROT_READ);
  }
  static char memory[1 << 22];
  executorch::runtime::MemoryAllocator allocator(sizeof(memory), reinterpret_cast<uint8_t*>(memory));
  KernelRuntimeContext context(nullptr, with_allocator ? &allocator : nullptr);
  int status = 0;
  const int number = sigsetjmp(back, 1);
  if (number == 0) {
    armed = 1;
    alarm(20);
    reinterpret_cast<OpFunction>(function)(context, {stack.data(), stack.size()});
    armed = 0;
    status = static_cast<int>(context.failure_state());
  } else {
    status = 1000 + number;
  }
  alarm(0);
  char* to = answer;
  const auto put = [&](const void* from, size_t n) {
    std::memcpy(to, from, n);
    to += n;
  };
  const int32_t tensors = static_cast<int32_t>(call.tensors.size());
  put(&tensors, sizeof(tensors));
  for (Held& held : call.tensors) {
    const size_t paint = std::min<size_t>(kRoom - held.bytes, 256);
    for (size_t i = 0; i < paint; ++i) {
      if (static_cast<unsigned char>(held.data[-1 - static_cast<ptrdiff_t>(i)]) != kPaint && status < 1000)
        status = 2000;
    }
    const int32_t rank = static_cast<int32_t>(held.sizes.size());
    put(&rank, 4);
    put(held.sizes.data(), 4 * held.sizes.size());
    const int64_t bytes = static_cast<int64_t>(held.bytes);
    put(&bytes, 8);
    put(held.data, held.bytes);
    mprotect(slot(held.slot_index), kRoom, PROT_READ | PROT_WRITE);
  }
  return status;
}
}
