// A vendor's library of collectives for tests: ranks of one machine, which meet in shared memory, on the
// streams of the driver that TEST_DRIVER names. vendor_calls() says how many collectives it was given;
// TEST_WITHOUT names what is missing.
#include <opsmith_collectives.h>

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include "../../tools/gpu/stand_in/meeting.h"

struct opsmith_communicator_s {
  std::shared_ptr<stand_in::Meeting> meeting;
};

namespace {

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

opsmith_status join(const opsmith_group_id* id, int rank, int size, int device,
                    opsmith_communicator* communicator) {
  auto meeting = stand_in::Meeting::join(reinterpret_cast<const char*>(id->bytes), rank, size, device);
  if (meeting == nullptr) {
    error = "the ranks did not meet";
    return OPSMITH_FAILED;
  }
  *communicator = new opsmith_communicator_s{std::move(meeting)};
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
  return queue(stream, [=, meeting = communicator->meeting] {
    meeting->all_reduce(reinterpret_cast<const float*>(on_host(in)), reinterpret_cast<float*>(on_host(out)),
                        elements, std::plus<float>());
  });
}

opsmith_status broadcast(opsmith_communicator communicator, void* data, size_t bytes, int root,
                         opsmith_stream stream) {
  return queue(stream,
               [=, meeting = communicator->meeting] { meeting->broadcast(on_host(data), bytes, root); });
}

opsmith_status all_gather(opsmith_communicator communicator, const void* in, void* out, size_t bytes,
                          opsmith_stream stream) {
  return queue(stream, [=, meeting = communicator->meeting] {
    meeting->all_gather(on_host(in), on_host(out), bytes);
  });
}

opsmith_status reduce_scatter(opsmith_communicator communicator, const void* in, void* out, size_t elements,
                              opsmith_element element, opsmith_reduction reduction, opsmith_stream stream) {
  if (element != OPSMITH_FLOAT32 || reduction != OPSMITH_SUM) {
    error = "only sums of float32 are reduced";
    return OPSMITH_INVALID_ARGUMENT;
  }
  return queue(stream, [=, meeting = communicator->meeting] {
    meeting->reduce_scatter(reinterpret_cast<const float*>(on_host(in)),
                            reinterpret_cast<float*>(on_host(out)), elements, std::plus<float>());
  });
}

opsmith_status all_to_all(opsmith_communicator communicator, const void* in, void* out, size_t bytes,
                          opsmith_stream stream) {
  return queue(stream, [=, meeting = communicator->meeting] {
    const auto at = [&](const void* memory) {
      return [start = on_host(memory), bytes](int rank) { return start + bytes * static_cast<size_t>(rank); };
    };
    meeting->all_to_all(bytes, at(in), at(out));
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
