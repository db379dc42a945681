// Random numbers of kernels that are operators of the CPU: a stream for each call, whose seed the CPU's
// default generator draws. So torch.manual_seed says what comes.
#include <opsmith_random.h>

#include <mutex>

#include <ATen/CPUGeneratorImpl.h>

extern "C" __attribute__((visibility("hidden"))) int opsmith_take_random_numbers(uint64_t, uint64_t* seed,
                                                                                 uint64_t* offset) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  *seed = generator.get<at::CPUGeneratorImpl>()->random64();
  *offset = 0;
  return 1;
}
