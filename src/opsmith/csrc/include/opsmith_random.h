/* Random numbers for kernels in C or C++ that know nothing of PyTorch: those that launch work on the device,
 * and lean kernels. opsmith/philox.h says what the numbers are. */
#ifndef OPSMITH_RANDOM_H
#define OPSMITH_RANDOM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the next `count` numbers of 32 bits, and up to three more that nobody gets, from the default
 * generator of the current device: those of the stream of `*seed` from number `*offset` on, which is a
 * multiple of 4. A kernel does so once a call. Returns 1; or 0 where the backend's numbers are the CPU's
 * (`rng: cpu`), which no kernel can draw: then nothing is written. */
int opsmith_take_random_numbers(uint64_t count, uint64_t* seed, uint64_t* offset);

#ifdef __cplusplus
}
#endif

#endif /* OPSMITH_RANDOM_H */
