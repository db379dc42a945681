// Random numbers of kernels in ExecuTorch's runtime, which has no generators: all come from one stream, whose
// seed is another in each process.
#include <opsmith_random.h>

#include <atomic>
#include <random>

extern "C" __attribute__((visibility("hidden"))) int opsmith_take_random_numbers(uint64_t count,
                                                                                 uint64_t* seed,
                                                                                 uint64_t* offset) {
  static const uint64_t seed_of_process = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  static std::atomic<uint64_t> next{0};
  *seed = seed_of_process;
  *offset = next.fetch_add((count + 3) / 4 * 4);
  return 1;
}
