// Notices at once that another process of the run has ended, also while this one waits for it in a
// collective. Each process keeps a TCP connection to rank 0 until it leaves the run. The kernel closes the
// connection of a process that ends for any other reason, and rank 0 tells the others. Nothing is sent until
// then.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "core/process/process_id.hpp"
#include "plugins/nccl/launch_variables.hpp"
#include "plugins/nccl/tcp.hpp"

namespace trainhost::nccl {

class RankWatch {
 public:
  /// of_first(make): the text that rank 0 makes, on every rank. Throws abi::StatusError if rank 0 cannot
  /// listen. A rank that cannot reach rank 0 prints so and goes on: it learns of nothing.
  RankWatch(const LaunchVariables& launch,
            const std::function<std::string(const std::function<std::string()>&)>& of_first);
  /// This process leaves the run, which is no failure.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;

  /// All ranks are connected: from now on the end of a process is reported at once. Until then the host has
  /// 1.5 s to report it, which knows processes that have not come here (core/process/launch_watch.hpp).
  void set_connected() { connected_ = true; }
  /// This process has reported a failure and ends: the others end without a message.
  void report_failure();

 private:
  /// What a process sends to rank 0 first. Rank 0 gives the others its own, with the port.
  struct Hello {
    std::uint64_t token[2] = {};  // random, of the run: anybody may connect
    std::uint64_t start = 0;      // of the process: ProcessId
    std::int32_t process = 0;
    std::uint32_t rank = 0, port = 0, reserved = 0;
    char host[64] = {};
  };
  enum class Message : char { kLeaves = 'l', kFailed = 'f' };
  /// A connection; of rank 0: to every other one; of the others: to rank 0.
  struct Peer {
    Socket socket;
    Hello process;
    bool known = false, leaves = false;
    std::string arrived;
    Clock::time_point deadline = Clock::time_point::max();  // of its first message
  };
  void connect(const Hello& first);
  void watch();
  void accept_all();
  bool read(Peer& p);
  void handle_end(const Peer& p, int error);
  void send_all(Message m);
  void wake();
  bool ends_within(int limit_ms) const;
  std::string text_of_end(const Peer& p, int error) const;

  const LaunchVariables launch_;
  Hello own_;
  Socket listener_, wake_;  // listener_: of rank 0; wake_: an event that ends the thread
  std::atomic<bool> connected_{false};
  std::mutex mutex_;  // of the list and Peer::known, which only the thread changes
  std::list<Peer> peers_;
  std::thread thread_;  // declared last: it uses the other members
};

}  // namespace trainhost::nccl
