// PyTorch's own CPU fallback beside opsmith's in one process: a switch that every operator without a kernel
// asks. Both then see the same tensors and the same dispatcher, and can be timed in turn.
#include <opsmith/fallback.h>

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

namespace {

bool uses_stock = false;

void either(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (uses_stock) {
    at::native::cpu_fallback(op, stack);
  } else {
    opsmith::fallback(op, keys, stack);
  }
}

bool falls_back(const c10::OperatorHandle& op) {
  for (const c10::DispatchKey key :
       {c10::DispatchKey::PrivateUse1, c10::DispatchKey::CompositeImplicitAutograd,
        c10::DispatchKey::CompositeExplicitAutograd,
        c10::DispatchKey::CompositeExplicitAutogradNonFunctional}) {
    if (op.hasKernelForDispatchKey(key)) {
      return false;
    }
  }
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

// Puts the switch in front of each operator of ATen that would fall back.
void install() {
  static torch::Library aten(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.starts_with("aten::") && falls_back(*dispatcher.findOp(name))) {
      const std::string overload = name.overload_name.empty() ? "" : "." + name.overload_name;
      aten.impl((name.name.substr(6) + overload).c_str(),
                torch::CppFunction::makeFromBoxedFunction<&either>());
    }
  }
}

TORCH_LIBRARY_FRAGMENT(fallback_benchmark, m) {
  m.def("install() -> ()", &install);
  m.def("use_stock(bool on) -> ()", [](bool on) { uses_stock = on; });
}

}  // namespace
