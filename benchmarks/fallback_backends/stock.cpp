// PyTorch's own way of running operators on the CPU, in the place of opsmith's for as long as it is switched
// on. So both see the same tensors and the same dispatcher in one process, and can be timed in turn. And what
// counting calls costs by itself.
#include <opsmith/fallback/fallback_counts.h>

#include <ATen/CompositeExplicitAutogradNonFunctionalFunctions.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <optional>

namespace {

namespace composite = at::compositeexplicitautogradnonfunctional;

void stock(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

// The registrations of a device with at::native::cpu_fallback as its backend fallback, for the operators that
// the benchmark calls.
class Stock {
 public:
  Stock() : aten_(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__) {
    for (const char* name : {"_foreach_add_.Scalar", "_index_put_impl_", "add.out", "amax.out", "clamp.out",
                             "cumsum.out", "mul.out", "neg.out", "sigmoid.out", "sum.IntList_out"}) {
      aten_.impl(name, torch::CppFunction::makeFromBoxedFunction<&stock>());
    }
    // PyTorch decomposes these; opsmith intercepts them.
    aten_.impl("add.Tensor", TORCH_FN(composite::add));
    aten_.impl("amax", TORCH_FN(composite::amax));
    aten_.impl("clamp_", TORCH_FN(static_cast<Clamp*>(&composite::clamp_)));
    aten_.impl("cumsum", TORCH_FN(composite::cumsum));
    aten_.impl("mul.Tensor", TORCH_FN(composite::mul));
    aten_.impl("mul_.Tensor", TORCH_FN(composite::mul_));
    aten_.impl("neg", TORCH_FN(composite::neg));
    aten_.impl("sigmoid", TORCH_FN(composite::sigmoid));
    aten_.impl("sum.dim_IntList", TORCH_FN(composite::sum));
  }

 private:
  using Clamp = at::Tensor&(at::Tensor&, const std::optional<at::Scalar>&, const std::optional<at::Scalar>&);

  torch::Library aten_;
};

std::optional<Stock> switched_on;

// Counts calls that do nothing, of two operators in turn.
void count(int64_t calls) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const c10::OperatorHandle operators[] = {dispatcher.findSchemaOrThrow("aten::add", "out"),
                                           dispatcher.findSchemaOrThrow("aten::cumsum", "out")};
  for (int64_t i = 0; i < calls; ++i) {
    const opsmith::CountedFallback counted(operators[i % 2], nullptr, 0);
  }
}

TORCH_LIBRARY_FRAGMENT(fallback_benchmark, m) {
  m.def("count(int calls) -> ()", &count);
  m.def("use_stock(bool on) -> ()", [](bool on) {
    switched_on.reset();
    if (on) {
      switched_on.emplace();
    }
  });
}

}  // namespace
