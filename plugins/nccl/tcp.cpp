// See tcp.hpp.
#include "plugins/nccl/tcp.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

namespace trainhost::nccl {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr std::chrono::minutes kUnresolved{10};

int left_ms(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1'000'000));
}

bool is_ready(int descriptor, short events, int limit_ms) {
  pollfd p{descriptor, events, 0};
  int n = 0;
  do n = ::poll(&p, 1, limit_ms);
  while (n < 0 && errno == EINTR);
  return n > 0;
}

void send_at_once(int descriptor) {
  const int yes = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

/// True if the two ends of the connection are one socket. The kernel may give a socket that connects to an
/// unused port of its own machine that same port as source port; then no server can listen there.
bool is_connected_to_itself(int descriptor) {
  sockaddr_storage own{}, other{};
  socklen_t own_size = sizeof own, other_size = sizeof other;
  return ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&other), &other_size) == 0 &&
         own_size == other_size && std::memcmp(&own, &other, own_size) == 0;
}

/// A connection to one address; nullopt with errno.
std::optional<Socket> connect_once(const addrinfo& a, Clock::time_point deadline) {
  Socket s(::socket(a.ai_family, a.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a.ai_protocol));
  if (s.descriptor() < 0) return std::nullopt;
  if (::connect(s.descriptor(), a.ai_addr, a.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return std::nullopt;
    // A host that does not answer is asked again: it may start later.
    if (!is_ready(s.descriptor(), POLLOUT, std::min(left_ms(deadline), 5000))) {
      errno = ETIMEDOUT;
      return std::nullopt;
    }
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(s.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      errno = error;
      return std::nullopt;
    }
  }
  if (is_connected_to_itself(s.descriptor())) {
    errno = ECONNREFUSED;
    return std::nullopt;
  }
  send_at_once(s.descriptor());
  return s;
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Socket::send(const void* data, std::size_t bytes, Clock::time_point deadline) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(descriptor_, at, bytes, MSG_NOSIGNAL);
    if (n > 0) {
      at += n, bytes -= static_cast<std::size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!is_ready(descriptor_, POLLOUT, left_ms(deadline))) throw ConnectionError("it does not read");
    } else if (errno != EINTR) {
      throw ConnectionError(std::strerror(errno));
    }
  }
}

void Socket::receive(void* data, std::size_t bytes, Clock::time_point deadline) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(descriptor_, at, bytes, 0);
    if (n > 0) {
      at += n, bytes -= static_cast<std::size_t>(n);
    } else if (n == 0) {
      throw ConnectionError("it closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!is_ready(descriptor_, POLLIN, left_ms(deadline))) throw ConnectionError("it does not answer");
    } else if (errno != EINTR) {
      throw ConnectionError(std::strerror(errno));
    }
  }
}

std::string Socket::receive_text(std::uint64_t most, Clock::time_point deadline) {
  constexpr std::uint64_t kPart = 64 << 10;
  std::uint64_t size = 0;
  receive(&size, sizeof size, deadline);
  if (size > most) throw ConnectionError("it sends a text that is too long");
  std::string text;
  while (text.size() < size) {
    const std::uint64_t at = text.size();
    text.resize(std::min(size, at + kPart));
    receive(text.data() + at, text.size() - at, deadline);
  }
  return text;
}

Socket connect_to(const std::string& host, std::uint16_t port, Clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC, hints.ai_socktype = SOCK_STREAM;
  std::string why;
  // A name may be known later: of a machine that starts, in the name service of a cluster. Without a deadline
  // a wrong name is one after a while.
  const auto unresolved = std::min(deadline, Clock::now() + kUnresolved);
  for (Milliseconds pause{20};; pause = std::min(2 * pause, Milliseconds{500})) {
    addrinfo* found = nullptr;
    const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
    if (failed != 0) {
      why = "'" + host + "' cannot be resolved: " + ::gai_strerror(failed);
      const bool later =
          failed == EAI_AGAIN || failed == EAI_NONAME || failed == EAI_NODATA || failed == EAI_FAIL;
      if (!later || Clock::now() + pause >= unresolved) throw ConnectionError(why);
    }
    for (const addrinfo* a = all.get(); a; a = a->ai_next) {
      if (std::optional<Socket> s = connect_once(*a, deadline)) return std::move(*s);
      why = std::strerror(errno);
    }
    if (Clock::now() + pause >= deadline) throw ConnectionError(why);
    std::this_thread::sleep_for(pause);
  }
}

Socket listen_at(std::uint16_t port) {
  const int yes = 1, no = 0;
  Socket s(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const bool both = s.descriptor() >= 0;  // IPv4 too; a kernel may lack IPv6
  if (!both) s = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (s.descriptor() < 0) throw ConnectionError(std::strerror(errno));
  ::setsockopt(s.descriptor(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  int bound = -1;
  if (both) {
    ::setsockopt(s.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6, any.sin6_port = htons(port);
    bound = ::bind(s.descriptor(), reinterpret_cast<const sockaddr*>(&any), sizeof any);
  } else {
    sockaddr_in any{};
    any.sin_family = AF_INET, any.sin_port = htons(port);
    bound = ::bind(s.descriptor(), reinterpret_cast<const sockaddr*>(&any), sizeof any);
  }
  if (bound != 0 || ::listen(s.descriptor(), 1024) != 0) throw ConnectionError(std::strerror(errno));
  return s;
}

std::optional<Socket> accept_from(const Socket& listener, Milliseconds limit) {
  if (!is_ready(listener.descriptor(), POLLIN, static_cast<int>(limit.count()))) return std::nullopt;
  const int descriptor = ::accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  send_at_once(descriptor);
  return Socket(descriptor);
}

std::uint16_t port_of(const Socket& listener) {
  sockaddr_storage a{};
  socklen_t size = sizeof a;
  if (::getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&a), &size) != 0)
    throw ConnectionError(std::strerror(errno));
  return ntohs(a.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(a).sin6_port
                                       : reinterpret_cast<const sockaddr_in&>(a).sin_port);
}

void notice_lost_machine(const Socket& connection) {
  const int yes = 1, idle_s = 10, pause_s = 5, questions = 4;
  const int s = connection.descriptor();
  ::setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  ::setsockopt(s, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(s, IPPROTO_TCP, TCP_KEEPINTVL, &pause_s, sizeof pause_s);
  ::setsockopt(s, IPPROTO_TCP, TCP_KEEPCNT, &questions, sizeof questions);
}

void raise_limit_of_files(std::size_t connections, std::size_t ranks) {
  constexpr std::size_t kOtherFiles = 256, kFewest = 16;
  rlimit limit{};
  const rlim_t wanted = connections + kOtherFiles;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  const rlim_t most = limit.rlim_max;
  limit.rlim_cur = std::min(wanted, most);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0 || most < connections + kFewest)
    throw ConnectionError("it needs " + std::to_string(wanted) + " open files for " + std::to_string(ranks) +
                          " ranks, but the hard limit is " + std::to_string(most) +
                          "; raise it on this host (ulimit -Hn, LimitNOFILE of systemd, docker --ulimit "
                          "nofile=" +
                          std::to_string(wanted) + ")");
}

}  // namespace trainhost::nccl
