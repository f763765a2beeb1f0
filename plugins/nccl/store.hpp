// A key-value store at MASTER_ADDR:MASTER_PORT, by which the processes of a run exchange a few bytes before
// NCCL connects them. Under torchrun it is torchrun's own, which holds that port; under other launchers rank
// 0 serves one. The messages are those of PyTorch's TCPStore, little-endian; a text is its size (u64) and
// bytes:
//
//   0 VALIDATE  u32 0x3C85F7CE                     no answer; the first message of a connection
//   1 SET       key, value                         no answer
//   3 GET       key                                value; only of a key that exists
//   4 ADD       key, i64                           i64: the sum; a key that does not exist is 0
//   5 CHECK     u64 number of keys, keys           u8: 0 if all exist, else 1
#pragma once
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "plugins/nccl/tcp.hpp"

namespace trainhost::nccl {

enum class StoreQuery : std::uint8_t { kValidate = 0, kSet = 1, kGet = 3, kAdd = 4, kCheck = 5 };
inline constexpr std::uint32_t kStoreMagic = 0x3C85F7CE;

/// A connection to a store. An answer that does not come within 20 s is a ConnectionError: something else
/// than a store listens there, or its process hangs.
class StoreClient {
 public:
  /// Throws ConnectionError if the store cannot be reached before the deadline.
  StoreClient(const std::string& host, std::uint16_t port, Clock::time_point deadline);

  void set(const std::string& key, const std::string& value);
  std::string get(const std::string& key);
  std::int64_t add(const std::string& key, std::int64_t value);
  bool has(const std::vector<std::string>& keys);

 private:
  void send(const std::string& message);
  template <class T>
  T number();

  Socket socket_;
};

/// Serves a store until it is destroyed. A connection that sends something else is closed.
class StoreServer {
 public:
  /// Throws ConnectionError if nothing can listen at the port.
  explicit StoreServer(std::uint16_t port);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;

  /// Returns when `expected` processes of the run have connected and all of them have closed their
  /// connections, or after the limit. Other connections do not count.
  void wait_for_the_others(std::size_t expected, std::chrono::milliseconds limit);

 private:
  void accept_connections();
  void serve(Socket& socket);
  void answer(Socket& socket, Clock::time_point deadline);

  Socket listener_;
  std::atomic<bool> ends_{false};
  std::atomic<std::size_t> known_{0}, open_{0};  // connections of processes of the run
  std::mutex mutex_;                             // of values_, and of closing sockets of connections_
  std::map<std::string, std::string> values_;
  struct Connection {
    Socket socket;
    std::thread thread;
  };
  std::list<Connection> connections_;  // of acceptor_ until it has ended
  std::thread acceptor_;
};

}  // namespace trainhost::nccl
