// See interposer.h.
#include "interposer.h"

#include "call.h"
#include "session.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

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

constexpr std::string_view kDebug = "opsmith trace";

struct Row {
  c10::DispatchKey key;
  Kind kind;
};

std::optional<c10::DispatchKey> recorded_key(std::string_view name) {
  const auto* const found = std::find_if(kKeys.begin(), kKeys.end(),
                                         [&](c10::DispatchKey key) { return name == c10::toString(key); });
  return found != kKeys.end() ? std::optional(*found) : std::nullopt;
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

void Interposer::interpose(Session& session, const c10::OperatorName& name, uint64_t generation) {
  const std::lock_guard lock(mutex_);
  Interposed& interposed = operators_[name];
  if (interposed.generation == generation) {
    return;
  }
  interposed.registrations.clear();
  interposed.generation = generation;
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  if (!op.has_value()) {
    return;
  }
  const uint32_t number = session.name(c10::toString(name));
  // All kernels are read before one is registered: a kernel for a backend hides the composite one from the
  // backend's autograd key.
  std::vector<std::pair<c10::DispatchKey, c10::KernelFunction>> kernels;
  for (const Row& row : rows_of(*op)) {
    kernels.emplace_back(row.key,
                         c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<RecordingKernel>(
                             op->getComputedKernelForDispatchKey(row.key), *op, number, row.key, row.kind)));
  }
  // The dispatcher warns of kernels that are registered over others.
  struct Silent final : c10::WarningHandler {
    void process(const c10::Warning& /*warning*/) override {}
  } handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  for (auto& [key, kernel] : kernels) {
    kernels_.push_back(kernel);
    interposed.registrations.push_back(c10::Dispatcher::singleton().registerImpl(
        name, key, std::move(kernel), std::nullopt, nullptr, std::string(kDebug)));
  }
}

void Interposer::remove() {
  const std::lock_guard lock(mutex_);
  operators_.clear();
}

void Interposer::forget() {
  const std::lock_guard lock(mutex_);
  kernels_.clear();
}

}  // namespace opsmith::trace
