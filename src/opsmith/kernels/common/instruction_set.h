// Which instruction set the vectorised sources of the libraries run with, on x86-64: the widest that the
// processor and the operating system support, or the one that the environment variable OPSMITH_ISA names
// (baseline, avx2, avx512), for tests and bug reports. It is chosen once in each shared library, at the first
// call of a kernel with vectorised code; where the named one is missing, each such call fails.
// A quick build is without those that its own processor lacks. AArch64 has neon alone, since every such
// processor has it, and others have the baseline.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <executorch/runtime/platform/abort.h>
#include <executorch/runtime/platform/log.h>

#if defined(__x86_64__) && defined(OPSMITH_ISA_AVX2)
#define OPSMITH_HAS_LEVELS 1
#endif

#if defined(OPSMITH_HAS_LEVELS)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace opsmith {

enum class InstructionSet : uint8_t { kBaseline, kAvx2, kAvx512 };

namespace detail {

#if defined(OPSMITH_HAS_LEVELS)
// MOVBE, F16C and LZCNT, which clang before 19 has no names for.
inline bool has_unnamed_features() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_MOVBE) && (ecx & bit_F16C) &&
         __get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) && (ecx & bit_LZCNT);
}

// The builtin also asks which registers the operating system saves. x86-64-v3 and -v4 consist of these.
inline bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && has_unnamed_features();
}

inline bool has_avx512() {
#if defined(OPSMITH_ISA_AVX512)
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

#endif

inline InstructionSet widest() {
#if defined(OPSMITH_HAS_LEVELS)
  __builtin_cpu_init();
  if (has_avx2()) {
    return has_avx512() ? InstructionSet::kAvx512 : InstructionSet::kAvx2;
  }
#endif
  return InstructionSet::kBaseline;
}

inline InstructionSet chosen() {
  const auto most = static_cast<uint8_t>(widest());
  const char* const named = std::getenv("OPSMITH_ISA");
  if (named == nullptr || *named == '\0') {
    return static_cast<InstructionSet>(most);
  }
  constexpr const char* kNames[] = {"baseline", "avx2", "avx512"};
  for (uint8_t level = 0; level <= most; ++level) {
    if (std::strcmp(named, kNames[level]) == 0) {
      return static_cast<InstructionSet>(level);
    }
  }
  constexpr const char* kUpTo[] = {"baseline", "baseline, avx2", "baseline, avx2, avx512"};
  ET_LOG(Error, "OPSMITH_ISA is `%s`, and this processor has %s: set it to one of these, or unset it", named,
         kUpTo[most]);
  ::executorch::runtime::runtime_abort();
}

}  // namespace detail

inline InstructionSet instruction_set() {
  static const InstructionSet decided = detail::chosen();
  return decided;
}

// Whether the processor has VDPBF16PS, which AVX-512 need not bring.
inline bool multiplies_bfloat16() {
#if defined(OPSMITH_HAS_LEVELS)
  static const bool has =
      instruction_set() == InstructionSet::kAvx512 && __builtin_cpu_supports("avx512bf16");
  return has;
#else
  return false;
#endif
}

// Whether the processor has SDOT, which adds up four products of bytes, and NEON need not bring.
inline bool multiplies_bytes() {
#if defined(__ARM_FEATURE_DOTPROD)
  return true;
#elif defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP
  static const bool has = (getauxval(AT_HWCAP) & kDotProducts) != 0;
  return has;
#else
  return false;
#endif
}

template <class Function>
Function* best(Function* baseline, Function* avx2, Function* avx512) {
  const InstructionSet chosen = instruction_set();
  return chosen == InstructionSet::kAvx512 ? avx512 : chosen == InstructionSet::kAvx2 ? avx2 : baseline;
}

}  // namespace opsmith

// The function `name` of the library's simd/ for this processor; used in the library's namespace. A kernel
// that no program selects refers to none, so the linker drops them.
#if defined(OPSMITH_HAS_LEVELS) && defined(OPSMITH_ISA_AVX512)
#define OPSMITH_BEST(name) (::opsmith::best(baseline::name, avx2::name, avx512::name))
#elif defined(OPSMITH_HAS_LEVELS)
#define OPSMITH_BEST(name) (::opsmith::best(baseline::name, avx2::name, avx2::name))
#elif defined(OPSMITH_ISA_NEON)
#define OPSMITH_BEST(name) (&neon::name)
#else
#define OPSMITH_BEST(name) (&baseline::name)
#endif
