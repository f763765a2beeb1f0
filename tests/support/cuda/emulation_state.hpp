// The emulated machine behind the API: streams as queues of work, events as marks in them, memory by address.
// Every call takes the one lock through call(); functions below that take a Lock expect it held. Kernels run
// under it, host functions do not.
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

/// A point in a stream: reached once the work before it is done.
struct Mark {
  CUstream_st* stream;  // alive at least until the mark is reached
  bool reached = false;
  double clock_us = 0;
};

/// One piece of queued work. Copies of it may be queued many times, by graphs.
struct Item {
  emu::Work work{};
  std::string name;
  std::uint64_t bytes = 0;
  double cost_us = 0;
  std::function<void()> run{};
  std::shared_ptr<Mark> mark{};  // of kRecord and kWait
  bool pageable = false;
  double queued_us = 0;
};

/// Where a captured stream or event stands: per stream, how many of its items lie before.
using Past = std::map<const CUstream_st*, std::size_t>;

struct CUstream_st {
  unsigned number = 0, flags = 0;
  std::deque<Item> queue;
  bool busy = false;  // a host function of it is running, outside the lock
  double clock_us = 0;
  emu::Statistics statistics;
  std::shared_ptr<Capture> capture;  // while it is part of one
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
  std::vector<std::vector<std::size_t>> after;  // items that must be done before items[i]; all smaller than i
};
struct CUgraphExec_st {
  CUgraph_st graph;
};
struct Capture {
  CUstream_st* origin;
  std::thread::id thread;
  bool any_thread = false;  // global mode: unsafe calls of all threads are refused
  bool invalid = false;
  std::vector<Item> items;
  std::vector<const CUstream_st*> stream_of;  // by item
  std::vector<Past> past_of;                  // by item: what its stream knew
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
  std::uint64_t bytes, taken_bytes;
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;  // a host function returned, or something was queued
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
  std::map<std::uintptr_t, Block> device, pinned;   // by address
  std::map<const void*, std::size_t> shared_limit;  // of kernels that asked for more than 48 KiB
  std::uint64_t device_taken = 0, device_bytes = 0, pinned_bytes = 0, device_peak = 0, pinned_peak = 0;
  std::map<const void*, std::shared_ptr<void>>
      blas;  // handles, descriptors, layouts and preferences of cublasLt
  unsigned streams_made = 0;
  std::uint64_t host_items = 0;  // host functions queued or running

  std::map<std::string, std::uint64_t> calls;
  std::uint64_t admitted = 0;  // calls in all
  std::vector<Failure> failures;
  cudaError_t sticky = cudaSuccess;
  std::vector<std::string> problems;
  std::string pending_error;  // found by the helper thread; thrown by the next wait

  Statistics statistics;
  bool tracing = false;
  std::vector<Record> trace;
  double host_us = 0;
};
State& state();

// ---- emulation_control.cpp

/// Counts the call and says what it must return without doing anything; 0: go on. Codes of cublasLt pass
/// through as ints.
int admit(const char* name);
cudaError_t note(cudaError_t e);  // what cudaGetLastError will say
bool inside_host_function();
void set_inside_host_function(bool inside);

enum class Gives { kNothing, kBack };  // kBack: done even where the call is to fail

template <class F>
cudaError_t call(const char* name, F&& f, Gives gives = Gives::kNothing) {
  Lock lock(state().mutex);
  if (inside_host_function()) {
    state().problems.push_back(std::string(name) + " was called by a host function");
    return cudaErrorNotPermitted;
  }
  const auto refused = static_cast<cudaError_t>(admit(name));
  if (refused != cudaSuccess && gives == Gives::kNothing) return note(refused);
  const cudaError_t e = f(lock);
  return note(refused != cudaSuccess ? refused : e);
}

// ---- work_queue.cpp

/// The stream behind a handle; null where there is none.
CUstream_st* stream_of(cudaStream_t handle);
/// Puts work at the end of a stream, or into the graph that it records.
cudaError_t enqueue(Lock& lock, CUstream_st& s, Item item);
/// Runs work until `done`; `target`: the stream that the caller waits for, or null for all. Returns the
/// sticky error.
cudaError_t drive(Lock& lock, const CUstream_st* target, const std::function<bool()>& done);
/// Runs one piece of work of any stream, where one can run; cudaErrorNotReady, or the sticky error.
cudaError_t ask(Lock& lock, const CUstream_st* target);
std::vector<CUstream_st*> every_stream();  // by number, the null stream first
bool all_idle();
void forget_streams(Lock& lock);

// ---- graphs.cpp

/// Whether a call that may not happen during a capture of this thread must be refused; the capture is then
/// lost.
bool refused_by_capture();
cudaError_t refuse(CUstream_st& s);  // the same for a call that names a captured stream
cudaError_t record_item(CUstream_st& s, Item item);

// ---- memory.cpp

/// Whether [p, p + bytes) lies in one block of device memory, or of pinned memory.
bool on_device(const void* p, std::uint64_t bytes);
bool is_pinned(const void* p, std::uint64_t bytes);
void forget_memory();

}  // namespace emu
