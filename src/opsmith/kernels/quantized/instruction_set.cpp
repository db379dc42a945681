#include "instruction_set.h"

#include <cstdlib>
#include <cstring>

#include <executorch/runtime/platform/log.h>

namespace opsmith::quantized {
namespace {

#if defined(OPSMITH_HAS_LEVELS)
// The builtin also asks which registers the operating system saves. What x86-64-v3 and -v4 consist of.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("movbe");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

InstructionSet chosen() {
  __builtin_cpu_init();
  const InstructionSet widest = has_avx512() ? InstructionSet::kAvx512
                                : has_avx2() ? InstructionSet::kAvx2
                                             : InstructionSet::kBaseline;
  const char* const named = std::getenv("OPSMITH_ISA");
  if (named == nullptr || *named == '\0') {
    return widest;
  }
  constexpr const char* kNames[] = {"baseline", "avx2", "avx512"};
  for (uint8_t level = 0; level <= static_cast<uint8_t>(widest); ++level) {
    if (std::strcmp(named, kNames[level]) == 0) {
      return static_cast<InstructionSet>(level);
    }
  }
  ET_LOG(Error, "OPSMITH_ISA=%s is no instruction set of this processor; %s is used", named,
         kNames[static_cast<uint8_t>(widest)]);
  return widest;
}
#else
InstructionSet chosen() {
  return InstructionSet::kBaseline;
}
#endif

}  // namespace

InstructionSet instruction_set() {
  static const InstructionSet decided = chosen();
  return decided;
}

bool multiplies_bfloat16() {
#if defined(OPSMITH_HAS_LEVELS)
  static const bool has =
      instruction_set() == InstructionSet::kAvx512 && __builtin_cpu_supports("avx512bf16");
  return has;
#else
  return false;
#endif
}

}  // namespace opsmith::quantized
