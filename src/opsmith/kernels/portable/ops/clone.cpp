// Copies of whole tensors: clone, and _to_copy, which converts. Where out lies in memory has been decided by
// whoever made it: by memory_format in PyTorch, by the program in ExecuTorch.
#include <optional>

#include "../movement.h"

namespace opsmith::portable::native {

using executorch::aten::MemoryFormat;

Tensor& clone_out(KernelRuntimeContext& context, const Tensor& self, std::optional<MemoryFormat>,
                  Tensor& out) {
  if (!same_dtype(context, self, out)) {
    return out;
  }
  if (resize(context, out, sizes_of(self))) {
    copy_elements(context, self, out);
  }
  return out;
}

Tensor& to_copy_out(KernelRuntimeContext& context, const Tensor& self, bool, std::optional<MemoryFormat>,
                    Tensor& out) {
  if (resize(context, out, sizes_of(self))) {
    copy_elements(context, self, out);
  }
  return out;
}

}  // namespace opsmith::portable::native
