#include <opsmith/generated/registrations.h>

#include <torch/csrc/jit/frontend/function_schema_parser.h>

namespace opsmith {

Registrations::Registrations(const char* op_namespace, c10::DispatchKey key, const char* place,
                             void (*add_all)(Registrations&))
    : op_namespace_(op_namespace), key_(key), place_(place) {
  add_all(*this);
}

void Registrations::add(const char* name, c10::KernelFunction kernel, c10::impl::CppSignature signature) {
  handles_.push_back(
      c10::Dispatcher::singleton().registerImpl(torch::jit::parseName(op_namespace_ + "::" + name), key_,
                                                std::move(kernel), signature, nullptr, place_));
}

}  // namespace opsmith
