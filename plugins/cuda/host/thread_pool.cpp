// Tasks are started by an atomic counter and jobs announced by another one: threads that wake up do not wait
// for each other, as they would for the mutex of a condition variable. See thread_pool.hpp.
#include "plugins/cuda/host/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <system_error>

namespace trainhost::cuda {
namespace {

/// Returns when `value` is no longer `seen`, after some time asleep. Yields meanwhile: the processor may be
/// needed by the thread that is waited for.
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t seen) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < 200; ++i) {
    if (value.load(std::memory_order_acquire) != seen) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  for (const Clock::time_point end = Clock::now() + std::chrono::microseconds(300); Clock::now() < end;) {
    if (value.load(std::memory_order_acquire) != seen) return;
    sched_yield();
  }
  value.wait(seen, std::memory_order_acquire);
}

}  // namespace

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
  stop_ = true;
  ++job_;
  job_.notify_all();
  for (std::thread& t : workers_) t.join();
}

/// Runs tasks of this job until all have been started. A thread that is late finds no task left, or the
/// number of another job. Once a task was taken, the job cannot end before it is finished, so the other
/// fields belong to it.
void ThreadPool::run_tasks(std::uint32_t job) {
  std::uint64_t left = left_.load(std::memory_order_acquire);
  while (left >> 32 == job && static_cast<std::uint32_t>(left) != 0) {
    if (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    const auto& f = *function_.load(std::memory_order_relaxed);
    f(tasks_.load(std::memory_order_relaxed) - static_cast<std::uint32_t>(left));
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_all();
    left = left_.load(std::memory_order_acquire);
  }
}

void ThreadPool::worker_main() {
  for (std::uint32_t seen = 0;;) {
    wait_while(job_, seen);
    seen = job_.load(std::memory_order_acquire);
    if (stop_) return;
    run_tasks(seen);
  }
}

void ThreadPool::run(std::uint32_t tasks, const std::function<void(std::uint32_t)>& f) {
  if (tasks == 0) return;
  std::lock_guard one_job(job_mutex_);
  if (tasks == 1 || workers_.empty()) {
    for (std::uint32_t i = 0; i < tasks; ++i) f(i);
    return;
  }
  const std::uint32_t job = job_.load(std::memory_order_relaxed) + 1;
  function_.store(&f, std::memory_order_relaxed);
  tasks_.store(tasks, std::memory_order_relaxed);
  unfinished_.store(tasks, std::memory_order_relaxed);
  left_.store(std::uint64_t{job} << 32 | tasks, std::memory_order_release);
  job_.store(job);  // sequentially consistent: notify_all() must see threads that sleep
  job_.notify_all();
  run_tasks(job);
  while (const std::uint32_t left = unfinished_.load(std::memory_order_acquire))
    wait_while(unfinished_, left);
}

}  // namespace trainhost::cuda
