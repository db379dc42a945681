// NCCL's entries that cuda_driver calls, on the stand-in of libcuda: ranks are processes of this machine, and
// a collective is work of the stream. Two ranks on one device are refused, and so is what NCCL cannot do in
// place.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "../../../src/opsmith/drivers/cuda_driver/api.h"
#include "elements.h"
#include "meeting.h"
#include "of_libcuda.h"

using namespace cuda;
using namespace stand_in;

struct ncclComm_s {
  std::shared_ptr<Meeting> meeting;
};

namespace {

constexpr ncclResult kUnhandledCudaError = 1;
constexpr ncclResult kSystemError = 2;

std::string last_error;

ncclResult refuse(ncclResult result, const std::string& text) {
  last_error = text;
  return result;
}

char* bytes_at(const void* pointer) {
  return static_cast<char*>(view(pointer));
}

ncclResult queue(CUstream stream, std::function<void()> work) {
  const auto run = [](void* given) { (*static_cast<std::function<void()>*>(given))(); };
  // Kept: a captured stream runs it again.
  return stand_in::queue(stream, run, new std::function<void()>(std::move(work))) == kSuccess
             ? kSuccess
             : refuse(kUnhandledCudaError, "the stream refuses work");
}

bool overlap(const char* a, size_t a_bytes, const char* b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}
constexpr const char* kOverlap = "NCCL would read what it has overwritten";

template <class T>
T folded(T a, T b, int reduction) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(reduction == kNcclSum       ? a + b
                          : reduction == kNcclProduct ? a * b
                          : reduction == kNcclMax     ? std::max(a, b)
                                                      : std::min(a, b));
  } else {
    T result;
    put(folded(number(a), number(b), reduction), result);
    return result;
  }
}

// Calls `run` with an element of the type.
template <class Run>
ncclResult with_type(int type, const Run& run) {
  switch (type) {
    case kNcclInt8:
      return run(int8_t{});
    case kNcclUint8:
      return run(uint8_t{});
    case kNcclInt32:
      return run(int32_t{});
    case kNcclInt64:
      return run(int64_t{});
    case kNcclFloat16:
      return run(Half{});
    case kNcclFloat32:
      return run(float{});
    case kNcclFloat64:
      return run(double{});
    case kNcclBfloat16:
      return run(Bfloat16{});
    default:
      return refuse(kNcclInvalidArgument, "there is no type " + std::to_string(type));
  }
}

// The calls of a group, of one communicator and stream: to and from each rank as many bytes.
struct Passed {
  std::shared_ptr<Meeting> meeting;
  CUstream stream = nullptr;
  size_t bytes = 0;
  std::vector<const char*> sent;
  std::vector<char*> received;
};
thread_local Passed passed;

template <class Pointers, class Pointer>
ncclResult pass(Pointers& pointers, Pointer pointer, size_t count, int type, ncclComm comm, CUstream stream) {
  return with_type(type, [&](auto element) {
    passed.meeting = comm->meeting;
    passed.stream = stream;
    passed.bytes = count * sizeof(element);
    pointers.push_back(pointer);
    return kSuccess;
  });
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult result) {
  return result == kNcclInvalidUsage      ? "invalid usage (run with NCCL_DEBUG=WARN for details)"
         : result == kNcclInvalidArgument ? "invalid argument (run with NCCL_DEBUG=WARN for details)"
                                          : "unhandled error";
}

const char* ncclGetLastError(ncclComm) {
  return last_error.c_str();
}

ncclResult ncclGetUniqueId(ncclUniqueId* id) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::snprintf(id->bytes, sizeof(id->bytes), "/opsmith-nccl-%d-%lld", getpid(), static_cast<long long>(now));
  return kSuccess;
}

ncclResult ncclCommInitRank(ncclComm* comm, int size, ncclUniqueId id, int rank) {
  int device = 0;
  if (of_libcuda<CUresult (*)(CUdevice*)>("cuCtxGetDevice")(&device) != kSuccess) {
    return refuse(kUnhandledCudaError, "no device is current");
  }
  const auto meeting = Meeting::join(id.bytes, rank, size, device);
  if (meeting == nullptr) {
    return refuse(kSystemError, "the ranks did not meet");
  }
  for (int other = 0; other < size; ++other) {
    for (int before = 0; before < other; ++before) {
      if (meeting->device_of(other) == meeting->device_of(before)) {
        return refuse(kNcclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(before) +
                                             " and rank " + std::to_string(other) + " both on CUDA device " +
                                             std::to_string(meeting->device_of(other) + 1) + "000");
      }
    }
  }
  *comm = new ncclComm_s{meeting};
  return kSuccess;
}

