// The C side of tools/find_stubs.py: what it asks of the probes, and a kernel that runs an operator's own CPU
// kernel on tensors of the device, which is how PyTorch's device-independent kernels are tried.
#include "probe.h"

#include <c10/util/Type.h>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace probe {
namespace {

std::mutex mutex;
std::set<std::string> called;

std::map<std::string, std::string>& declared() {
  static std::map<std::string, std::string> signatures;
  return signatures;
}

void run_cpu_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  note(c10::toString(op.operator_name()).insert(0, "operator ").c_str());
  op.getComputedKernelForDispatchKey(c10::DispatchKey::CPU).callBoxed(op, keys, stack);
}

std::string answer;
std::unique_ptr<torch::Library> registered;

}  // namespace

bool casts = true;

void note(const char* name) {
  const std::lock_guard<std::mutex> lock(mutex);
  called.emplace(name);
}

bool declare(const char* name, const char* type) {
  return declared().emplace(name, c10::demangle(type)).second;
}

}  // namespace probe

extern "C" {

// `name\tsignature` of every declared stub, a line each.
__attribute__((visibility("default"))) const char* probe_declared() {
  probe::answer.clear();
  for (const auto& [name, signature] : probe::declared()) {
    probe::answer += name + "\t" + signature + "\n";
  }
  return probe::answer.c_str();
}

// The names of the stubs, and `operator <name>` of the tried operators, that were called since the last time.
__attribute__((visibility("default"))) const char* probe_called() {
  const std::lock_guard<std::mutex> lock(probe::mutex);
  probe::answer.clear();
  for (const std::string& name : probe::called) {
    probe::answer += name + "\n";
  }
  probe::called.clear();
  return probe::answer.c_str();
}

// From now on the CPU's kernel of the operator `name`, and of no other, runs on the device's tensors as they
// are; a stub's iterator `casts` its operands or leaves them.
__attribute__((visibility("default"))) void probe_try(const char* name, bool casts) {
  probe::casts = casts;
  probe::registered.reset();
  probe::registered = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                       c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  probe::registered->impl(name, torch::CppFunction::makeFromBoxedFunction<&probe::run_cpu_kernel>());
}
}
