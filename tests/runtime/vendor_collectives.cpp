// A vendor's library of collectives for tests: ranks of one machine, which meet in shared memory, on the
// streams of the driver that TEST_DRIVER names. vendor_calls() says how many collectives it was given;
// TEST_WITHOUT names what is missing.
#include <opsmith_collectives.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

namespace {

constexpr int kMostRanks = 8;
constexpr size_t kSlot = size_t{1} << 20;

struct Meeting {
  pthread_barrier_t barrier;
  std::atomic<int> is_ready;
  char slots[kMostRanks][kSlot];
};

std::atomic<int> calls = 0;

const opsmith_driver& driver() {
  static const opsmith_driver* const table = [] {
    void* const library = dlopen(std::getenv("TEST_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<opsmith_get_driver_fn>(dlsym(library, OPSMITH_GET_DRIVER_SYMBOL))();
  }();
  return *table;
}

char* on_host(const void* address) {
  return static_cast<char*>(driver().host_window(address));
}

}  // namespace

struct opsmith_communicator_s {
  Meeting* meeting;
  int rank;
  int size;

  void meet() const { pthread_barrier_wait(&meeting->barrier); }

  // Gives the other ranks `bytes` of `data`, a slot's at a time, and reads what they give: `read(rank, slot,
  // offset, bytes)`.
  template <class Read>
  void exchange(const char* data, size_t bytes, const Read& read) const {
    for (size_t offset = 0; offset < bytes; offset += kSlot) {
      const size_t piece = std::min(kSlot, bytes - offset);
      std::memcpy(meeting->slots[rank], data + offset, piece);
      meet();
      for (int other = 0; other < size; ++other) {
        read(other, meeting->slots[other], offset, piece);
      }
      meet();
    }
  }
};

namespace {

opsmith_status queue(opsmith_stream stream, std::function<void()> work) {
  ++calls;
  return driver().stream_host_function(
      stream,
      [](void* given) {
        const auto* const work = static_cast<std::function<void()>*>(given);
        (*work)();
        delete work;
      },
      new std::function<void()>(std::move(work)));
}

thread_local const char* error = "";

const char* last_error() {
  return error;
}

opsmith_status make_id(opsmith_group_id* id) {
  std::snprintf(reinterpret_cast<char*>(id->bytes), sizeof id->bytes, "/opsmith-test-%d-%p", getpid(),
                static_cast<void*>(id));
  return OPSMITH_OK;
}

opsmith_status join(const opsmith_group_id* id, int rank, int size, int /*device*/,
                    opsmith_communicator* communicator) {
  const char* const name = reinterpret_cast<const char*>(id->bytes);
  int file = -1;
  for (int tries = 0; file < 0 && tries < 10'000; ++tries) {
    file = shm_open(name, rank == 0 ? O_RDWR | O_CREAT : O_RDWR, 0600);
    if (rank != 0 && file >= 0 && lseek(file, 0, SEEK_END) < static_cast<off_t>(sizeof(Meeting))) {
      close(file);
      file = -1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (file < 0 || (rank == 0 && ftruncate(file, sizeof(Meeting)) != 0)) {
    error = "the ranks did not meet";
    return OPSMITH_FAILED;
  }
  auto* const meeting =
      static_cast<Meeting*>(mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  close(file);
  if (rank == 0) {
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&meeting->barrier, &shared, static_cast<unsigned>(size));
    meeting->is_ready = 1;
  }
  while (meeting->is_ready == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  *communicator = new opsmith_communicator_s{meeting, rank, size};
  (*communicator)->meet();
  if (rank == 0) {
    shm_unlink(name);
  }
  return OPSMITH_OK;
}

void leave(opsmith_communicator communicator) {
  delete communicator;
}

// Sums of float32, which is all that the tests reduce here.
opsmith_status all_reduce(opsmith_communicator communicator, const void* in, void* out, size_t elements,
                          opsmith_element element, opsmith_reduction reduction, opsmith_stream stream) {
  if (element != OPSMITH_FLOAT32 || reduction != OPSMITH_SUM) {
    error = "only sums of float32 are reduced";
    return OPSMITH_INVALID_ARGUMENT;
  }
  return queue(stream, [=, own = *communicator] {
    const char* const from = on_host(in);
    auto* const to = reinterpret_cast<float*>(on_host(out));
    own.exchange(from, elements * sizeof(float),
                 [&](int rank, const char* slot, size_t offset, size_t bytes) {
                   const auto* const given = reinterpret_cast<const float*>(slot);
                   float* const into = to + offset / sizeof(float);
                   for (size_t i = 0; i < bytes / sizeof(float); ++i) {
                     into[i] = rank == 0 ? given[i] : into[i] + given[i];
                   }
                 });
  });
}

opsmith_status broadcast(opsmith_communicator communicator, void* data, size_t bytes, int root,
                         opsmith_stream stream) {
  return queue(stream, [=, own = *communicator] {
    char* const to = on_host(data);
    own.exchange(to, bytes, [&](int rank, const char* slot, size_t offset, size_t piece) {
      if (rank == root) {
        std::memcpy(to + offset, slot, piece);
      }
    });
  });
}

opsmith_status all_gather(opsmith_communicator communicator, const void* in, void* out, size_t bytes,
                          opsmith_stream stream) {
  return queue(stream, [=, own = *communicator] {
    char* const to = on_host(out);
    own.exchange(on_host(in), bytes, [&](int rank, const char* slot, size_t offset, size_t piece) {
      std::memcpy(to + static_cast<size_t>(rank) * bytes + offset, slot, piece);
    });
  });
}

opsmith_status reduce_scatter(opsmith_communicator communicator, const void* in, void* out, size_t elements,
                              opsmith_element element, opsmith_reduction reduction, opsmith_stream stream) {
  if (element != OPSMITH_FLOAT32 || reduction != OPSMITH_SUM) {
    error = "only sums of float32 are reduced";
    return OPSMITH_INVALID_ARGUMENT;
  }
  return queue(stream, [=, own = *communicator] {
    auto* const to = reinterpret_cast<float*>(on_host(out));
    const size_t own_begin = static_cast<size_t>(own.rank) * elements;
    std::fill_n(to, elements, 0.0f);
    own.exchange(on_host(in), elements * sizeof(float) * static_cast<size_t>(own.size),
                 [&](int, const char* slot, size_t offset, size_t bytes) {
                   const auto* const given = reinterpret_cast<const float*>(slot);
                   for (size_t i = 0; i < bytes / sizeof(float); ++i) {
                     const size_t at = offset / sizeof(float) + i;
                     if (at >= own_begin && at < own_begin + elements) {
                       to[at - own_begin] += given[i];
                     }
                   }
                 });
  });
}

opsmith_status all_to_all(opsmith_communicator communicator, const void* in, void* out, size_t bytes,
                          opsmith_stream stream) {
  return queue(stream, [=, own = *communicator] {
    char* const to = on_host(out);
    const size_t own_begin = static_cast<size_t>(own.rank) * bytes;
    own.exchange(on_host(in), bytes * static_cast<size_t>(own.size),
                 [&](int rank, const char* slot, size_t offset, size_t piece) {
                   for (size_t at = std::max(offset, own_begin);
                        at < std::min(offset + piece, own_begin + bytes); ++at) {
                     to[static_cast<size_t>(rank) * bytes + at - own_begin] = slot[at - offset];
                   }
                 });
  });
}

bool lacks(const char* what) {
  const char* const missing = std::getenv("TEST_WITHOUT");
  return missing != nullptr && std::strcmp(missing, what) == 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const opsmith_collectives* opsmith_get_collectives(void) {
  static const opsmith_collectives table = {
      lacks("version") ? 7u : OPSMITH_COLLECTIVES_ABI_VERSION,
      sizeof(opsmith_collectives),
      "testccl",
      &last_error,
      &make_id,
      lacks("join") ? nullptr : &join,
      &leave,
      &all_reduce,
      &broadcast,
      &all_gather,
      lacks("reduce_scatter") ? nullptr : &reduce_scatter,
      &all_to_all,
  };
  return &table;
}

extern "C" __attribute__((visibility("default"))) int vendor_calls(void) {
  return calls;
}