ncclResult ncclCommGetAsyncError(ncclComm, ncclResult* error) {
  return *error = kSuccess;
}

ncclResult ncclCommDestroy(ncclComm comm) {
  delete comm;
  return kSuccess;
}

ncclResult ncclCommAbort(ncclComm comm) {
  comm->meeting->give_up();
  return ncclCommDestroy(comm);
}

ncclResult ncclAllReduce(const void* in, void* out, size_t count, int type, int reduction, ncclComm comm,
                         CUstream stream) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    return queue(stream, [=, meeting = comm->meeting, from = bytes_at(in), to = bytes_at(out)] {
      meeting->all_reduce(reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to), count,
                          [&](T a, T b) { return folded(a, b, reduction); });
    });
  });
}

ncclResult ncclBroadcast(const void* in, void* out, size_t count, int type, int root, ncclComm comm,
                         CUstream stream) {
  return with_type(type, [&](auto element) {
    if (in != out) {
      return refuse(kNcclInvalidArgument, "the stand-in broadcasts in place");
    }
    return queue(stream, [=, meeting = comm->meeting, data = bytes_at(out)] {
      meeting->broadcast(data, count * sizeof(element), root);
    });
  });
}

ncclResult ncclAllGather(const void* in, void* out, size_t count, int type, ncclComm comm, CUstream stream) {
  return with_type(type, [&](auto element) {
    const size_t bytes = count * sizeof(element);
    const char* const from = bytes_at(in);
    char* const to = bytes_at(out);
    const Meeting& all = *comm->meeting;
    if (from != to + bytes * static_cast<size_t>(all.rank) &&
        overlap(from, bytes, to, bytes * static_cast<size_t>(all.size))) {
      return refuse(kNcclInvalidArgument, kOverlap);
    }
    return queue(stream, [=, meeting = comm->meeting] { meeting->all_gather(from, to, bytes); });
  });
}

ncclResult ncclReduceScatter(const void* in, void* out, size_t count, int type, int reduction, ncclComm comm,
                             CUstream stream) {
  return with_type(type, [&](auto element) {
    using T = decltype(element);
    const size_t bytes = count * sizeof(T);
    const char* const from = bytes_at(in);
    char* const to = bytes_at(out);
    const Meeting& all = *comm->meeting;
    if (to != from + bytes * static_cast<size_t>(all.rank) &&
        overlap(from, bytes * static_cast<size_t>(all.size), to, bytes)) {
      return refuse(kNcclInvalidArgument, kOverlap);
    }
    return queue(stream, [=, meeting = comm->meeting] {
      meeting->reduce_scatter(reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to), count,
                              [&](T a, T b) { return folded(a, b, reduction); });
    });
  });
}

ncclResult ncclGroupStart() {
  passed = {};
  return kSuccess;
}

ncclResult ncclSend(const void* data, size_t count, int type, int, ncclComm comm, CUstream stream) {
  return pass(passed.sent, bytes_at(data), count, type, comm, stream);
}

ncclResult ncclRecv(void* data, size_t count, int type, int, ncclComm comm, CUstream stream) {
  return pass(passed.received, bytes_at(data), count, type, comm, stream);
}

ncclResult ncclGroupEnd() {
  for (const char* const from : passed.sent) {
    for (char* const to : passed.received) {
      if (overlap(from, passed.bytes, to, passed.bytes)) {
        return refuse(kNcclInvalidArgument, kOverlap);
      }
    }
  }
  return queue(passed.stream, [all = passed] {
    all.meeting->all_to_all(
        all.bytes, [&](int rank) { return all.sent[static_cast<size_t>(rank)]; },
        [&](int rank) { return all.received[static_cast<size_t>(rank)]; });
  });
}

}  // extern "C"
