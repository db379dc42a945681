// See dnnl.h.
#include "dnnl.h"

#include <dlfcn.h>

#include <opsmith_vendor_library.h>

namespace opsmith::onednn {
namespace {

#define OPSMITH_ONEDNN_REMEDY \
  "; pip install onednn-cpu-gomp, or name a libdnnl.so.3 for OpenMP in OPSMITH_ONEDNN_LIBRARY"

void* open_library() {
  // Wheels have it in the environment's lib/, where lib/python3.x/site-packages/torch/lib is, too.
  return open_vendor_library(library_named_by("OPSMITH_ONEDNN_LIBRARY"),
                             {beside_torch("/../../../../libdnnl.so.3"), "libdnnl.so.3"});
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Api open_api() {
  Api found;
  void* const library = open_library();
  if (library == nullptr) {
    found.failure = "oneDNN is missing (libdnnl.so.3)" OPSMITH_ONEDNN_REMEDY;
    return found;
  }
  bool whole = true;
#define OPSMITH_DNNL_FIND(name, exported, parameters) whole = find(library, exported, found.name) && whole;
  OPSMITH_DNNL_FUNCTIONS(OPSMITH_DNNL_FIND)
#undef OPSMITH_DNNL_FIND
  whole = find(library, "dnnl_version", found.GetVersion) && whole;
  whole = find(library, "dnnl_memory_desc_get_size", found.DescSize) && whole;
  whole = find(library, "dnnl_memory_desc_equal", found.DescEqual) && whole;
  whole = find(library, "dnnl_primitive_desc_query_md", found.Asked) && whole;
  if (!whole || found.GetVersion()->major != 3) {
    found.failure = "the oneDNN here is not of version 3" OPSMITH_ONEDNN_REMEDY;
    return found;
  }
  // Others would compute on threads of their own, however many the caller has.
  const unsigned runtime = found.GetVersion()->cpu_runtime;
  if (runtime == kOpenMpRuntime) {
    find(library, "omp_set_num_threads", found.SetThreads);
    find(library, "omp_get_max_threads", found.GetThreads);
  }
  if (runtime != kSequentialRuntime && (found.SetThreads == nullptr || found.GetThreads == nullptr)) {
    found.failure = "the oneDNN here was built for threads of SYCL or TBB" OPSMITH_ONEDNN_REMEDY;
    return found;
  }
  if (found.EngineCreate(&found.engine, kCpu, 0) != kSuccess) {
    found.failure = "oneDNN does not compute on this processor" OPSMITH_ONEDNN_REMEDY;
  }
  return found;
}

}  // namespace

const Api& api() {
  static const Api found = open_api();
  return found;
}

}  // namespace opsmith::onednn
