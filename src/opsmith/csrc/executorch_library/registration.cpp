#include "executorch_library/registration.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>

namespace opsmith::executorch_library {
namespace {

using ::executorch::runtime::Kernel;
using ::executorch::runtime::KernelKey;

// kMaxRegisteredKernels of runtime/kernel/operator_registry.cpp, as the wheel is built.
constexpr size_t kRegistryRoom = 2000;

// The library that has joined, and why it could not. One of each, since a shared library has its own.
const Library* joined = nullptr;
char failure[1024] = "the library was not loaded by the process that asks";

__attribute__((format(printf, 1, 2))) bool refuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(failure, sizeof(failure), format, arguments);
  va_end(arguments);
  return false;
}

// The runtime's kernel for calls with `key`, or, with nullptr, for those that no key takes.
const Kernel* registered(const char* operator_name, const char* key) {
  const KernelKey wanted = key == nullptr ? KernelKey() : KernelKey(key);
  for (const Kernel& kernel : ::executorch::runtime::get_registered_kernels()) {
    if (std::strcmp(kernel.name_, operator_name) == 0 && kernel.kernel_key_ == wanted) {
      return &kernel;
    }
  }
  return nullptr;
}

// The file that a kernel's function is in.
const char* file_of(const Kernel& kernel) {
  Dl_info found;
  return dladdr(reinterpret_cast<void*>(kernel.op_), &found) != 0 && found.dli_fname != nullptr
             ? found.dli_fname
             : "another library";
}

bool is_free(const char* operator_name, const char* key) {
  const Kernel* other = registered(operator_name, key);
  if (other == nullptr) {
    return true;
  }
  return refuse("%s has a kernel for %s%s already, that of %s", operator_name,
                key == nullptr ? "every call that no key takes" : "the key ", key == nullptr ? "" : key,
                file_of(*other));
}

bool has_room(size_t count) {
  const size_t taken = ::executorch::runtime::get_registered_kernels().size();
  return taken + count <= kRegistryRoom ||
         refuse("the runtime's registry holds %zu of at most %zu kernels, and this library has %zu more",
                taken, kRegistryRoom, count);
}

// The version of the wheel that the running runtime is of, written to `version`; false where it is in none.
// The wheel has it in executorch/version.py, above the folder that the runtime's file is in: lib, or
// extension/pybindings.
bool read_wheel_version(char* version, size_t size) {
  Dl_info runtime;
  if (dladdr(reinterpret_cast<void*>(&::executorch::runtime::get_registered_kernels), &runtime) == 0 ||
      runtime.dli_fname == nullptr) {
    return false;
  }
  char path[4096];
  if (std::snprintf(path, sizeof(path), "%s", runtime.dli_fname) >=
      static_cast<int>(sizeof(path) - sizeof("/version.py"))) {
    return false;
  }
  FILE* file = nullptr;
  for (int folder = 0; folder < 3 && file == nullptr; ++folder) {
    char* slash = std::strrchr(path, '/');
    if (slash == nullptr) {
      return false;
    }
    *slash = '\0';
    const char* name = std::strrchr(path, '/');
    if (name != nullptr && std::strcmp(name, "/executorch") == 0) {
      std::strcpy(slash, "/version.py");
      file = std::fopen(path, "r");
    }
    *slash = '\0';
  }
  if (file == nullptr) {
    return false;
  }
  char line[256];
  bool found = false;
  while (!found && std::fgets(line, sizeof(line), file) != nullptr) {
    const char* begin = std::strstr(line, "__version__ = \"");
    const char* end = begin == nullptr ? nullptr : std::strchr(begin + 15, '"');
    if (end != nullptr) {
      std::snprintf(version, size, "%.*s", static_cast<int>(end - begin - 15), begin + 15);
      found = true;
    }
  }
  std::fclose(file);
  return found;
}

// Without what stands behind a plus: 1.4.1+cpu is built of the sources of 1.4.1.
bool is_same_version(const char* first, const char* second) {
  const size_t length = std::strcspn(first, "+");
  return length == std::strcspn(second, "+") && std::strncmp(first, second, length) == 0;
}

bool fits_runtime(const char* built_for) {
  char version[64];
  // A runtime in a program of its own says no version; its symbols were found, which is all that is known.
  return !read_wheel_version(version, sizeof(version)) || is_same_version(version, built_for) ||
         refuse("the library was built for ExecuTorch %s, and this is %s", built_for, version);
}

// The instruction sets that the compiler was allowed to use everywhere. Those of vectorised code, which is
// chosen at the first call, are not among them.
bool fits_processor() {
#define OPSMITH_NEEDS(feature) \
  if (!__builtin_cpu_supports(feature)) return refuse("the library needs a processor with %s", feature)
#ifdef __AVX2__
  OPSMITH_NEEDS("avx2");
#endif
#ifdef __AVX512F__
  OPSMITH_NEEDS("avx512f");
#endif
#ifdef __AVX512VNNI__
  OPSMITH_NEEDS("avx512vnni");
#endif
#undef OPSMITH_NEEDS
  return true;
}

bool all_free(const Library& library) {
  return std::all_of(library.begin(), library.end(), [&](const Registration& each) {
    return is_free(library.kernels[each.kernel].operator_name, each.key);
  });
}

void add(const LibraryKernel& kernel, const char* key) {
  const Kernel entry(kernel.operator_name, key == nullptr ? KernelKey() : KernelKey(key), kernel.function);
  (void)::executorch::runtime::register_kernels({&entry, 1});
}

}  // namespace

bool join(const Library& library) {
  if (!fits_processor() || !fits_runtime(library.executorch) || !has_room(library.registration_count) ||
      !all_free(library)) {
    std::fprintf(stderr, "opsmith: no kernel of a library is registered: %s\n", failure);
    return false;
  }
  for (const Registration& each : library) {
    add(library.kernels[each.kernel], each.key);
  }
  joined = &library;
  failure[0] = '\0';
  return true;
}

}  // namespace opsmith::executorch_library

using namespace opsmith::executorch_library;

const char* opsmith_executorch_error() {
  return failure;
}

const char* opsmith_executorch_description() {
  return joined == nullptr ? "" : joined->description;
}

const char* opsmith_executorch_register(size_t kernel, const char* key) {
  if (joined == nullptr) {
    return failure;
  }
  failure[0] = '\0';
  if (kernel >= joined->kernel_count) {
    refuse("the library holds %zu kernels and none at place %zu", joined->kernel_count, kernel);
  } else if (has_room(1) && is_free(joined->kernels[kernel].operator_name, key)) {
    // The registry keeps the pointer for the rest of the process.
    add(joined->kernels[kernel], strdup(key));
  }
  return failure;
}

const char* opsmith_executorch_server(const char* operator_name, const char* key) {
  const Kernel* found = registered(operator_name, key);
  if (found == nullptr) {
    found = registered(operator_name, nullptr);
  }
  if (found == nullptr || joined == nullptr) {
    return found == nullptr ? nullptr : "";
  }
  const LibraryKernel* last = joined->kernels + joined->kernel_count;
  const LibraryKernel* ours = std::find_if(
      joined->kernels, last, [&](const LibraryKernel& kernel) { return kernel.function == found->op_; });
  return ours == last ? "" : ours->library;
}
