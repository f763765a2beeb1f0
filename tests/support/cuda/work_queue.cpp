// The work queues of streams, and the choice of the stream that runs next. Queued work runs only when a call
// waits. For every wait the seed of the schedule decides whether only the needed work runs, all other work
// runs first, or a random mixture.
#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "emulation_state.hpp"

namespace emu {

std::vector<CUstream_st*> every_stream() {
  std::vector<CUstream_st*> all = {&state().null_stream};
  for (auto& [handle, s] : state().streams) all.push_back(handle);
  std::sort(all.begin(), all.end(), [](auto* a, auto* b) { return a->number < b->number; });
  return all;
}

namespace {

// True if the first item of the stream can run: it is not a wait for a mark that was not reached, and no host
// function of the stream is running.
bool runnable(const CUstream_st& s) {
  if (s.busy || s.queue.empty()) return false;
  const Item& first = s.queue.front();
  return first.work != Work::kWait || first.mark->reached || (first.mark->poll && first.mark->poll());
}

// True if a stream waits for something outside this machine.
bool waits_for_others() {
  for (CUstream_st* s : every_stream())
    if (!s->queue.empty() && s->queue.front().work == Work::kWait && s->queue.front().mark->poll) return true;
  return false;
}

// Until a rank of this process has published something, or for a moment: ranks of other processes cannot
// notify. Asking again without a pause would take the processor and the mutex from the ranks that compute.
void wait_for_others(Lock& lock) { state().changed.wait_for(lock, std::chrono::microseconds(100)); }

Amount* amount_of(Statistics& s, const Item& i) {
  if (i.work == Work::kSet) return &s.sets;
  return i.name == "h2d" ? &s.h2d : i.name == "d2h" ? &s.d2h : i.name == "d2d" ? &s.d2d : &s.h2h;
}
void count(Statistics& s, const Item& i) {
  if (i.work == Work::kKernel) ++s.launches, ++s.launches_of[i.name];
  if (i.work == Work::kMatmul) ++s.matmuls, ++s.matmuls_of[i.algorithm];
  if (i.work == Work::kHost) ++s.host_functions;
  if (i.work != Work::kCopy && i.work != Work::kSet) return;
  Amount* a = amount_of(s, i);
  ++a->count, a->bytes += i.bytes;
  if (i.pageable && (a == &s.h2d || a == &s.d2h)) {
    Amount& p = a == &s.h2d ? s.pageable_h2d : s.pageable_d2h;
    ++p.count, p.bytes += i.bytes;
  }
}

// True if the item is one that fail() makes fail while it runs. Sets the sticky error: the context is broken
// from then on.
bool fails(const Item& i) {
  const char* name = i.work == Work::kKernel ? "kernel" : i.work == Work::kCopy ? "copy" : nullptr;
  if (!name) return false;
  for (Failure& f : state().failures)
    if (f.name == name && f.nth > 0 && --f.nth == 0) {
      state().sticky = static_cast<cudaError_t>(f.code);
      return true;
    }
  return false;
}

void run_host_function(Lock& lock, CUstream_st& s, const Item& i) {
  s.busy = true;
  lock.unlock();
  set_inside_host_function(true);
  i.run();
  set_inside_host_function(false);
  lock.lock();
  s.busy = false;
  --state().host_items;
  state().changed.notify_all();
}

void execute_front(Lock& lock, CUstream_st& s) {
  State& st = state();
  Item i = std::move(s.queue.front());
  s.queue.pop_front();
  double begin = std::max(s.clock_us, i.queued_us);
  if (i.work == Work::kWait) begin = std::max(begin, i.mark->clock_us);
  s.clock_us = begin + i.cost_us;
  if (i.work == Work::kRecord) i.mark->reached = true, i.mark->clock_us = s.clock_us;
  count(st.statistics, i), count(s.statistics, i);
  if (st.tracing) st.trace.push_back({i.work, i.name, s.number, i.bytes, begin, s.clock_us});
  if (i.work == Work::kHost) return run_host_function(lock, s, i);
  const std::string& only = st.machine.only_kernel;
  const bool computes = i.work == Work::kKernel || i.work == Work::kMatmul;
  if (fails(i) || !i.run || (computes && !only.empty() && i.name != only)) return;
  try {
    i.run();
  } catch (const std::exception& e) {
    st.problems.push_back(e.what());
    throw;
  }
}

enum class Preference { kNeeded, kOthersFirst, kAny };

// The stream whose work a wait for `target` needs next: follows waits to the streams of their marks.
CUstream_st* needed(const CUstream_st* target) {
  auto* s = const_cast<CUstream_st*>(target);
  while (s && !s->busy && !s->queue.empty() && !runnable(*s)) s = s->queue.front().mark->stream;
  return s && runnable(*s) ? s : nullptr;
}

CUstream_st* choose(const CUstream_st* target, Preference preference) {
  if (target && preference == Preference::kNeeded)
    if (CUstream_st* s = needed(target)) return s;
  std::vector<CUstream_st*> candidates;
  for (CUstream_st* s : every_stream())
    if (runnable(*s)) candidates.push_back(s);
  if (preference == Preference::kOthersFirst && candidates.size() > 1) std::erase(candidates, target);
  return candidates.empty() ? nullptr : candidates[state().random.below(candidates.size())];
}

bool any_busy() {
  for (CUstream_st* s : every_stream())
    if (s->busy) return true;
  return false;
}

void drop(CUstream_st& s) {
  for (const Item& i : s.queue)
    if (i.work == Work::kHost)
      --state().host_items;
    else if (i.work == Work::kRecord)
      i.mark->reached = true;
  s.queue.clear();
}

// Body of the helper thread. Host functions must run even if the host waits for them without a CUDA call, for
// example on a condition variable. To keep the schedule independent of time as far as possible, the helper
// starts only after a millisecond without any CUDA call, when the host can be assumed to wait.
void run_host_functions() {
  Lock lock(state().mutex);
  for (;;) {
    state().changed.wait(lock, [] { return state().host_items > 0; });
    for (std::uint64_t seen = ~0ull; seen != state().admitted;) {
      seen = state().admitted;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lock.lock();
    }
    try {
      drive(lock, nullptr, [] { return state().host_items == 0; });
    } catch (const std::exception& e) {
      state().pending_error = e.what();
    }
  }
}

// The null stream and streams made without cudaStreamNonBlocking wait for each other's earlier work.
void join_null_stream(CUstream_st& s) {
  auto after = [](CUstream_st& first, CUstream_st& then) {
    if (first.queue.empty() || first.capture) return;
    auto mark = std::make_shared<Mark>(Mark{&first});
    first.queue.push_back({.work = Work::kRecord, .name = "null stream", .mark = mark});
    then.queue.push_back({.work = Work::kWait, .name = "null stream", .mark = mark});
  };
  State& st = state();
  if (s.flags & cudaStreamNonBlocking) return;
  if (&s != &st.null_stream) return after(st.null_stream, s);
  for (auto& [handle, other] : st.streams)
    if (!(other->flags & cudaStreamNonBlocking)) after(*other, s);
}

}  // namespace

CUstream_st* stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &state().null_stream;
  return state().streams.contains(handle) ? handle : nullptr;
}

