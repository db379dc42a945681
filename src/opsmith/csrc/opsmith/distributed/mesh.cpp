#include <opsmith/distributed/mesh.h>

#include <arpa/inet.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <torch/library.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace opsmith {

namespace {

using Milliseconds = std::chrono::milliseconds;

struct Endpoint {
  sockaddr_storage address{};
  socklen_t bytes = 0;

  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&address); }
};

std::string text_of(const Endpoint& endpoint, bool with_port) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  TORCH_CHECK(getnameinfo(endpoint.generic(), endpoint.bytes, host, sizeof host, port, sizeof port,
                          NI_NUMERICHOST | NI_NUMERICSERV) == 0,
              "an address of this machine cannot be written");
  return with_port ? std::string(host) + " " + port : std::string(host);
}

// `text` is a host and a port, or a host alone.
Endpoint endpoint_of(const std::string& text) {
  const size_t space = text.find(' ');
  const std::string host = text.substr(0, space);
  const std::string port = space == std::string::npos ? "0" : text.substr(space + 1);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  TORCH_CHECK(getaddrinfo(host.c_str(), port.c_str(), &hints, &found) == 0, "`", text, "` is no address");
  Endpoint endpoint;
  std::memcpy(&endpoint.address, found->ai_addr, found->ai_addrlen);
  endpoint.bytes = found->ai_addrlen;
  freeaddrinfo(found);
  return endpoint;
}

std::string address_of_interface(const std::string& wanted) {
  ifaddrs* all = nullptr;
  TORCH_CHECK(getifaddrs(&all) == 0, "the network interfaces cannot be listed: ", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(all, freeifaddrs);
  std::string known, address;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    const int family = each->ifa_addr == nullptr ? AF_UNSPEC : each->ifa_addr->sa_family;
    if ((each->ifa_flags & IFF_UP) == 0 || (family != AF_INET && family != AF_INET6)) {
      continue;
    }
    const std::string_view name = each->ifa_name;
    if (known.find(name) == std::string::npos) {
      known.append(known.empty() ? "" : ", ").append(name);
    }
    if (name == wanted && (address.empty() || family == AF_INET)) {
      Endpoint endpoint;
      endpoint.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&endpoint.address, each->ifa_addr, endpoint.bytes);
      address = text_of(endpoint, false);
    }
  }
  TORCH_CHECK(!address.empty(), "GLOO_SOCKET_IFNAME names the network interface `", wanted,
              "`, and those that are up here are: ", known.empty() ? "none" : known,
              "\n  remedy: name one of them, such as GLOO_SOCKET_IFNAME=lo for ranks on one machine");
  return address;
}

