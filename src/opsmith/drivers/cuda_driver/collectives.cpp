// The entries of opsmith_collectives.h over NCCL.
//
// NCCL works on the current device of CUDA's runtime. That is the device of the context that is current here,
// since device.h's contexts are primary ones.
#include <opsmith_collectives.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "device.h"
#include "errors.h"
#include "stream.h"

struct opsmith_communicator_s {
  opsmith_communicator_s(int device, int rank, int size) : device(device), rank(rank), size(size) {}
  ~opsmith_communicator_s() {
    cuda::api().MemFree(copy);
    cuda::api().EventDestroy(last);
  }
  opsmith_communicator_s(const opsmith_communicator_s&) = delete;
  opsmith_communicator_s& operator=(const opsmith_communicator_s&) = delete;

  const int device;
  const int rank;
  const int size;
  ncclComm comm = nullptr;
  CUevent last = nullptr;  // recorded behind what was queued last
  CUdeviceptr copy = 0;    // memory for what NCCL cannot do in place
  size_t copy_bytes = 0;
};

namespace cuda::collectives {
namespace {

struct Element {
  int type;
  size_t bytes;
};
// By opsmith_element and opsmith_reduction.
constexpr std::array<Element, 8> kElements{{{kNcclFloat32, 4},
                                            {kNcclFloat64, 8},
                                            {kNcclFloat16, 2},
                                            {kNcclBfloat16, 2},
                                            {kNcclInt64, 8},
                                            {kNcclInt32, 4},
                                            {kNcclInt8, 1},
                                            {kNcclUint8, 1}}};
constexpr std::array kReductions{kNcclSum, kNcclProduct, kNcclMin, kNcclMax};
// For what is pending when a rank leaves, whose peers may never come.
constexpr std::chrono::seconds kPatience{10};

static_assert(sizeof(ncclUniqueId) == sizeof(opsmith_group_id));

// Throws Failure with NCCL's words and the remedy.
void check_nccl(ncclResult result, const std::string& action) {
  if (result == kSuccess) {
    return;
  }
  std::string said = nccl().GetLastError(nullptr);
  said.erase(said.find_last_not_of(" .\n") + 1);
  const bool is_usage = result == kNcclInvalidUsage;
  const char* const reason = is_usage ? "; each rank needs a GPU of its own, and all the same release of NCCL"
                             : result == kNcclRemoteError
                                 ? "; another rank has ended or cannot be reached, and its output says why"
                                 : "";
  throw Failure(is_usage || result == kNcclInvalidArgument ? OPSMITH_INVALID_ARGUMENT : OPSMITH_FAILED,
                action + ": " + nccl().GetErrorString(result) + (said.empty() ? "" : "; ") + said + reason +
                    "; OPSMITH_COLLECTIVES=off has collectives go by the host");
}

// Runs `call` with NCCL's communicator and stream, which queues there, and has `last` follow it.
template <class Call>
opsmith_status queue(opsmith_communicator own, opsmith_stream stream, const char* action, const Call& call) {
  return entry([&] {
    use_device(given(own, "communicator")->device);
    ncclResult earlier = kSuccess;
    check_nccl(nccl().CommGetAsyncError(own->comm, &earlier), action);
    check_nccl(earlier, "a collective that was queued before");
    check_nccl(call(own->comm, given(stream, "stream")->stream), action);
    check(api().EventRecord(own->last, stream->stream), "record an event");
  });
}

// A copy of `in`, for what would be written over it while others still need it.
const void* copied(opsmith_communicator own, const void* in, size_t bytes, CUstream stream) {
  if (own->copy_bytes < bytes) {
    check(api().EventSynchronize(own->last), "wait for a collective");
    CUdeviceptr made = 0;
    check(api().MemAlloc(&made, bytes), "allocate memory for a collective in place");
    api().MemFree(std::exchange(own->copy, made));
    own->copy_bytes = bytes;
  }
  check(api().StreamWaitEvent(stream, own->last, 0), "wait for an event");
  check(api().MemcpyDtoDAsync(own->copy, reinterpret_cast<CUdeviceptr>(in), bytes, stream), "copy memory");
  return reinterpret_cast<const void*>(own->copy);
}

opsmith_status make_id(opsmith_group_id* id) {
  return entry([&] {
    ncclUniqueId made{};
    check_nccl(nccl().GetUniqueId(&made), "make a group");
    std::memcpy(id->bytes, made.bytes, sizeof(made));
  });
}

opsmith_status join(const opsmith_group_id* id, int rank, int size, int device,
                    opsmith_communicator* communicator) {
  return entry([&] {
    use_device(device);
    ncclUniqueId group{};
    std::memcpy(group.bytes, id->bytes, sizeof(group));
    auto own = std::make_unique<opsmith_communicator_s>(device, rank, size);
    check(api().EventCreate(&own->last, kEventWithoutTiming), "make an event");
    check_nccl(nccl().CommInitRank(&own->comm, size, group, rank),
               "join a group of " + std::to_string(size) + " on device " + std::to_string(device));
    *communicator = own.release();
  });
}

// Whether all that was queued has ended well, as it does in a program in which nothing has failed.
bool has_ended(const opsmith_communicator_s& own) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const CUresult state = api().EventQuery(own.last);
    ncclResult error = kSuccess;
    if (state != kNotReady || nccl().CommGetAsyncError(own.comm, &error) != kSuccess || error != kSuccess ||
        std::chrono::steady_clock::now() > deadline) {
      return state == kSuccess;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void leave(opsmith_communicator communicator) {
  entry([&] {
    const std::unique_ptr<opsmith_communicator_s> own(communicator);
    use_device(own->device);
    // Either waits until the ranks of this machine have left, or ended.
    has_ended(*own) ? nccl().CommDestroy(own->comm) : nccl().CommAbort(own->comm);
  });
}

opsmith_status all_reduce(opsmith_communicator own, const void* in, void* out, size_t elements,
                          opsmith_element element, opsmith_reduction reduction, opsmith_stream stream) {
  return queue(own, stream, "all_reduce", [&](ncclComm comm, CUstream queued) {
    return nccl().AllReduce(in, out, elements, kElements.at(element).type, kReductions.at(reduction), comm,
                            queued);
  });
}

opsmith_status broadcast(opsmith_communicator own, void* data, size_t bytes, int root,
                         opsmith_stream stream) {
  return queue(own, stream, "broadcast", [&](ncclComm comm, CUstream queued) {
    return nccl().Broadcast(data, data, bytes, kNcclInt8, root, comm, queued);
  });
}

// In place NCCL takes what lies where the rank's own comes to lie, which for rank 0 is the beginning.
opsmith_status all_gather(opsmith_communicator own, const void* in, void* out, size_t bytes,
                          opsmith_stream stream) {
  return queue(own, stream, "all_gather", [&](ncclComm comm, CUstream queued) {
    const void* const from = in == out && own->rank != 0 ? copied(own, in, bytes, queued) : in;
    return nccl().AllGather(from, out, bytes, kNcclInt8, comm, queued);
  });
}

opsmith_status reduce_scatter(opsmith_communicator own, const void* in, void* out, size_t elements,
                              opsmith_element element, opsmith_reduction reduction, opsmith_stream stream) {
  return queue(own, stream, "reduce_scatter", [&](ncclComm comm, CUstream queued) {
    const Element each = kElements.at(element);
    const size_t all = elements * each.bytes * static_cast<size_t>(own->size);
    const void* const from = in == out && own->rank != 0 ? copied(own, in, all, queued) : in;
    return nccl().ReduceScatter(from, out, elements, each.type, kReductions.at(reduction), comm, queued);
  });
}

opsmith_status all_to_all(opsmith_communicator own, const void* in, void* out, size_t bytes,
                          opsmith_stream stream) {
  return queue(own, stream, "all_to_all", [&](ncclComm comm, CUstream queued) {
    const size_t all = bytes * static_cast<size_t>(own->size);
    const auto* const from = static_cast<const char*>(in == out ? copied(own, in, all, queued) : in);
    check_nccl(nccl().GroupStart(), "all_to_all");
    ncclResult result = kSuccess;
    for (int peer = 0; peer < own->size && result == kSuccess; ++peer) {
      const size_t at = bytes * static_cast<size_t>(peer);
      result = nccl().Send(from + at, bytes, kNcclInt8, peer, comm, queued);
      if (result == kSuccess) {
        result = nccl().Recv(static_cast<char*>(out) + at, bytes, kNcclInt8, peer, comm, queued);
      }
    }
    const ncclResult ended = nccl().GroupEnd();
    return result != kSuccess ? result : ended;
  });
}

const opsmith_collectives table = {
    .abi_version = OPSMITH_COLLECTIVES_ABI_VERSION,
    .struct_size = sizeof(opsmith_collectives),
    .name = "NCCL",
    .last_error = last_error,
    .make_id = make_id,
    .join = join,
    .leave = leave,
    .all_reduce = all_reduce,
    .broadcast = broadcast,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_to_all = all_to_all,
};

}  // namespace
}  // namespace cuda::collectives

extern "C" __attribute__((visibility("default"))) const opsmith_collectives* opsmith_get_collectives(void) {
  return cuda::entry([] { cuda::nccl(); }) == OPSMITH_OK ? &cuda::collectives::table : nullptr;
}
