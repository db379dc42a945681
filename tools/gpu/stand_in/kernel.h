// CUDA C++ as a host's compiler takes it, for kernels of the dialect of cuda_driver: what libnvrtc.cpp puts
// before a kernel's source. Blocks run one after the other; a block's threads too, as coroutines where they
// meet at barriers.
#pragma once

#include <math.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local

struct dim3 {
  unsigned x, y, z;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};

inline thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace stand_in {

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// The dialect's two functions that are written in PTX call these variables so.
inline void convert(const char* ptx, float& x, unsigned short bits) {
  x = static_cast<float>(bits_as<_Float16>(bits));
}
inline void convert(const char* ptx, unsigned short& bits, float x) {
  bits = bits_as<unsigned short>(static_cast<_Float16>(x));
}
template <class X, class Bits>
void assemble(const char* ptx, X& x, Bits& bits) {
  std::strstr(ptx, "cvt.f32.f16") != nullptr ? convert(ptx, x, bits) : convert(ptx, bits, x);
}

constexpr size_t kStack = 64 << 10;

// The threads of a block, each of which runs to its next barrier before the next one does. They are made
// once, for all blocks, and change places by longjmp: swapcontext asks the system each time.
struct Thread {
  jmp_buf at;
  bool is_made = false;
  bool has_ended = false;
};
struct Block {
  std::vector<Thread> threads{1024};
  jmp_buf scheduler;
  size_t current = 0;
  const std::function<void()>* body = nullptr;
  char* const stacks = static_cast<char*>(mmap(nullptr, 1024 * kStack, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ~Block() { munmap(stacks, 1024 * kStack); }
};
inline thread_local Block block;

inline void wait_for_turn() {
  if (_setjmp(block.threads[block.current].at) == 0) {
    _longjmp(block.scheduler, 1);
  }
}

inline void run_thread() {
  for (;;) {
    (*block.body)();
    block.threads[block.current].has_ended = true;
    wait_for_turn();
  }
}

// Until it waits for its next turn.
[[gnu::noinline]] inline void give_turn(size_t i) {
  block.current = i;
  if (_setjmp(block.scheduler) != 0) {
    return;
  }
  if (block.threads[i].is_made) {
    _longjmp(block.threads[i].at, 1);
  }
  block.threads[i].is_made = true;
  ucontext_t made;
  getcontext(&made);
  made.uc_stack.ss_sp = block.stacks + i * kStack;
  made.uc_stack.ss_size = kStack;
  makecontext(&made, run_thread, 0);
  setcontext(&made);
}

template <class Each>
void each_thread(Each&& each) {
  for (threadIdx.z = 0; threadIdx.z < blockDim.z; ++threadIdx.z) {
    for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y) {
      for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) {
        each((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
      }
    }
  }
}

inline void run_block(const std::function<void()>& body, bool has_barriers) {
  if (!has_barriers) {
    return each_thread([&](size_t) { body(); });
  }
  block.body = &body;
  each_thread([](size_t i) { block.threads[i].has_ended = false; });
  for (bool all_ended = false; !all_ended;) {
    all_ended = true;
    each_thread([&](size_t i) {
      if (!block.threads[i].has_ended) {
        give_turn(i);
        all_ended = all_ended && block.threads[i].has_ended;
      }
    });
  }
}

using ToHost = void* (*)(void*);

template <class T>
T argument(const void* given, ToHost to_host) {
  T value;
  std::memcpy(&value, given, sizeof(value));
  if constexpr (std::is_pointer_v<T>) {
    value = static_cast<T>(to_host(const_cast<std::remove_const_t<std::remove_pointer_t<T>>*>(value)));
  }
  return value;
}

// The job of a launch: its arguments are read now, since they may be gone when it does.
template <class... A>
std::function<void()> launch(void (*kernel)(A...), const dim3& grid, const dim3& items, void** arguments,
                             ToHost to_host, bool has_barriers) {
  size_t next = 0;
  std::tuple<std::remove_const_t<A>...> values{
      argument<std::remove_const_t<A>>(arguments[next++], to_host)...};
  return [=] {
    gridDim = grid;
    blockDim = items;
    const std::function<void()> body = [&] { std::apply(kernel, values); };
    for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z) {
      for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
        for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
          run_block(body, has_barriers);
        }
      }
    }
  };
}

}  // namespace stand_in

#define asm(...) stand_in::assemble(#__VA_ARGS__, x, bits)

inline void __syncthreads() {
  stand_in::wait_for_turn();
}

inline unsigned __float_as_uint(float x) {
  return stand_in::bits_as<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return stand_in::bits_as<float>(x);
}
inline float __int_as_float(int x) {
  return stand_in::bits_as<float>(x);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
inline float rsqrt(float x) {
  return 1 / std::sqrt(x);
}
inline double rsqrt(double x) {
  return 1 / std::sqrt(x);
}
template <class A, class B>
std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}
#undef INFINITY
