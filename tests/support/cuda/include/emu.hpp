// How tests steer the emulation of CUDA and look into it. The product never sees this header. Everything here
// holds for the whole process; emu::reset() at the start of a test case gives it a fresh machine, whatever
// the case before left behind.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda_runtime.h"

namespace emu {

/// Forgets everything: work, memory, streams, counts, failures, settings. What was not given back is freed.
void reset();

// ---- order of execution

enum class Order { kAscending, kDescending, kRandom };

/// CUDA promises no order but that of streams, events and barriers; a result must be the same under every
/// schedule.
struct Schedule {
  Order threads = Order::kAscending;  // which thread of a block runs on, once several could
  Order blocks = Order::kAscending;
  bool lazy = true;  // streams run only as far as somebody waits; false: everything runs as it is queued
  std::uint64_t seed =
      1;  // for random orders, for the stream that goes next, and for the order inside a graph
};
void set_schedule(const Schedule& s);
Schedule schedule();

/// A handful that finds most missing barriers and events: up, down, and random ones.
std::vector<Schedule> every_schedule();

// ---- the machine

struct Machine {
  int devices = 1;
  std::string name = "Emulated GPU";
  int major = 9, minor = 0;
  int multiprocessors = 4;
  int driver_version = 13000;  // older than runtime_version's major: every call fails as it does there
  int runtime_version = 13000;
  std::uint64_t memory_bytes = 4ull << 30;
  std::uint64_t used_by_others_bytes =
      0;  // cudaMemGetInfo does not call it free, and cudaMalloc cannot have it
  std::uint64_t allocation_unit_bytes = 512;  // what an allocation takes is rounded up to this
  std::uint64_t pinned_bytes = 4ull << 30;    // cudaHostAlloc fails beyond
  int shared_bytes_optin = 227 * 1024;
};
void set_machine(const Machine& m);

// ---- failures

/// The nth call of `name` from now on (1: the next) returns `code` and does nothing; calls that give
/// something back do it all the same. Sticky codes of cuda calls stay, as those of a broken context do: every
/// later call returns them. Names are those of the calls ("cudaMalloc", "cudaLaunchKernelEx",
/// "cublasLtMatmul"), or "kernel" and "copy" for work that fails while it runs: the call that waits for it
/// then returns the code, and it is always sticky.
void fail(const std::string& name, std::uint64_t nth, int code, bool sticky = false);

/// Calls since reset(), by name.
std::map<std::string, std::uint64_t> calls();

/// What went wrong inside kernels and queues (also thrown as std::runtime_error from the call that waited),
/// and calls that CUDA forbids where they were made. Empty after a correct run.
std::vector<std::string> problems();

// ---- what was taken and not given back

struct Outstanding {
  std::uint64_t device_bytes = 0, device_blocks = 0, pinned_bytes = 0, pinned_blocks = 0;
  std::uint64_t streams = 0, events = 0, graphs = 0, graph_execs = 0, blas_objects = 0;
  bool nothing() const {
    return device_blocks + pinned_blocks + streams + events + graphs + graph_execs + blas_objects == 0;
  }
};
Outstanding outstanding();
/// The most bytes of device and of pinned memory that were taken at one time since reset(), as asked for.
std::uint64_t peak_device_bytes();
std::uint64_t peak_pinned_bytes();

// ---- what was done

struct Amount {
  std::uint64_t count = 0, bytes = 0;
};
/// Work that was executed. Pageable copies are in h2d and d2h too.
struct Statistics {
  std::uint64_t launches = 0, matmuls = 0, host_functions = 0, graph_launches = 0;
  std::map<std::string, std::uint64_t> launches_of;  // by kernel
  Amount h2d, d2h, d2d, h2h, pageable_h2d, pageable_d2h, sets;
};
Statistics statistics();
Statistics statistics_of(cudaStream_t stream);
void clear_statistics();

enum class Work { kKernel, kMatmul, kCopy, kSet, kHost, kRecord, kWait };
/// One piece of work in the order of execution. Times are those of the virtual clock.
struct Record {
  Work work;
  std::string name;     // of the kernel; "h2d", "d2h", ...; otherwise that of the call
  unsigned stream;      // by creation, from 1; 0: the null stream
  std::uint64_t bytes;  // of copies and sets
  double begin_us, end_us;
};
void set_trace(bool on);
std::vector<Record> take_trace();
unsigned number_of(cudaStream_t stream);

/// Each stream has a clock, and the host one, in microseconds. Work begins at the latest of: its stream's
/// clock, when it was queued, the events it waits for. Streams do not slow each other down. Waiting moves the
/// host's clock.
struct Costs {
  double copy_bytes_per_us = 25000;    // host to device and back
  double device_bytes_per_us = 2.0e6;  // inside the device
  double kernel_us = 5;
  double kernel_us_per_thread = 0;
  double matmul_flops_per_us = 1.0e8;
  double host_function_us = 1;
};
void set_costs(const Costs& c);
double host_clock_us();
/// As if the host had been busy for so long.
void advance_host_clock(double us);

}  // namespace emu