cudaError_t enqueue(Lock& lock, CUstream_st& s, Item item) {
  if (s.capture) return capture_item(s, std::move(item));
  join_null_stream(s);
  item.queued_us = state().host_us;
  if (item.work == Work::kHost) {
    static std::thread helper(run_host_functions);
    static bool detached = (helper.detach(), true);
    static_cast<void>(detached);
    ++state().host_items;
    state().changed.notify_all();
  }
  s.queue.push_back(std::move(item));
  return state().schedule.lazy ? cudaSuccess : drive(lock, &s, [&] { return s.queue.empty(); });
}

cudaError_t drive(Lock& lock, const CUstream_st* target, const std::function<bool()>& done) {
  State& s = state();
  const Preference preference =
      s.schedule.lazy ? static_cast<Preference>(s.random.below(3)) : Preference::kNeeded;
  while (s.sticky == cudaSuccess && !done()) {
    if (!s.pending_error.empty()) throw std::runtime_error(std::exchange(s.pending_error, {}));
    if (CUstream_st* next = choose(target, preference))
      execute_front(lock, *next);
    else if (any_busy())
      s.changed.wait(lock);
    else if (waits_for_others())
      wait_for_others(lock);
    else
      throw std::runtime_error("deadlock: the host waits for a mark that no queued work reaches");
  }
  if (s.sticky != cudaSuccess)
    for (CUstream_st* each : every_stream()) drop(*each);
  return s.sticky;
}

cudaError_t run_one_item(Lock& lock, const CUstream_st* target) {
  if (CUstream_st* next = choose(target, Preference::kAny)) execute_front(lock, *next);
  return state().sticky != cudaSuccess ? state().sticky : cudaErrorNotReady;
}

cudaError_t run_what_can_run(Lock& lock, const CUstream_st& target) {
  const auto done = [&] { return target.queue.empty() && !target.busy; };
  CUstream_st* next = nullptr;
  while (state().sticky == cudaSuccess && !done() && (next = choose(&target, Preference::kAny)))
    execute_front(lock, *next);
  if (state().sticky != cudaSuccess) return state().sticky;
  if (done()) return cudaSuccess;
  if (!any_busy() && waits_for_others()) wait_for_others(lock);
  return cudaErrorNotReady;
}

bool all_idle() {
  for (CUstream_st* s : every_stream())
    if (s->device == current_device() && (s->busy || !s->queue.empty())) return false;
  return true;
}

void destroy_all_streams(Lock& lock) {
  state().changed.wait(lock, [] { return !any_busy(); });
  for (CUstream_st* s : every_stream()) drop(*s);
  state().streams.clear();
  state().null_stream = {};
}

}  // namespace emu
