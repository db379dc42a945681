// How many threads a kernel may use that brings threads of its own.
#pragma once

namespace opsmith::caller {

// As many as parallel_for would; 0 where the runtime does not tell. The device's library has the definition
// that is not weak, in csrc/bridge/parallel.cpp.
__attribute__((weak, visibility("hidden"))) int threads() {
  return 0;
}

}  // namespace opsmith::caller
