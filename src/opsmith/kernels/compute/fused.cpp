// Kernels whose sources are made by Inductor while a program runs: docs/kernels/fused.md.
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <opsmith/device/device.h>

#include "definitions.h"
#include "faults.h"
#include "launch.h"

namespace opsmith::compute {
namespace {

constexpr const char* kFusedPhilox =
#include "philox.cl"
    ;
constexpr const char* kFused =
#include "fused.cl"
    ;

// The first numbers of a launch; then come the sizes that a kernel asks for.
enum : size_t { kElements, kRows, kReduced, kSizes };

struct FusedKernel {
  std::string source;
  std::string name;  // for errors
  bool is_reduction;
  bool has_fault = false;
  std::shared_mutex mutex;
  std::unordered_map<int64_t, opsmith_compute_kernel> compiled;  // by device and items of a group
};

// Kernels live as long as the process: threads may still launch while it ends.
struct FusedKernels {
  std::shared_mutex mutex;
  std::vector<FusedKernel*> all;
  std::unordered_map<std::string, int64_t> numbers;

  static FusedKernels& get() {
    static auto* const kernels = new FusedKernels;
    return *kernels;
  }
};

// The number under which the kernel of `source` is run. It is compiled when it runs first on a device.
int64_t make_fused(const std::string& source, const std::string& name, bool is_reduction) {
  FusedKernels& kernels = FusedKernels::get();
  const std::unique_lock lock(kernels.mutex);
  const auto [found, is_new] = kernels.numbers.emplace(source, static_cast<int64_t>(kernels.all.size()));
  if (is_new) {
    auto* const made = new FusedKernel{source, "run the fused kernel `" + name + "`", is_reduction};
    made->has_fault = source.find("FAULT_") != std::string::npos;
    kernels.all.push_back(made);
  }
  return found->second;
}

FusedKernel& fused_kernel(int64_t number) {
  FusedKernels& kernels = FusedKernels::get();
  const std::shared_lock lock(kernels.mutex);
  TORCH_CHECK_INDEX(number >= 0 && static_cast<size_t>(number) < kernels.all.size(), "no fused kernel ",
                    number);
  return *kernels.all[static_cast<size_t>(number)];
}

// How many items share a result.
int64_t items_of_result(int64_t results, int64_t reduced) {
  const bool is_cpu = limits().is_cpu != 0;
  if (reduced < 64 || (is_cpu && results >= 4 * static_cast<int64_t>(limits().units))) {
    return 1;
  }
  return is_cpu ? 16 : 128;
}

opsmith_compute_kernel compiled(FusedKernel& fused, int64_t group_items) {
  const int64_t key = group_items * kMostDevices + current_device();
  {
    const std::shared_lock lock(fused.mutex);
    if (const auto found = fused.compiled.find(key); found != fused.compiled.end()) {
      return found->second;
    }
  }
  const opsmith_compute_kernel made =
      kernel_of(fault_definitions() + definition("GROUP_ITEMS", group_items) +
                definition_if(limits().has_double != 0, "HAS_DOUBLE") + kFusedPhilox + kFused + fused.source);
  const std::unique_lock lock(fused.mutex);
  return fused.compiled.emplace(key, made).first->second;
}

// `numbers` are the counts and the sizes that the kernel asks for.
void run_fused(int64_t number, at::TensorList tensors, at::IntArrayRef numbers) {
  FusedKernel& fused = fused_kernel(number);
  TORCH_CHECK(numbers.size() >= kSizes, "a fused kernel is run with its counts");
  const int64_t elements = numbers[kElements];
  if (elements == 0 || numbers[kRows] == 0) {
    return;
  }
  const int64_t items = fused.is_reduction ? items_of_result(elements, numbers[kReduced]) : 1;
  const opsmith_compute_kernel kernel = compiled(fused, items);
  Words words;
  for (const int64_t each : numbers) {
    words.add(each);
  }
  Arguments arguments;
  arguments.words(words);
  std::vector<at::Tensor> moved;  // what PyTorch lets lie on the CPU: single numbers
  for (const at::Tensor& tensor : tensors) {
    if (C10_UNLIKELY(tensor.is_cpu())) {
      moved.push_back(tensor.to(c10::Device(c10::kPrivateUse1, current_device())));
    }
    arguments.tensor(tensor.is_cpu() ? moved.back() : tensor);
  }
  if (fused.has_fault) {
    arguments.address(faults());
  }
  Grid grid = fused.is_reduction ? spread(elements) : plane(elements, numbers[kRows]);
  if (items > 1) {
    grid.groups[0] = static_cast<size_t>(elements);
    grid.items[0] = static_cast<size_t>(items);
  }
  launch(fused.name.c_str(), kernel, arguments, grid);
}

TORCH_LIBRARY_FRAGMENT(opsmith_compute, m) {
  m.def("make_fused(str source, str name, bool is_reduction) -> int", &make_fused);
  m.def("run_fused(int kernel, Tensor(a!)[] tensors, int[] numbers) -> ()", &run_fused);
}

}  // namespace
}  // namespace opsmith::compute
