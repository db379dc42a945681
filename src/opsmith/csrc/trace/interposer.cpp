// See interposer.h.
#include "interposer.h"

#include "call.h"
#include "session.h"
#include "slots.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <string_view>
#include <utility>

namespace opsmith::trace {
namespace {

// The keys whose kernels are recorded: what a call on the CPU, on the device or on meta tensors can meet.
// Left out are those of the tools that trace programs themselves: PreDispatch, PythonDispatcher, Tracer.
constexpr std::array kKeys{
    c10::DispatchKey::CPU,
    c10::DispatchKey::PrivateUse1,
    c10::DispatchKey::Meta,
    c10::DispatchKey::MkldnnCPU,
    c10::DispatchKey::QuantizedCPU,
    c10::DispatchKey::QuantizedPrivateUse1,
    c10::DispatchKey::SparseCPU,
    c10::DispatchKey::SparsePrivateUse1,
    c10::DispatchKey::SparseMeta,
    c10::DispatchKey::SparseCsrCPU,
    c10::DispatchKey::SparseCsrPrivateUse1,
    c10::DispatchKey::SparseCsrMeta,
    c10::DispatchKey::NestedTensorCPU,
    c10::DispatchKey::NestedTensorPrivateUse1,
    c10::DispatchKey::NestedTensorMeta,
    c10::DispatchKey::BackendSelect,
    c10::DispatchKey::Python,
    c10::DispatchKey::FuncTorchDynamicLayerBackMode,
    c10::DispatchKey::Functionalize,
    c10::DispatchKey::Conjugate,
    c10::DispatchKey::Negative,
    c10::DispatchKey::ZeroTensor,
    c10::DispatchKey::ADInplaceOrView,
    c10::DispatchKey::AutogradOther,
    c10::DispatchKey::AutogradCPU,
    c10::DispatchKey::AutogradPrivateUse1,
    c10::DispatchKey::AutogradMeta,
    c10::DispatchKey::AutogradNestedTensor,
    c10::DispatchKey::AutocastCPU,
    c10::DispatchKey::AutocastPrivateUse1,
    c10::DispatchKey::FuncTorchBatched,
    c10::DispatchKey::BatchedNestedTensor,
    c10::DispatchKey::FuncTorchVmapMode,
    c10::DispatchKey::FuncTorchGradWrapper,
    c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
};

// One of kKeys, and the sort of its kernel.
struct Row {
  size_t key;
  Kind kind;
};

std::optional<size_t> recorded_key(std::string_view name) {
  const auto* const found = std::find_if(kKeys.begin(), kKeys.end(),
                                         [&](c10::DispatchKey key) { return name == c10::toString(key); });
  return found != kKeys.end() ? std::optional<size_t>(found - kKeys.begin()) : std::nullopt;
}

// "math kernel" and the like, as OperatorEntry::computeDispatchTableEntryWithDebug says it.
Kind kind_of(std::string_view words) {
  if (words.starts_with("math kernel")) {
    return Kind::kComposite;
  }
  if (words.starts_with("default backend kernel")) {
    return Kind::kDefault;
  }
  if (words.starts_with("backend fallback")) {
    return Kind::kFallback;
  }
  return words.starts_with("autograd kernel") ? Kind::kAutograd : Kind::kKernel;
}

// The operator's kernels to be recorded. The dump is the one place in which the dispatcher says which
// kernels fall through: those must stay, for they take part in no call.
std::vector<Row> rows_of(const c10::OperatorHandle& op) {
  std::vector<Row> rows;
  const std::string dump = op.dumpComputedTable();
  for (std::string_view left = dump; !left.empty();) {
    const std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    const size_t colon = line.find(": ");
    const size_t bracket = line.rfind(" [");
    if (colon == std::string_view::npos || bracket == std::string_view::npos ||
        line.substr(colon + 2).starts_with("fallthrough")) {
      continue;
    }
    if (const auto key = recorded_key(line.substr(0, colon))) {
      rows.push_back({*key, kind_of(line.substr(bracket + 2))});
    }
  }
  return rows;
}

}  // namespace

// An operator as the recording functions know it. Made once for each, and never freed: a thread may be about
// to ask for it long after the trace.
class Operator {
 public:
  explicit Operator(const void* identity) : identity_(identity) {}

  const void* identity() const { return identity_; }

  // `key` is the index of one of kKeys.
  void run(size_t key, c10::OperatorKernel* functor, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
           torch::jit::Stack* stack) const {
    const Place& place = places_[key];
    BoxedFunction* const kernel = place.original.load(std::memory_order_acquire);
    Log* const log = pinned_log();
    if (log == nullptr) {
      return kernel(functor, op, keys, stack);
    }
    const uint64_t number = number_.load(std::memory_order_acquire);
    if (!log->records() || number >> 32 != log->session().serial()) {
      log->unpin();
      return kernel(functor, op, keys, stack);
    }
    Call call(
        *log,
        {name_.load(std::memory_order_relaxed), static_cast<uint32_t>(number),
         arguments_.load(std::memory_order_relaxed), kKeys[key], place.kind.load(std::memory_order_relaxed)},
        stack);
    kernel(functor, op, keys, stack);
    call.returned();
  }

