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

/// Serves a store until it is destroyed, from one thread, whatever the number of connections. A connection
/// that sends something else is closed.
class StoreServer {
 public:
  /// connections: as many as are expected; the limit of open files of this process is raised for them, as far
  /// as the machine lets it. Throws ConnectionError if nothing can listen at the port, or if the machine lets
  /// a process have too few open files.
  explicit StoreServer(std::uint16_t port, std::size_t connections = 0);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;

  /// Returns when `expected` processes of the run have connected and all of them have closed their
  /// connections, or after the limit. Other connections do not count.
  void wait_for_the_others(std::size_t expected, std::chrono::milliseconds limit);

 private:
  /// A connection, with what has arrived of its next message and what it has not read yet of its answers.
  struct Connection {
    Socket socket;
    bool known = false;  // it has said that it is a process of the run
    std::string arrived, answers;
    std::size_t needed = 1;      // bytes of `arrived` before the next message can be complete
    Clock::time_point deadline;  // of a message that has begun, or of answers that are not read
  };
  void serve();
  void accept_all();
  void exchange(Connection& c, short events);
  void read(Connection& c);
  void answer(Connection& c);
  std::size_t answer_first(Connection& c);
  void close(Connection& c);

  Socket listener_, wake_;  // wake_: an event that ends the thread
  std::atomic<bool> ends_{false};
  std::atomic<std::size_t> known_{0}, open_{0};  // connections of processes of the run
  // Of the thread.
  std::map<std::string, std::string> values_;
  std::list<Connection> connections_;
  std::thread thread_;  // declared last: it uses the other members
};

}  // namespace trainhost::nccl
