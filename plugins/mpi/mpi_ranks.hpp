// Collective operations by point-to-point messages of MPI, executed one after the other by a thread of its
// own, so that they go on while the caller computes. That thread makes every call of MPI, from
// MPI_Init_thread() to MPI_Finalize(); MPI_THREAD_FUNNELED is enough.
#pragma once
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "plugins/mpi/local_processes.hpp"
#include "trainhost/communicator.h"

namespace trainhost::mpi {

/// "Open MPI 4.1.4"
std::string library_name();

class Ranks {
 public:
  /// Connects the processes. timeout_ms: 0 = waits for other ranks without end. launched_rank: the number of
  /// this process according to its launcher. Throws abi::StatusError (TH_E_UNAVAILABLE). Ends the process if
  /// the others do not come in time: MPI_Init_thread() cannot be left.
  Ranks(std::uint64_t timeout_ms, std::uint32_t launched_rank);
  ~Ranks();  // all ranks together, unless an operation failed; ends the process if they do not come in time
  Ranks(const Ranks&) = delete;

  std::uint32_t rank() const { return rank_; }
  std::uint32_t ranks() const { return ranks_; }
  std::uint32_t local_rank() const { return local_rank_; }
  std::uint32_t local_ranks() const { return local_ranks_; }

  /// Throws abi::StatusError: TH_E_ARG for an operation that is not one of th_collective; TH_E_IO after a
  /// failure.
  std::uint64_t start(const th_collective& c);
  void wait(std::uint64_t ticket);
  [[noreturn]] void abort(std::int32_t code);

 private:
  void work();
  void connect();
  void execute(const th_collective& c);
  void reduce_scatter(const th_collective& c, std::uint64_t size);
  void all_gather(const th_collective& c, std::uint64_t size);
  void broadcast(const th_collective& c, std::uint64_t size);
  void meet(const char* before);
  void send(std::uint32_t to, const void* data, std::uint64_t bytes);
  void receive(std::uint32_t from, void* data, std::uint64_t bytes);
  void finish_messages();
  /// After a timeout a rank asks the others whether they wait too. `number`: of the question
  /// of a rank, so that an answer to an earlier one is recognised.
  struct Question {
    std::uint64_t number;
    bool answer;
  };
  void send_question(std::uint32_t to, const Question& q);
  std::vector<bool> answer_questions(std::uint64_t number);
  std::vector<bool> ranks_that_wait();
  void wait_or_end_process(std::unique_lock<std::mutex>& lock, const bool& done, const char* in);
  void wait_for_worker(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done);
  std::string ended_rank() const;
  [[noreturn]] void print_and_exit(const std::string& why);

  const std::uint64_t timeout_ms_;
  const std::uint32_t launched_rank_;
  std::uint32_t rank_ = 0, ranks_ = 1, local_rank_ = 0, local_ranks_ = 1;

  // Messages of the current part of an operation, with the rank at the other end.
  std::vector<MPI_Request> messages_;
  std::vector<std::uint32_t> peers_;
  LocalRanks local_;
  bool lost_ = false;  // the worker has seen that a rank of this machine has ended
  std::atomic<const char*> running_{""};
  std::deque<Question> questions_;   // sent; a deque does not move them
  std::uint64_t last_question_ = 0;  // of this rank

  std::mutex mutex_;
  std::condition_variable started_, finished_;
  std::deque<th_collective> queue_;
  std::uint64_t last_ticket_ = 0, done_ticket_ = 0;  // of operations that were started and that are complete
  std::string failure_;                              // of an operation; then none is executed any more
  bool connected_ = false, ends_ = false;
  // Of the worker: connect() has returned; the queue is empty and nothing is added; it makes no more calls.
  bool left_connect_ = false, left_queue_ = false, ended_ = false;
  std::atomic<bool> awaited_{false};     // a caller is in wait()
  std::atomic<std::int32_t> abort_{-1};  // >= 0: all processes are to end with this code
  // When the worker was last seen outside the library, in ms of a steady clock: it may not return from a
  // call, for example if a process has died while it wrote to shared memory.
  std::atomic<std::int64_t> seen_ms_{0};
  std::thread worker_;  // declared last: it uses the other members
};

}  // namespace trainhost::mpi
