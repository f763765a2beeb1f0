// CPU threads of the CUDA trainer, for operations that the hybrid and streamed modes run on the host. A job
// is a number of independent tasks; a task may depend only on its number, not on the thread, so that results
// do not depend on the number of threads. Between jobs the threads watch for the next one for 300 us, which
// is longer than the driver takes from one piece of the logits to the next, and then sleep. The CPU trainer
// has its own pool, whose tasks keep their threads (plugins/cpu/engine/thread_pool.hpp).
#pragma once
#include <atomic>
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
  void run_tasks(std::uint32_t job);

  std::mutex job_mutex_;  // held by run(): one job at a time
  std::atomic<const std::function<void(std::uint32_t)>*> function_{nullptr};
  std::atomic<std::uint32_t> tasks_{0};
  // Number of the job in the upper half, tasks that were not started in the lower half. In one word, so that
  // a thread that is late cannot start a task of another job.
  alignas(64) std::atomic<std::uint64_t> left_{0};
  alignas(64) std::atomic<std::uint32_t> job_{0};  // number of the newest job; threads sleep on it
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace trainhost::cuda
