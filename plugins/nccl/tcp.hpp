// TCP connections with a deadline for every operation.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace trainhost::nccl {

using Clock = std::chrono::steady_clock;

struct ConnectionError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  int descriptor() const { return descriptor_; }
  /// Throw ConnectionError at the deadline, or if the connection ends.
  void send(const void* data, std::size_t bytes, Clock::time_point deadline);
  void receive(void* data, std::size_t bytes, Clock::time_point deadline);
  /// A size (u64) and as many bytes, at most `most`. Takes memory as they arrive, since anybody may connect.
  std::string receive_text(std::uint64_t most, Clock::time_point deadline);

 private:
  int descriptor_ = -1;
};

/// Tries every address of the host, again and again until the deadline: the process that listens may start
/// later, and the name may be known later. Throws ConnectionError with the last reason.
Socket connect_to(const std::string& host, std::uint16_t port, Clock::time_point deadline);

/// Listens on all addresses of this machine; at port 0: at one that is free. Throws ConnectionError.
Socket listen_at(std::uint16_t port);
/// The port of a socket that listens.
std::uint16_t port_of(const Socket& listener);

/// The next connection; nullopt if none comes within `limit`.
std::optional<Socket> accept_from(const Socket& listener, std::chrono::milliseconds limit);

/// Makes a connection on which nothing is sent an error (ETIMEDOUT) if the other machine does not answer for
/// 30 s. A process there that is stopped is no error, because its kernel answers.
void notice_lost_machine(const Socket& connection);

/// Lets this process have as many open files as connections, and some more. Throws ConnectionError, with the
/// number of ranks, if the machine lets it have too few.
void raise_limit_of_files(std::size_t connections, std::size_t ranks);

}  // namespace trainhost::nccl
