// Random numbers by Philox 4x32 with ten rounds (Salmon et al., Parallel random numbers: as easy as 1, 2, 3,
// 2011), for kernels on the host. Plain C++: kernels of any ABI may include it.
//
// A seed has a stream of 2^66 numbers of 32 bits: number n is philox(seed, n / 4)[n % 4]. A generator of the
// device knows how many of them were taken, its offset, and gives each call numbers of its own
// (opsmith_random.h, opsmith/random_numbers.h).
#pragma once

#include <array>
#include <cstdint>

namespace opsmith {

// The numbers that a call may draw: those of `seed` from number `offset` on, which is a multiple of 4.
struct PhiloxNumbers {
  uint64_t seed;
  uint64_t offset;
};

inline constexpr uint32_t kPhiloxMultipliers[] = {0xD2511F53, 0xCD9E8D57};
inline constexpr uint32_t kPhiloxKeySteps[] = {0x9E3779B9, 0xBB67AE85};
inline constexpr int kPhiloxRounds = 10;

// Numbers 4·block to 4·block + 3 of the seed's stream.
inline std::array<uint32_t, 4> philox(uint64_t seed, uint64_t block) {
  std::array<uint32_t, 4> c{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMultipliers[0]} * c[0];
    const uint64_t p1 = uint64_t{kPhiloxMultipliers[1]} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kPhiloxKeySteps[0];
    k1 += kPhiloxKeySteps[1];
  }
  return c;
}

}  // namespace opsmith
