// See thread_pool.hpp. Tasks are large (a megabyte and more), so one lock for each is cheap.
#include "plugins/cuda/host/thread_pool.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>

namespace trainhost::cuda {

ThreadPool::ThreadPool(std::uint32_t threads) {
  // Signals are the host program's: none is delivered to these threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (std::uint32_t i = 1; i < std::max(threads, 1u); ++i) others_.emplace_back([this] { work(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& t : others_) t.join();
}

void ThreadPool::take(std::unique_lock<std::mutex>& lock) {
  while (job_ && next_ < tasks_) {
    const std::uint32_t task = next_++;
    const auto& f = *job_;
    lock.unlock();
    f(task);
    lock.lock();
    if (--left_ == 0) done_.notify_all();
  }
}

void ThreadPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || (job_ && next_ < tasks_); });
    if (stop_) return;
    take(lock);
  }
}

void ThreadPool::run(std::uint32_t tasks, const std::function<void(std::uint32_t)>& f) {
  if (tasks == 0) return;
  std::lock_guard turn(turn_);
  if (tasks == 1 || others_.empty()) {
    for (std::uint32_t i = 0; i < tasks; ++i) f(i);
    return;
  }
  std::unique_lock lock(mutex_);
  job_ = &f, next_ = 0, tasks_ = left_ = tasks;
  wake_.notify_all();
  take(lock);
  done_.wait(lock, [&] { return left_ == 0; });
  job_ = nullptr;
}

}  // namespace trainhost::cuda