Descriptor socket_for(const Endpoint& endpoint) {
  return Descriptor(socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

bool can_listen_at(const Endpoint& endpoint) {
  const Descriptor tried = socket_for(endpoint);
  return tried.is_open() && bind(tried.number(), endpoint.generic(), endpoint.bytes) == 0;
}

void send_at_once(const Descriptor& connection) {
  const int yes = 1, buffer = 4 << 20;
  setsockopt(connection.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(connection.number(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  setsockopt(connection.number(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  fcntl(connection.number(), F_SETFL, O_NONBLOCK);
}

int milliseconds_to(Mesh::Clock::time_point deadline) {
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Mesh::Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

bool is_ready(int descriptor, short what, Mesh::Clock::time_point deadline) {
  pollfd asked{descriptor, what, 0};
  int ready = 0;
  do {
    ready = poll(&asked, 1, milliseconds_to(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

}  // namespace

std::string network_address() {
  if (const char* const names = std::getenv("GLOO_SOCKET_IFNAME"); names != nullptr && *names != '\0') {
    return address_of_interface(std::string(names).substr(0, std::string_view(names).find(',')));
  }
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host, nullptr, &hints, &found) == 0) {
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
      Endpoint endpoint;
      std::memcpy(&endpoint.address, each->ai_addr, each->ai_addrlen);
      endpoint.bytes = each->ai_addrlen;
      if (can_listen_at(endpoint)) {
        return text_of(endpoint, false);
      }
    }
  }
  TORCH_CHECK(can_listen_at(endpoint_of("127.0.0.1")),
              "no network interface is up, not even the loopback, and ranks are connected by one"
              "\n  remedy: ip link set lo up, or name another in GLOO_SOCKET_IFNAME");
  return "127.0.0.1";
}

Mesh::Mesh(c10d::Store& store, int rank, int size, Milliseconds timeout)
    : rank_(rank), size_(size), peers_(static_cast<size_t>(size)) {
  if (size == 1) {
    return;
  }
  const auto deadline = Clock::now() + timeout;
  Endpoint here = endpoint_of(network_address());
  const Descriptor listener = socket_for(here);
  TORCH_CHECK(listener.is_open() && bind(listener.number(), here.generic(), here.bytes) == 0 &&
                  listen(listener.number(), size) == 0 &&
                  getsockname(listener.number(), here.generic(), &here.bytes) == 0,
              "rank ", rank, " cannot listen for other ranks: ", std::strerror(errno));
  const std::string text = text_of(here, true);
  const auto key = [](int of) { return "opsmith/rank" + std::to_string(of); };
  store.set(key(rank), std::vector<uint8_t>(text.begin(), text.end()));
  for (int lower = 0; lower < rank; ++lower) {
    const std::vector<uint8_t> place = store.get(key(lower));
    const Endpoint there = endpoint_of(std::string(place.begin(), place.end()));
    Descriptor connection = socket_for(there);
    TORCH_CHECK_WITH(DistBackendError,
                     connection.is_open() &&
                         connect(connection.number(), there.generic(), there.bytes) == 0 &&
                         ::send(connection.number(), &rank, sizeof rank, MSG_NOSIGNAL) == sizeof rank,
                     "rank ", rank, " cannot connect to rank ", lower, ": ", std::strerror(errno));
    send_at_once(connection);
    peers_[static_cast<size_t>(lower)] = std::move(connection);
  }
  for (int missing = size - 1 - rank; missing > 0; --missing) {
    TORCH_CHECK_WITH(DistBackendError, is_ready(listener.number(), POLLIN, deadline), "rank ", rank,
                     " waited ", timeout.count(), " ms for ", missing, " other ranks to connect");
    Descriptor connection(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    int peer = -1;
    TORCH_CHECK_WITH(DistBackendError,
                     connection.is_open() && is_ready(connection.number(), POLLIN, deadline) &&
                         recv(connection.number(), &peer, sizeof peer, MSG_WAITALL) == sizeof peer &&
                         peer > rank && peer < size,
                     "what connected to rank ", rank, " is no rank of its group");
    send_at_once(connection);
    peers_[static_cast<size_t>(peer)] = std::move(connection);
  }
}

void Mesh::run(std::vector<Transfer> transfers, Clock::time_point deadline) {
  std::vector<pollfd> asked(transfers.size());
  for (;;) {
    bool is_done = true;
    for (size_t at = 0; at < transfers.size(); ++at) {
      Transfer& each = transfers[at];
      const int connection = peers_[static_cast<size_t>(each.peer)].number();
      if (each.out_bytes > 0) {
        const ssize_t sent = ::send(connection, each.out, each.out_bytes, MSG_NOSIGNAL);
        if (sent > 0) {
          each.out += sent;
          each.out_bytes -= static_cast<size_t>(sent);
        } else if (errno != EAGAIN && errno != EINTR) {
          throw Silence{Silence::Reason::kEnded, {each.peer}};
        }
      }
      if (each.in_bytes > 0) {
        const ssize_t came = ::recv(connection, each.in, each.in_bytes, 0);
        if (came > 0) {
          each.in += came;
          each.in_bytes -= static_cast<size_t>(came);
        } else if (came == 0 || (errno != EAGAIN && errno != EINTR)) {
          throw Silence{Silence::Reason::kEnded, {each.peer}};
        }
      }
      const bool is_moved = each.out_bytes == 0 && each.in_bytes == 0;
      is_done = is_done && is_moved;
      const short wanted =
          static_cast<short>((each.in_bytes > 0 ? POLLIN : 0) | (each.out_bytes > 0 ? POLLOUT : 0));
      asked[at] = {is_moved ? -1 : connection, wanted, 0};
    }
    if (is_done) {
      return;
    }
    if (is_closed_) {
      throw Silence{Silence::Reason::kEnded, {rank_}};
    }
    if (poll(asked.data(), asked.size(), milliseconds_to(deadline)) == 0) {
      Silence silence{Silence::Reason::kLate, {}};
      for (const Transfer& each : transfers) {
        if (each.in_bytes > 0 || each.out_bytes > 0) {
          silence.ranks.push_back(each.peer);
        }
      }
      throw silence;
    }
  }
}

void Mesh::close() noexcept {
  is_closed_ = true;
  for (const Descriptor& peer : peers_) {
    if (peer.is_open()) {
      shutdown(peer.number(), SHUT_RDWR);
    }
  }
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("network_address() -> str", &network_address);
}

}  // namespace opsmith
