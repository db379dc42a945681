// The messages between processes that share memory, and the Unix sockets that carry them.
//
// The process that owns the memory, the origin, listens. A process that receives tensors has one connection
// to each origin: when it ends, however it does, the connection closes, and the origin knows what that
// process held.
#pragma once

#include <opsmith_driver.h>

#include <cstdint>
#include <string>

#include <opsmith/sharing/descriptor.h>

namespace opsmith {

enum class Question : uint32_t {
  kTake,      // one message with the memory has arrived, and the asking process holds it: where is it?
  kHandle,    // the driver's handle of the allocation that it lies in
  kForward,   // the asking process, which holds it, sends one more message with it
  kReceived,  // one message has arrived, and nothing more is held for it. No answer
  kRelease,   // what kTake took is given up. No answer
  kFlush,     // all that was said before has been heard
};

struct Request {
  Question question;
  uint64_t memory;  // its number
};

enum class Outcome : uint32_t { kDone, kGone, kFailed };

struct Reply {
  Outcome outcome = Outcome::kDone;
  int32_t device = 0;
  uint64_t allocation = 0;  // of the driver's; a number
  uint64_t offset = 0;      // in it
  uint64_t bytes = 0;
  opsmith_memory_handle handle{};  // its file is a message's
  char failure[256] = "";
};

// Where an origin listens: a name that no other process has ever had.
std::string new_address();
int process_of(const std::string& address);

// Throw std::system_error; connect_to() also where another user's process listens.
Descriptor listen_at(const std::string& address);
Descriptor connect_to(const std::string& address);

// The next process that connects, unless there is none, or it is another user's. `is_short`: one waits, and
// this process has too many descriptors open to accept it.
Descriptor accept_from(const Descriptor& listener, bool& is_short);

enum class Wait : uint8_t { kNo, kYes };

// Whether the message went out, whole. `file` goes with it, if it is not negative.
bool send_message(const Descriptor& to, const void* message, size_t bytes, Wait wait, int file = -1) noexcept;

enum class Received : uint8_t { kMessage, kNothing, kEnd };

// With Wait::kYes, kNothing comes when half a minute has passed. A file that came is the caller's.
Received receive_message(const Descriptor& from, void* message, size_t bytes, Wait wait,
                         Descriptor* file = nullptr) noexcept;

}  // namespace opsmith
