// Distribution of tasks without locks, and sleeping and waking of workers with futexes. Why a worker that
// wakes up late cannot run a task of the wrong job is explained at run_erased(). See thread_pool.hpp.
#include "plugins/cpu/engine/thread_pool.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>

#include "core/process/cpu_topology.hpp"

namespace trainhost::cpu {
namespace {

// About 20 us on current machines: longer than the time between two operations of a step.
constexpr int kSpins = 600;

void relax() { __builtin_ia32_pause(); }

/// Binds the calling thread; only advice: a failure has no effect.
void stay_on(const std::vector<std::uint32_t>& cpus) {
  if (cpus.empty()) return;
  const std::size_t most = *std::max_element(cpus.begin(), cpus.end()) + std::size_t{1};
  cpu_set_t* set = CPU_ALLOC(most);
  if (!set) return;
  const std::size_t bytes = CPU_ALLOC_SIZE(most);
  CPU_ZERO_S(bytes, set);
  for (const std::uint32_t cpu : cpus) CPU_SET_S(cpu, bytes, set);
  ::sched_setaffinity(0, bytes, set);
  CPU_FREE(set);
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr,
          0);
}

}  // namespace

ThreadPool::ThreadPool(std::uint32_t threads, const std::vector<std::vector<std::uint32_t>>& cpus)
    : threads_(threads ? threads : 1), shares_(new Share[threads_]) {
  // Signals are delivered to the host's threads, not to workers.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (std::uint32_t w = 1; w < threads_; ++w)
      workers_.emplace_back([this, w, own = w < cpus.size() ? cpus[w] : std::vector<std::uint32_t>{}] {
        stay_on(own);
        worker_main(w);
      });
  } catch (...) {  // a thread could not be created: join those that were
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    stop_ = true;
    job_.fetch_add(1);
    futex_wake_all(job_);
    for (std::thread& t : workers_) t.join();
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  job_.fetch_add(1);
  futex_wake_all(job_);
  for (std::thread& t : workers_) t.join();
}

// A worker may wake late with the number of an older job. Its claim then fails, because the claim compares
// the job number in the word, and the fields that it has read are not used. The fields are stored before the
// words that allow claims, and all claims are finished before the fields of the next job are written.
void ThreadPool::run_erased(std::uint32_t tasks, Call call, void* context) {
  if (threads_ == 1 || tasks <= 1) {
    for (std::uint32_t t = 0; t < tasks; ++t) call(context, t, 0);
    return;
  }
  const std::uint32_t job = job_.load(std::memory_order_relaxed) + 1, claims = std::min(tasks, kMaxClaims);
  call_.store(call, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  tasks_.store(tasks, std::memory_order_relaxed);
  claims_.store(claims, std::memory_order_relaxed);
  unfinished_.store(claims, std::memory_order_relaxed);
  // Worker w gets the w-th contiguous range of claims. The release store publishes the fields above.
  for (std::uint32_t w = 0; w < threads_; ++w) {
    std::uint64_t begin = std::uint64_t{claims} * w / threads_,
                  end = std::uint64_t{claims} * (w + 1) / threads_;
    shares_[w].word.store(std::uint64_t{job} << 32 | end << 16 | begin, std::memory_order_release);
  }
  // Sequentially consistent with wait_for_job(): either this thread sees the sleeper, or the sleeper sees the
  // new job.
  job_.store(job, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake_all(job_);
  std::uint32_t done = run_claims(0, job);  // the caller is worker 0
  if (done && unfinished_.fetch_sub(done, std::memory_order_acq_rel) == done) return;
  for (int spin = 0; spin < kSpins; ++spin) {
    if (unfinished_.load(std::memory_order_acquire) == 0) return;
    relax();
  }
  while (std::uint32_t left = unfinished_.load(std::memory_order_acquire)) futex_wait(unfinished_, left);
}

// Runs the claims of the worker's own range, then remaining claims of the other ranges, starting with the
// next worker's. Returns the number of claims that it ran.
std::uint32_t ThreadPool::run_claims(std::uint32_t worker, std::uint32_t job) {
  std::uint32_t done = 0;
  for (std::uint32_t i = 0; i < threads_; ++i) {
    std::atomic<std::uint64_t>& word = shares_[(worker + i) % threads_].word;
    std::uint64_t seen = word.load(std::memory_order_acquire);
    // The fields are read after the word with this job's number; they belong to this job if the claim
    // succeeds.
    while (seen >> 32 == job && (seen & 0xffff) < (seen >> 16 & 0xffff)) {
      Call call = call_.load(std::memory_order_relaxed);
      void* context = context_.load(std::memory_order_relaxed);
      std::uint64_t tasks = tasks_.load(std::memory_order_relaxed),
                    claims = claims_.load(std::memory_order_relaxed);
      if (!word.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      std::uint64_t claim = seen & 0xffff;
      for (std::uint64_t t = claim * tasks / claims, end = (claim + 1) * tasks / claims; t < end; ++t)
        call(context, static_cast<std::uint32_t>(t), worker);
      ++done;
      seen = word.load(std::memory_order_acquire);
    }
  }
  return done;
}

// Returns false if the pool ends. stop_ is checked first: a late worker may already have seen the job number
// that the destructor set, after which there is no other one. stop_ is set before that number, so a worker
// that sees the number also sees stop_.
bool ThreadPool::wait_for_job(std::uint32_t seen) {
  if (stop_) return false;
  for (int spin = 0; spin < kSpins; ++spin) {
    if (job_.load(std::memory_order_acquire) != seen) return !stop_;
    relax();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (job_.load(std::memory_order_seq_cst) == seen) futex_wait(job_, seen);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return !stop_;
}

void ThreadPool::worker_main(std::uint32_t worker) {
  FlushDenormals mode;
  std::uint32_t seen = 0;
  while (wait_for_job(seen)) {
    seen = job_.load(std::memory_order_acquire);
    std::uint32_t done = run_claims(worker, seen);
    if (done && unfinished_.fetch_sub(done, std::memory_order_acq_rel) == done) futex_wake_all(unfinished_);
  }
}

void divide_pages(ThreadPool& pool, void* at, std::uint64_t bytes) {
  constexpr std::uint64_t kHuge = 2u << 20, kPage = 4096;
  volatile std::byte* const first = static_cast<std::byte*>(at);
  pool.run(static_cast<std::uint32_t>((bytes + kHuge - 1) / kHuge), [&](std::uint32_t piece, std::uint32_t) {
    const std::uint64_t begin = piece * kHuge, end = std::min(bytes, begin + kHuge);
    for (std::uint64_t i = begin; i < end; i += kPage) first[i] = std::byte{0};
  });
}

}  // namespace trainhost::cpu
