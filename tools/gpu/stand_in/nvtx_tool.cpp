// A tool as Nsight Systems is one, as far as ranges go: NVIDIA's NVTX loads the library that
// NVTX_INJECTION64_PATH names, and hands it its table of callbacks. It is also a stand-in for NVTX itself,
// with the same two functions. Ranges go to the file that OPSMITH_NVTX_RANGES names: "+text", and "-" at the
// end.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

thread_local int depth = 0;

void keep(const std::string& line) {
  const char* const path = std::getenv("OPSMITH_NVTX_RANGES");
  if (std::FILE* const file = path != nullptr ? std::fopen(path, "a") : nullptr) {
    std::fprintf(file, "%s\n", line.c_str());
    std::fclose(file);
  }
}

// NVTX's numbers and types (nvtxTypes.h).
constexpr uint32_t kCallbacks = 1;
constexpr uint32_t kCore = 1;
constexpr size_t kRangePushA = 9;
constexpr size_t kRangePop = 11;

struct Callbacks {
  size_t size;
  int (*functions_of)(uint32_t module, void**** functions, unsigned* size);
};

}  // namespace

extern "C" {

int nvtxRangePushA(const char* text) {
  keep(std::string("+") + text);
  return depth++;
}

int nvtxRangePop() {
  keep("-");
  return --depth;
}

int InitializeInjectionNvtx2(const void* (*table_of)(uint32_t)) {
  const auto* const callbacks = static_cast<const Callbacks*>(table_of(kCallbacks));
  void*** functions = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->functions_of(kCore, &functions, &size) == 0 || size <= kRangePop) {
    return 0;
  }
  *functions[kRangePushA] = reinterpret_cast<void*>(nvtxRangePushA);
  *functions[kRangePop] = reinterpret_cast<void*>(nvtxRangePop);
  return 1;
}

}  // extern "C"
