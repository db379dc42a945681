// Composites in one call. See interception.h.
#include <opsmith/fallback/interception.h>

#include <opsmith/fallback/boxed_tensors.h>
#include <opsmith/fallback/fallback.h>
#include <opsmith/fallback/written_argument.h>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/PythonDispatcherTLS.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <utility>

namespace opsmith {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// The keys that a thread may have where nobody has to see the parts of an operator.
constexpr DispatchKeySet kPlainThread =
    c10::default_included_set | c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset;

// The keys that a tensor may have for the CPU to look at it.
constexpr DispatchKeySet kPlainTensor =
    DispatchKeySet({DispatchKey::PrivateUse1, DispatchKey::CPU, DispatchKey::AutogradPrivateUse1,
                    DispatchKey::AutogradCPU, DispatchKey::ADInplaceOrView, DispatchKey::Conjugate,
                    DispatchKey::Negative}) |
    c10::autocast_dispatch_keyset;

bool within(DispatchKeySet keys, DispatchKeySet allowed) {
  return (keys.raw_repr() & ~allowed.raw_repr()) == 0;
}

bool is_thread_plain() {
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  return within(local.included_, kPlainThread) && local.excluded_.has(DispatchKey::AutocastPrivateUse1);
}

// A strided tensor of the device, or a CPU scalar, which mixes with those.
bool is_plain(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return within(impl->key_set(), kPlainTensor) && (impl->is_privateuseone() || impl->dim() == 0);
}

bool is_differentiated(const at::Tensor& tensor, bool grad_mode) {
  return (grad_mode && tensor.requires_grad()) || tensor._fw_grad(/*level=*/0).defined();
}

template <DispatchKey kComposite>
bool is_one_call(c10::ArrayRef<c10::IValue> arguments) {
  if (C10_UNLIKELY(!is_thread_plain())) {
    return false;
  }
  const bool grad_mode = c10::GradMode::is_enabled();
  return std::all_of(arguments.begin(), arguments.end(), [&](const c10::IValue& argument) {
    return all_tensors(argument, [&](const at::Tensor& tensor) {
      if constexpr (kComposite == DispatchKey::CompositeImplicitAutograd) {
        if (is_differentiated(tensor, grad_mode)) {
          return false;
        }
      }
      return is_plain(tensor);
    });
  });
}

bool has_dropout(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    if ((name == "dropout" || name == "dropout_p") && arguments[i].toDouble() != 0) {
      return true;
    }
  }
  return false;
}

// Does what PyTorch's kernels for ADInplaceOrView do, where none ran above: CompositeImplicitAutograd
// operators and those that change lists of tensors have none.
void count_change(const at::Tensor& tensor) {
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  if (((tensor.key_set() | local.included_) - local.excluded_).has(DispatchKey::ADInplaceOrView)) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

// Whether a result lies in the memory of an argument, without being that argument: PyTorch makes a view then.
bool is_view_of_any(const c10::IValue& result, c10::ArrayRef<c10::IValue> arguments) {
  return !all_tensors(result, [&](const at::Tensor& tensor) {
    bool is_argument = false;
    bool is_alias = false;
    for (const c10::IValue& argument : arguments) {
      all_tensors(argument, [&](const at::Tensor& other) {
        is_argument |= tensor.is_same(other);
        is_alias |= tensor.is_alias_of(other);
        return true;
      });
    }
    return is_argument || !is_alias;
  });
}

using Arguments = c10::SmallVector<c10::IValue, 8>;

template <DispatchKey kComposite>
void decompose(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (c10::impl::PyInterpreter* python = c10::impl::PythonDispatcherTLS::get_state()) {
    // A tracer prefers decompositions that are written in Python. It finds them, as all composites, without a
    // key.
    (*python)->python_dispatcher(op, DispatchKeySet(), stack);
  } else {
    op.callBoxedForDispatchKey(kComposite, *stack);
  }
}

template <DispatchKey kComposite>
void in_one_call(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto given = torch::jit::last(*stack, schema.arguments().size());
  const Arguments arguments(given.begin(), given.end());
  fallback(op, keys, stack);
  bool written = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_written(schema.arguments()[i])) {
      written = true;
      all_tensors(arguments[i], [](const at::Tensor& tensor) {
        count_change(tensor);
        return true;
      });
    }
  }
  if (written) {
    return;
  }
  const size_t results = schema.returns().size();
  const auto returned = torch::jit::last(*stack, results);
  if (C10_UNLIKELY(std::any_of(returned.begin(), returned.end(), [&](const c10::IValue& result) {
        return is_view_of_any(result, arguments);
      }))) {
    torch::jit::drop(*stack, results);
    stack->insert(stack->end(), arguments.begin(), arguments.end());
    decompose<kComposite>(op, stack);
  }
}

}  // namespace

template <DispatchKey kComposite>
void intercept(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  if (is_one_call<kComposite>(torch::jit::last(*stack, op.schema().arguments().size()))) {
    in_one_call<kComposite>(op, keys, stack);
  } else {
    decompose<kComposite>(op, stack);
  }
}

template <DispatchKey kComposite>
void intercept_without_dropout(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  if (has_dropout(op.schema(), torch::jit::last(*stack, op.schema().arguments().size()))) {
    decompose<kComposite>(op, stack);
  } else {
    intercept<kComposite>(op, keys, stack);
  }
}

#define OPSMITH_INSTANTIATE(key)                                                                             \
  template void intercept<DispatchKey::key>(const c10::OperatorHandle&, DispatchKeySet, torch::jit::Stack*); \
  template void intercept_without_dropout<DispatchKey::key>(const c10::OperatorHandle&, DispatchKeySet,      \
                                                            torch::jit::Stack*);
OPSMITH_INSTANTIATE(CompositeImplicitAutograd)
OPSMITH_INSTANTIATE(CompositeExplicitAutograd)
OPSMITH_INSTANTIATE(CompositeExplicitAutogradNonFunctional)
#undef OPSMITH_INSTANTIATE

}  // namespace opsmith
