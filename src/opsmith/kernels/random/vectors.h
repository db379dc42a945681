// Operations on many numbers at once: plain loops that the compiler vectorises, once for each instruction
// set. The results are the same with all of them: nothing is contracted or reordered (kernels.yaml has the
// options).
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__linux__) && __has_attribute(target_clones)
#define OPSMITH_EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define OPSMITH_EACH_ISA
#endif
// clang has to know of a declaration, too, before anything calls it; gcc's clones are seen in their file
// only.
#if defined(__clang__)
#define OPSMITH_EACH_ISA_DECLARED OPSMITH_EACH_ISA
#else
#define OPSMITH_EACH_ISA_DECLARED
#endif

namespace opsmith::random_kernels {

// So many numbers are made together; callers round up.
inline constexpr int64_t kNumbersAtOnce = 128;

// `count` numbers, a multiple of kNumbersAtOnce, of the stream of `seed` from number 4·first_block on.
OPSMITH_EACH_ISA_DECLARED void philox_numbers(uint64_t seed, uint64_t first_block, uint32_t* numbers,
                                              int64_t count);

// Uniform in [0, 1), in multiples of 2^-24.
OPSMITH_EACH_ISA_DECLARED void uniform(const uint32_t* numbers, float* out, int64_t count);

// Normal, with mean 0 and standard deviation 1. Two numbers make two elements: `count` is even.
OPSMITH_EACH_ISA_DECLARED void normal(const uint32_t* numbers, float* out, int64_t count);

// -ln w, with w uniform in (0, 1]: exponential, with mean 1.
OPSMITH_EACH_ISA_DECLARED void exponential(const uint32_t* numbers, float* out, int64_t count);

// Whether each number is at most `last`: 0 or 1.
OPSMITH_EACH_ISA_DECLARED void at_most(const uint32_t* numbers, uint8_t* out, int64_t count, uint32_t last);

// out = in · scale where the number is at most `last`, which `kept` says, and in · 0 elsewhere.
OPSMITH_EACH_ISA_DECLARED void drop(const uint32_t* numbers, const float* in, float* out, uint8_t* kept,
                                    int64_t count, uint32_t last, float scale);

// offset + floor(number · range / 2^32), for a range of up to 2^24.
OPSMITH_EACH_ISA_DECLARED void integers(const uint32_t* numbers, int64_t* out, int64_t count, uint32_t range,
                                        int64_t offset);

}  // namespace opsmith::random_kernels
