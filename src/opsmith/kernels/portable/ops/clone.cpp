// Copies of whole tensors: clone, and _to_copy, which converts. Where out lies in memory has been decided by
// whoever made it: by memory_format in PyTorch, by the program in ExecuTorch.
#include <optional>

#include "../movement.h"

namespace opsmith::portable::native {

using executorch::aten::MemoryFormat;

Tensor& clone_out(KernelRuntimeContext& context, const Tensor& self,
                  std::optional<MemoryFormat> memory_format, Tensor& out) {
  if (same_dtype(context, self, out) && resize(context, out, sizes_of(self)) &&
      lies_as_asked(context, self, memory_format, out)) {
    copy_elements(context, self, out);
  }
  return out;
}

Tensor& to_copy_out(KernelRuntimeContext& context, const Tensor& self, bool non_blocking,
                    std::optional<MemoryFormat> memory_format, Tensor& out) {
  OPSMITH_CHECK(context, !non_blocking || !in_executorch(), InvalidArgument, out,
                "_to_copy: only blocking copies are supported");
  if (resize(context, out, sizes_of(self)) && lies_as_asked(context, self, memory_format, out)) {
    copy_elements(context, self, out);
  }
  return out;
}

}  // namespace opsmith::portable::native
