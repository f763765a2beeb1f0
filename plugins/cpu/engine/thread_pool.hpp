// Thread pool of the CPU trainer, for jobs of a few microseconds. A job is a number of independent tasks;
// each task runs once, on any thread, so its result may depend only on its number. Lock-free while a job
// runs; no allocation after construction. Between jobs the workers spin for about 20 us and then sleep on a
// futex.
#pragma once
#include <xmmintrin.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace trainhost::cpu {

/// Sets flush-to-zero and denormals-are-zero for the calling thread: an operation with a denormal takes
/// hundreds of cycles, and training does not need them. The destructor restores the previous mode. Workers
/// keep the mode; the thread of the caller has it during a call only.
class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) {
    _mm_setcsr((before_ & ~0x3fu) | 0x8040u);  // clears exception flags; FTZ | DAZ
  }
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;

 private:
  unsigned before_;
};

class ThreadPool {
 public:
  /// `threads` includes the calling thread; 0 is treated as 1. Throws std::system_error if a thread cannot be
  /// created. cpus: those that each worker stays on; empty: any. The calling thread is worker 0 and is not
  /// bound: other threads that it creates would inherit that.
  explicit ThreadPool(std::uint32_t threads, const std::vector<std::vector<std::uint32_t>>& cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  std::uint32_t threads() const { return threads_; }

  /// Runs f(task, worker) for every task in [0, tasks) and returns when all are done; worker < threads(). One
  /// job at a time; f must not throw and must not call run(). Neighbouring tasks go to the same worker if
  /// possible, and the same task of the next job to the same worker, so that rows stay in one core's cache.
  template <class F>
  void run(std::uint32_t tasks, F&& f) {
    using Fn = std::remove_reference_t<F>;
    run_erased(
        tasks,
        [](void* c, std::uint32_t task, std::uint32_t worker) { (*static_cast<Fn*>(c))(task, worker); },
        const_cast<std::remove_const_t<Fn>*>(std::addressof(f)));
  }

 private:
  using Call = void (*)(void*, std::uint32_t, std::uint32_t);
  // The range of claims that belongs to one worker: job << 32 | end << 16 | next. All three are in one word,
  // so that a claim of an older job never succeeds. A claim is one task, or several neighbouring tasks if
  // there are more than kMaxClaims.
  struct alignas(64) Share {  // one cache line: workers mostly change their own
    std::atomic<std::uint64_t> word{0};
  };
  static constexpr std::uint32_t kMaxClaims = 0xffff;
  void run_erased(std::uint32_t tasks, Call call, void* context);
  void worker_main(std::uint32_t worker);
  std::uint32_t run_claims(std::uint32_t worker, std::uint32_t job);
  bool wait_for_job(std::uint32_t seen);

  const std::uint32_t threads_;
  std::unique_ptr<Share[]> shares_;
  alignas(64) std::atomic<std::uint32_t> job_{
      0};  // number of the newest job; the futex on which workers sleep
  std::atomic<Call> call_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<std::uint32_t> tasks_{0}, claims_{0};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};  // claims of the job that are not finished
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
  std::vector<std::thread> workers_;
};

/// Writes 0 into every page of memory that is all zeros and was not written before; each worker in a
/// contiguous part, so that the pages are divided among the NUMA nodes of the workers.
void divide_pages(ThreadPool& pool, void* at, std::uint64_t bytes);

}  // namespace trainhost::cpu
