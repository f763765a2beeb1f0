// The host's threads of the CUDA trainer: for the work that hybrid and streamed leave to the host. A job is a
// number of independent tasks; a task depends on its number alone, never on the thread. Between jobs the
// threads sleep.
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
  /// `threads` in all, the calling thread included; at least 1.
  explicit ThreadPool(std::uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  std::uint32_t threads() const { return static_cast<std::uint32_t>(others_.size()) + 1; }

  /// Runs f(task) for every task in [0, tasks) and returns when all are done. Several threads may call it:
  /// their jobs take turns. f must not throw.
  void run(std::uint32_t tasks, const std::function<void(std::uint32_t)>& f);

 private:
  void work();
  void take(std::unique_lock<std::mutex>& lock);

  std::mutex turn_;  // one job at a time
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(std::uint32_t)>* job_ = nullptr;
  std::uint32_t next_ = 0, tasks_ = 0, left_ = 0;
  bool stop_ = false;
  std::vector<std::thread> others_;
};

}  // namespace trainhost::cuda
