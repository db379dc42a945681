#include <bridge/lean_call.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <vector>

#include <opsmith/torch_version.h>

// See Note [Two callers] in kernels/common/checks.h, which has the weak definitions.
namespace opsmith::caller {

__attribute__((visibility("hidden"))) extern bool has_checked, limits_saturate;
bool has_checked = true;
bool limits_saturate = OPSMITH_LIMITS_SATURATE;

}  // namespace opsmith::caller

namespace opsmith::detail {

using ::executorch::runtime::Error;

lean::Scalar lean_scalar(const LeanCall& call, const at::Scalar& scalar) {
  if (scalar.isBoolean()) {
    return scalar.toBool();
  }
  if (scalar.isIntegral(/*includeBool=*/false)) {
    return scalar.toLong();
  }
  TORCH_CHECK_NOT_IMPLEMENTED(scalar.isFloatingPoint(), call.operator_name, ": its kernel ", call.kernel,
                              " takes no complex number");
  return scalar.toDouble();
}

void throw_failed(const LeanCall& call, Error error) {
  const char* reason = lean_failure_text();
  const std::string text =
      c10::str(call.operator_name, ": its kernel ", call.kernel,
               " refuses the call: ", *reason != '\0' ? reason : ::executorch::runtime::to_string(error));
  const bool unsupported = error == Error::NotSupported || error == Error::NotImplemented;
  TORCH_CHECK_NOT_IMPLEMENTED(!unsupported, text);
  TORCH_CHECK_INDEX(error != Error::NotFound, text);
  TORCH_CHECK(false, text);
}

namespace {

// Memory that a kernel asks for while it runs; freed when it has returned.
class TemporaryMemory final : public ::executorch::runtime::MemoryAllocator {
 public:
  TemporaryMemory() : MemoryAllocator(0, nullptr) {}
  ~TemporaryMemory() override {
    for (void* block : blocks_) {
      std::free(block);
    }
  }
  void* allocate(size_t size, size_t alignment) override {
    alignment = std::max(alignment, sizeof(void*));
    // aligned_alloc wants a multiple of the alignment.
    void* block = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (block != nullptr) {
      blocks_.push_back(block);
    }
    return block;
  }

 private:
  std::vector<void*> blocks_;
};

}  // namespace

Error run_lean(c10::function_ref<void(KernelRuntimeContext&)> kernel) {
  TemporaryMemory memory;
  KernelRuntimeContext context(nullptr, &memory);
  clear_lean_failure();
  try {
    kernel(context);
  } catch (const LeanAborted&) {
    context.fail(Error::Internal);
  } catch (const c10::Error&) {
    throw;  // says by its type what it is
  } catch (const std::exception& error) {
    add_lean_failure(error.what());
    context.fail(Error::Internal);
  }
  return context.failure_state();
}

}  // namespace opsmith::detail
