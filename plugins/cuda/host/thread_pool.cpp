// A mutex protects the task counter: tasks process a megabyte or more each, so taking a lock per task costs
// nothing in comparison. The CPU trainer has tasks of microseconds and a pool without locks
// (plugins/cpu/engine/thread_pool.cpp). See thread_pool.hpp.
#include "plugins/cuda/host/thread_pool.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <system_error>

namespace trainhost::cuda {

ThreadPool::ThreadPool(std::uint32_t threads) {
  // Threads inherit the signal mask: signals are delivered to threads of the host program, not to workers.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (std::uint32_t i = 1; i < std::max(threads, 1u); ++i)
      workers_.emplace_back([this] { worker_main(); });
  } catch (const std::system_error&) {
    // The system allows no more threads. Each task goes to the next free thread, so results do not depend on
    // the number of threads.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& t : workers_) t.join();
}

/// Runs tasks of the current job until all have been started. Releases the lock while a task runs.
void ThreadPool::run_tasks(std::unique_lock<std::mutex>& lock) {
  while (job_ && next_ < tasks_) {
    const std::uint32_t task = next_++;
    const auto& f = *job_;  // valid while a task of the job is unfinished: run() returns after that
    lock.unlock();
    f(task);
    lock.lock();
    if (--unfinished_ == 0) done_.notify_all();
  }
}

void ThreadPool::worker_main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || (job_ && next_ < tasks_); });
    if (stop_) return;
    run_tasks(lock);
  }
}

void ThreadPool::run(std::uint32_t tasks, const std::function<void(std::uint32_t)>& f) {
  if (tasks == 0) return;
  std::lock_guard one_job(job_mutex_);
  if (tasks == 1 || workers_.empty()) {
    for (std::uint32_t i = 0; i < tasks; ++i) f(i);
    return;
  }
  std::unique_lock lock(mutex_);
  job_ = &f, next_ = 0, tasks_ = unfinished_ = tasks;
  wake_.notify_all();
  run_tasks(lock);
  done_.wait(lock, [&] { return unfinished_ == 0; });
  job_ = nullptr;
}

}  // namespace trainhost::cuda
