// How a generated kernel library for ExecuTorch joins the runtime that loads it.
//
// `register_kernels` of the runtime aborts the process where a kernel cannot be registered. A library asks
// all that first, registers everything or nothing, and keeps the reason for whoever loaded it, which
// opsmith_executorch_error() returns. Compiled without PyTorch's headers.

#pragma once

#include <cstddef>

#include <opsmith_executorch.h>

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/span.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>
#include <executorch/runtime/kernel/operator_registry.h>

namespace opsmith::executorch_library {

// A kernel that the library holds: the operator, the kernel library that it is from, and the function that
// unpacks the runtime's values for it.
struct LibraryKernel {
  const char* operator_name;
  const char* library;
  ::executorch::runtime::OpFunction function;
};

// A kernel that is registered when the library is loaded, by its place in the list of kernels, under a key;
// nullptr stands for every call that no key takes.
struct Registration {
  size_t kernel;
  const char* key;
};

struct Library {
  // The version of the ExecuTorch that it was built for.
  const char* executorch;
  const LibraryKernel* kernels;
  size_t kernel_count;
  const Registration* registrations;
  size_t registration_count;
  // The description that opsmith reads without loading the file, as JSON.
  const char* description;

  // The registrations that it makes when it is loaded.
  const Registration* begin() const { return registrations; }
  const Registration* end() const { return registrations + registration_count; }
};

// Registers what `library`, which lives as long as the process, registers when it is loaded. Returns
// whether it did; the reason why not is kept. Never aborts.
bool join(const Library& library);

}  // namespace opsmith::executorch_library
