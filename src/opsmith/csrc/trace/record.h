// The format of a trace: the records that each thread writes, and the lines that give their numbers names.
// runtime/records/trace/files.py reads both; the layout is versioned by kMagic.
#pragma once

#include <cstdint>

namespace opsmith::trace {

inline constexpr char kMagic[16] = "opsmith trace 1";

// How something came to run.
enum class How : uint8_t { kCall, kRedispatch, kCallBoxed, kNode, kModule };

// The sort of registration that a kernel is, by the words of the dispatcher's own dump.
enum class Kind : uint8_t { kKernel, kComposite, kDefault, kFallback, kAutograd };

inline constexpr uint8_t kRaised = 1;     // it ended by an exception
inline constexpr uint8_t kTruncated = 2;  // it has more tensors than its details tell

// One call, node of a backward or forward of a module. `words` words of details follow it: see Log.
struct Record {
  uint64_t start;  // ticks of c10::getApproximateTime
  uint64_t end;    // 0: it has not returned
  uint32_t name;   // which line of names
  uint16_t key;    // c10::DispatchKey
  uint16_t words;
  uint16_t depth;      // what of the same thread it runs inside of
  int8_t device_type;  // c10::DeviceType of the first tensor; -1: none
  int8_t device_index;
  How how;
  Kind kind;
  uint8_t flags;
  uint8_t reserved;
};
static_assert(sizeof(Record) == 32);

// The first bytes of a thread's file; records begin at kFirstRecord.
struct Header {
  char magic[16];
  uint64_t used;     // bytes of records
  uint64_t dropped;  // calls for which there was no room
  uint32_t process;
  uint32_t thread;
  char name[16];
  uint64_t forward_thread;  // the number by which nodes of a backward name this thread
};
inline constexpr uint64_t kFirstRecord = 128;
static_assert(sizeof(Header) <= kFirstRecord);

}  // namespace opsmith::trace
