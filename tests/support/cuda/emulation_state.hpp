// State of the emulated machine: streams are queues of work, events are marks in them, allocations are stored
// by address. One mutex protects everything; call() locks it, and functions with a Lock parameter expect it
// locked. Kernels run with the mutex locked, host functions without.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda_runtime.h"
#include "emu.hpp"
#include "random.hpp"

struct Capture;

/// A position in a stream, reached when all work before it has finished.
struct Mark {
  CUstream_st* stream;  // not destroyed before the mark is reached; null with `poll`
  bool reached = false;
  double clock_us = 0;
  std::function<bool()>
      poll{};  // reached when it returns true: another process has done its part (fake_nccl.cpp)
};

/// A unit of queued work. A graph queues copies of its items at every launch.
struct Item {
  emu::Work work{};
  std::string name, algorithm{};  // algorithm: of kMatmul
  std::uint64_t bytes = 0;
  double cost_us = 0;
  std::function<void()> run{};
  std::shared_ptr<Mark> mark{};  // of kRecord and kWait
  bool pageable = false;
  double queued_us = 0;
};

/// Dependencies of a captured stream or event: for each stream, the number of its items that come before.
using Past = std::map<const CUstream_st*, std::size_t>;

struct CUstream_st {
  unsigned number = 0, flags = 0;
  int device = 0;
  std::deque<Item> queue;
  bool busy = false;  // one of its host functions is running, with the mutex unlocked
  double clock_us = 0;
  emu::Statistics statistics;
  std::shared_ptr<Capture> capture;  // null if it is not being captured
  Past past;
};
struct CUevent_st {
  unsigned flags = 0;
  std::shared_ptr<Mark> mark;        // of the last record; null before
  std::shared_ptr<Capture> capture;  // when that record was captured
  Past past;
};
struct CUgraph_st {
  std::vector<Item> items;
  std::vector<std::vector<std::size_t>>
      after;  // by item: items that must finish before it, all with smaller index
};
struct CUgraphExec_st {
  CUgraph_st graph;
};
struct Capture {
  CUstream_st* origin;
  std::thread::id thread;
  bool any_thread = false;  // global mode: unsafe calls of all threads are rejected
  bool invalid = false;
  std::vector<Item> items;
  std::vector<const CUstream_st*> stream_of;  // by item
  std::vector<Past> past_of;                  // by item: dependencies
  std::set<CUstream_st*> streams;
};

namespace emu {

using Lock = std::unique_lock<std::mutex>;

struct Failure {
  std::string name;
  std::uint64_t nth;
  int code;
  bool sticky;
};
struct Block {
  std::uint64_t bytes, allocated_bytes;  // requested; rounded up to the allocation unit
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;  // a host function returned, work was queued, or a rank published
  Machine machine;
  Schedule schedule;
  Costs costs;
  Random random{1};

  CUstream_st null_stream;
  std::map<CUstream_st*, std::unique_ptr<CUstream_st>> streams;
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events;
  std::map<CUgraph_st*, std::unique_ptr<CUgraph_st>> graphs;
  std::map<CUgraphExec_st*, std::unique_ptr<CUgraphExec_st>> execs;
  std::vector<std::shared_ptr<Capture>> captures;
  std::map<std::uintptr_t, Block> device, pinned;  // by address
  std::set<std::uint64_t> loaded;  // kernels and algorithms of cublasLt whose code is on the device
  std::map<const void*, std::size_t> shared_limit;  // by kernel: dynamic bytes set by cudaFuncSetAttribute
  std::uint64_t device_allocated = 0, device_bytes = 0, pinned_bytes = 0, device_peak = 0, pinned_peak = 0;
  std::map<const void*, std::shared_ptr<void>>
      blas;  // handles, descriptors, layouts and preferences of cublasLt
  unsigned streams_made = 0, device_flags = 0;
  std::uint64_t host_items = 0;  // host functions queued or running

  std::map<std::string, std::uint64_t> calls;
  std::uint64_t admitted = 0;  // number of calls
  std::vector<Failure> failures;
  cudaError_t sticky = cudaSuccess;
  std::vector<std::string> problems;
  std::string pending_error;  // of the helper thread; thrown by the next wait

  Statistics statistics;
  bool tracing = false;
  std::vector<Record> trace;
  double host_us = 0;
};
State& state();

// ---- emulation_control.cpp

/// Counts the call. Returns the error that it must return without doing anything, or 0. Codes of cublasLt are
/// passed as int.
int admit(const char* name);
cudaError_t remember_error(cudaError_t e);  // for cudaGetLastError(); returns e
bool inside_host_function();
void set_inside_host_function(bool inside);

/// Calls that free something do so even if they are made to fail.
enum class IfFailing { kDoNothing, kFreeAnyway };

template <class F>
cudaError_t call(const char* name, F&& f, IfFailing if_failing = IfFailing::kDoNothing) {
  Lock lock(state().mutex);
  if (inside_host_function()) {
    state().problems.push_back(std::string(name) + " was called by a host function");
    return cudaErrorNotPermitted;
  }
  const auto failure = static_cast<cudaError_t>(admit(name));
  if (failure != cudaSuccess && if_failing == IfFailing::kDoNothing) return remember_error(failure);
  const cudaError_t e = f(lock);
  return remember_error(failure != cudaSuccess ? failure : e);
}

// ---- work_queue.cpp

/// The stream of a handle; null if the handle is invalid.
CUstream_st* stream_of(cudaStream_t handle);
/// Appends work to a stream, or to the graph if the stream is being captured.
cudaError_t enqueue(Lock& lock, CUstream_st& s, Item item);
/// Runs queued work until done() is true. target: the stream that the caller waits for; null: all. Returns
/// the sticky error.
cudaError_t drive(Lock& lock, const CUstream_st* target, const std::function<bool()>& done);
/// Runs one item of any stream if one can run. Returns cudaErrorNotReady or the sticky error.
cudaError_t run_one_item(Lock& lock, const CUstream_st* target);
/// Runs items of any stream until `target` is idle (cudaSuccess), or until none can run now
/// (cudaErrorNotReady), then after a pause where items wait for other ranks.
cudaError_t run_what_can_run(Lock& lock, const CUstream_st& target);
std::vector<CUstream_st*> every_stream();  // by number, the null stream first
bool all_idle();                           // those of the current device
void destroy_all_streams(Lock& lock);

// ---- device.cpp

int current_device();  // of the calling thread

// ---- graphs.cpp

/// For calls that are not permitted during a capture: true if one is active in this thread; the capture
/// becomes invalid.
bool invalidates_capture();
/// The same for a call on a captured stream; returns the error.
cudaError_t reject_captured_stream(CUstream_st& s);
cudaError_t capture_item(CUstream_st& s, Item item);

// ---- memory.cpp

/// True if [p, p + bytes) is inside one allocation of device memory, or of pinned memory.
bool on_device(const void* p, std::uint64_t bytes);
bool is_pinned(const void* p, std::uint64_t bytes);
/// Device memory for code: what has this key is loaded once. Returns cudaErrorMemoryAllocation if there is
/// not enough, and cudaErrorStreamCaptureUnsupported during a capture.
cudaError_t load_code(std::uint64_t key, std::uint64_t bytes);
/// Device memory that is never freed.
bool take_device_memory(std::uint64_t bytes);
void free_all_memory();

}  // namespace emu
