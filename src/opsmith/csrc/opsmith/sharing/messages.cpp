// See messages.h.
#include <opsmith/sharing/messages.h>

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

namespace opsmith {

namespace {

constexpr timeval kPatience{.tv_sec = 30, .tv_usec = 0};
constexpr const char* kPrefix = "opsmith-";

[[noreturn]] void throw_errno(const char* action) {
  throw std::system_error(errno, std::generic_category(), action);
}

// Messages arrive whole and in order.
Descriptor new_socket(int flags) {
  Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!made.is_open()) {
    throw_errno("socket");
  }
  return made;
}

struct Name {
  // Abstract: no file is left behind.
  explicit Name(const std::string& address) {
    std::memcpy(name.sun_path + 1, address.data(), std::min(address.size(), sizeof(name.sun_path) - 1));
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }

  sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t size = 0;
};

bool is_of_this_user(const Descriptor& socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

union FileBuffer {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr header;
};

}  // namespace

std::string new_address() {
  uint64_t chance[2];
  if (getrandom(chance, sizeof(chance), 0) != sizeof(chance)) {
    throw_errno("getrandom");
  }
  char text[64];
  std::snprintf(text, sizeof(text), "%s%d-%016llx%016llx", kPrefix, getpid(),
                static_cast<unsigned long long>(chance[0]), static_cast<unsigned long long>(chance[1]));
  return text;
}

int process_of(const std::string& address) {
  int process = 0;
  const size_t start = std::strlen(kPrefix);
  if (address.size() > start) {
    std::from_chars(address.data() + start, address.data() + address.size(), process);
  }
  return process;
}

Descriptor listen_at(const std::string& address) {
  Descriptor made = new_socket(SOCK_NONBLOCK);
  const Name name(address);
  if (bind(made.number(), name.get(), name.size) != 0 || listen(made.number(), SOMAXCONN) != 0) {
    throw_errno("listening for other processes");
  }
  return made;
}

Descriptor connect_to(const std::string& address) {
  Descriptor made = new_socket(0);
  setsockopt(made.number(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
  setsockopt(made.number(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  const Name name(address);
  if (connect(made.number(), name.get(), name.size) != 0) {
    throw_errno("connect");
  }
  if (!is_of_this_user(made)) {
    // The process that listened has ended, and a stranger has taken its address.
    errno = ECONNREFUSED;
    throw_errno("connect");
  }
  return made;
}

Descriptor accept_from(const Descriptor& listener, bool& is_short) {
  Descriptor made(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  is_short = !made.is_open() && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
  return made.is_open() && is_of_this_user(made) ? std::move(made) : Descriptor();
}

bool send_message(const Descriptor& to, const void* message, size_t bytes, Wait wait, int file) noexcept {
  iovec part{const_cast<void*>(message), bytes};
  FileBuffer buffer{};
  msghdr sent{};
  sent.msg_iov = &part;
  sent.msg_iovlen = 1;
  if (file >= 0) {
    sent.msg_control = buffer.bytes;
    sent.msg_controllen = sizeof(buffer.bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&sent);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof(int));
  }
  ssize_t done = 0;
  do {
    done = sendmsg(to.number(), &sent, MSG_NOSIGNAL | (wait == Wait::kNo ? MSG_DONTWAIT : 0));
  } while (done < 0 && errno == EINTR);
  return done == static_cast<ssize_t>(bytes);
}

Received receive_message(const Descriptor& from, void* message, size_t bytes, Wait wait,
                         Descriptor* file) noexcept {
  iovec part{message, bytes};
  FileBuffer buffer{};
  msghdr received{};
  received.msg_iov = &part;
  received.msg_iovlen = 1;
  received.msg_control = buffer.bytes;
  received.msg_controllen = sizeof(buffer.bytes);
  ssize_t done = 0;
  do {
    done = recvmsg(from.number(), &received, MSG_CMSG_CLOEXEC | (wait == Wait::kNo ? MSG_DONTWAIT : 0));
  } while (done < 0 && errno == EINTR);
  if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return Received::kNothing;
  }
  Descriptor came;
  if (const cmsghdr* const header = done > 0 ? CMSG_FIRSTHDR(&received) : nullptr;
      header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(header), sizeof(int));
    came = Descriptor(number);
  }
  if (file != nullptr) {
    *file = std::move(came);
  }
  return done == static_cast<ssize_t>(bytes) ? Received::kMessage : Received::kEnd;
}

}  // namespace opsmith
