// Serving an operator from a kernel that is known only at run time, such as a Python function: for any
// schema, on boxed arguments, what generated code does for a compiled kernel. The device check and guard, the
// dtypes that the kernel takes, the common dtype, the derivation from another variant's kernel, and each
// variant's contract are the same.
//
// This header is the whole of what a library beside the backend's own may call in it.
#pragma once

#include <opsmith/generated/call.h>
#include <opsmith/generated/runtime_kernel.h>
#include <opsmith/generated/unboxed_derivation.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

namespace opsmith {

// The dtype of the result when all operands share one floating dtype and one shape: the operands', Bool, or
// only the meta kernel knows.
enum class AlikeResult { kUnknown, kSame, kBool };

// The plan of one variant.
struct Variant {
  c10::OperatorName name;    // that is served
  c10::OperatorName kernel;  // whose kernel serves it
  // Whose meta kernel knows the shapes and dtypes of the results: the functional operator, or the one served,
  // whose outputs are then shaped by it. None: the kernel's word is taken.
  std::optional<c10::OperatorName> shaped_by;
  // A faster function to ask instead of that operator's kernel for the meta device, where there is one.
  std::optional<c10::KernelFunction> meta_function;
  bool like_self = false;    // nothing knows them, but they are like the first argument, as in place
  bool own_kernel = true;    // the kernel is that of `name`, and gets the arguments as they are
  bool writes_back = false;  // Rule.writes_back: what an out kernel writes is copied to `self` afterwards
  AlikeResult alike_result = AlikeResult::kUnknown;
  // Operands and outputs arrive in the common dtype, as TensorIterator's do on the CPU.
  bool promotes = false;
  Operands operands = Operands::kOneDevice;
  // By argument, "" standing for the common dtype, in which the kernel computes; others go on.
  std::vector<std::pair<std::string, std::vector<c10::ScalarType>>> dtypes;
  // Calls that the kernel does not take go on to what is registered for the device before it, or to
  // `other_dtypes`.
  bool has_next = false;
  c10::KernelFunction::BoxedKernelFunction_withDispatchKeys* other_dtypes = nullptr;
  // So do calls that it refuses, with Unsupported; without a next one to fallback().
  bool fails_over = false;
  bool resolves_operands = false;  // it is given no conjugated, negated or zero tensors
  bool on_host_views = false;      // the kernel takes CPU Tensors alone, which stand for the device's
  bool on_copies = false;          // the host computes on copies, whoever makes them, and is counted so
};

// A registration with the dispatcher, which ends with the object; what it covered then serves again.
class OPSMITH_EXPORT VariantRegistration {
 public:
  // Throws RuntimeError when the dispatcher does not know one of the operators.
  VariantRegistration(Variant variant, std::shared_ptr<const RuntimeKernel> kernel);
  ~VariantRegistration();
  VariantRegistration(const VariantRegistration&) = delete;
  VariantRegistration& operator=(const VariantRegistration&) = delete;

 private:
  c10::RegistrationHandleRAII handle_;
};

// The boxed kernel of a last resort: "fallback", "denied" or "missing".
OPSMITH_EXPORT c10::KernelFunction::BoxedKernelFunction_withDispatchKeys* last_resort(
    const std::string& name);

// The reason that denied() and missing() give for an operator; empty: their own words.
OPSMITH_EXPORT void set_reason(const std::string& operator_name, const std::string& reason);

}  // namespace opsmith
