// CPU threads of the CUDA trainer, for operations that the hybrid and streamed modes run on the host. A job
// is a number of independent tasks; a task may depend only on its number, not on the thread, so that results
// do not depend on the number of threads. Between jobs the threads sleep on a condition variable. The CPU
// trainer has its own pool with lower latency (plugins/cpu/engine/thread_pool.hpp).
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace trainhost::cuda {

class ThreadPool {
 public:
  /// `threads` includes the calling thread; 0 is treated as 1.
  explicit ThreadPool(std::uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  std::uint32_t threads() const { return static_cast<std::uint32_t>(workers_.size()) + 1; }

  /// Runs f(task) for every task in [0, tasks) and returns when all are done. Thread-safe: jobs of several
  /// callers (the host's thread and the CUDA driver's callback thread) run one after the other. f must not
  /// throw and must not call run().
  void run(std::uint32_t tasks, const std::function<void(std::uint32_t)>& f);

 private:
  void worker_main();
  void run_tasks(std::unique_lock<std::mutex>& lock);

  std::mutex job_mutex_;  // held by run(): one job at a time
  std::mutex mutex_;      // protects the fields below
  std::condition_variable wake_, done_;
  const std::function<void(std::uint32_t)>* job_ = nullptr;  // null between jobs
  std::uint32_t next_ = 0, tasks_ = 0, unfinished_ = 0;  // next task to start; tasks of the job; not yet done
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace trainhost::cuda