  // Both are called under the dispatcher's own mutex.
  void interpose(Session& session, const c10::OperatorHandle& op);
  void remove(const c10::OperatorHandle& op);

  Operator* next = nullptr;  // in its bucket

 private:
  struct Place {
    std::atomic<BoxedFunction*> original{nullptr};
    std::atomic<Kind> kind{Kind::kKernel};
    Words words;  // of the kernel itself
  };

  const void* const identity_;
  std::atomic<uint64_t> number_{0};  // the session's serial number above that of the name
  std::atomic<const char*> name_{nullptr};
  std::atomic<uint32_t> arguments_{0};
  std::array<Place, kKeys.size()> places_;
};

namespace {

// The operators that were ever interposed. Entries are added under the dispatcher's mutex, and read by all.
std::array<std::atomic<Operator*>, 4096> buckets;

std::atomic<Operator*>& bucket_of(const void* identity) {
  return buckets[(reinterpret_cast<uintptr_t>(identity) * 0x9E3779B97F4A7C15U >> 32) % buckets.size()];
}

Operator* find(const void* identity) {
  Operator* found = bucket_of(identity).load(std::memory_order_acquire);
  while (found != nullptr && found->identity() != identity) {
    found = found->next;
  }
  return found;
}

Operator& find_or_add(const void* identity) {
  Operator* found = find(identity);
  if (found == nullptr) {
    found = new Operator(identity);
    std::atomic<Operator*>& bucket = bucket_of(identity);
    found->next = bucket.load(std::memory_order_relaxed);
    bucket.store(found, std::memory_order_release);
  }
  return *found;
}

// The recorder that stands in the table for the kernel at a key.
template <size_t kKey>
void record(c10::OperatorKernel* functor, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
            torch::jit::Stack* stack) {
  find(identity(op))->run(kKey, functor, op, keys, stack);
}

constexpr std::array kRecorders = []<size_t... kIndex>(std::index_sequence<kIndex...>) {
  return std::array<BoxedFunction*, sizeof...(kIndex)>{&record<kIndex>...};
}(std::make_index_sequence<kKeys.size()>());

}  // namespace

void Operator::interpose(Session& session, const c10::OperatorHandle& op) {
  name_.store(op.schema().name().c_str(), std::memory_order_relaxed);
  arguments_.store(static_cast<uint32_t>(op.schema().arguments().size()), std::memory_order_relaxed);
  number_.store(uint64_t{session.serial()} << 32 | session.name(c10::toString(op.operator_name())),
                std::memory_order_release);
  for (const Row& row : rows_of(op)) {
    const Slot slot(op, kKeys[row.key]);
    const Words words = slot.words();
    Place& place = places_[row.key];
    place.kind.store(row.kind, std::memory_order_relaxed);
    if (words.boxed != nullptr && words.boxed != kRecorders[row.key]) {
      place.words = words;
      place.original.store(words.boxed, std::memory_order_release);
      slot.put_in_front(kRecorders[row.key]);
    }
  }
}

void Operator::remove(const c10::OperatorHandle& op) {
  for (size_t key = 0; key < kKeys.size(); ++key) {
    // The program may have registered another kernel since.
    if (const Slot slot(op, kKeys[key]); slot.words().boxed == kRecorders[key]) {
      slot.put_back(places_[key].words);
    }
  }
}

void Interposer::serve(Session* session) {
  const std::lock_guard lock(mutex_);
  session_ = session;
}

void Interposer::interpose(const c10::OperatorName& name, uint64_t generation) {
  const std::lock_guard lock(mutex_);
  if (session_ == nullptr) {
    return;
  }
  Interposed& interposed = operators_[name];
  if (interposed.generation == generation) {
    return;
  }
  interposed.generation = generation;
  const std::lock_guard no_registration(registration_mutex());
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  if (op.has_value()) {
    interposed.what = &find_or_add(identity(*op));
    interposed.what->interpose(*session_, *op);
  }
}

void Interposer::remove() {
  const std::lock_guard lock(mutex_);
  session_ = nullptr;
  const std::lock_guard no_registration(registration_mutex());
  for (const auto& [name, interposed] : operators_) {
    // Operators of a library that is gone are gone with their tables.
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op.has_value() && interposed.what != nullptr && interposed.what->identity() == identity(*op)) {
      interposed.what->remove(*op);
    }
  }
  operators_.clear();
}

}  // namespace opsmith::trace
