// The end of a call that cannot go on: of the process in ExecuTorch, an exception on a PyTorch device.
#pragma once

#include <executorch/runtime/platform/compiler.h>

namespace executorch::runtime {

ET_NORETURN void runtime_abort();

}  // namespace executorch::runtime

namespace torch::executor {
using ::executorch::runtime::runtime_abort;
}  // namespace torch::executor
