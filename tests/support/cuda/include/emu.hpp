// Interface of the CUDA emulation for tests: schedules, properties of the machine, injected failures, and
// statistics. Not included by the trainer. The state is global; emu::reset() at the start of a test case
// restores the initial state.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cuda_runtime.h"

namespace emu {

/// Resets everything: work, memory, streams, counts, failures, settings. Frees all allocations.
void reset();

// ---- order of execution

enum class Order { kAscending, kDescending, kRandom };

/// CUDA guarantees only the order given by streams, events and barriers, so a result must be the same under
/// every schedule.
struct Schedule {
  Order threads = Order::kAscending;  // which thread of a block runs next if several can
  Order blocks = Order::kAscending;
  bool lazy = true;        // work runs only when a call waits for it; false: when it is queued
  std::uint64_t seed = 1;  // of random orders, of the choice between streams, and of the order inside a graph
};
void set_schedule(const Schedule& s);
Schedule schedule();

/// Six schedules that detect most missing barriers and events: ascending, descending, and random orders.
std::vector<Schedule> every_schedule();

// ---- the machine

struct Machine {
  int devices = 1;
  std::string name = "Emulated GPU";
  int major = 9, minor = 0;
  int multiprocessors = 2;  // few, so that each block has several rows and a test does not start idle blocks
  int driver_version = 13000;  // if older than the major version of runtime_version, every call fails
  int runtime_version = 13000;
  std::uint64_t memory_bytes = 4ull << 30;
  std::uint64_t used_by_others_bytes = 0;     // memory of other processes: not free
  std::uint64_t allocation_unit_bytes = 512;  // sizes of allocations are rounded up to a multiple
  std::uint64_t pinned_bytes = 4ull << 30;    // limit of cudaHostAlloc
  // Device memory that code takes when it is loaded, and never frees: each kernel and each kernel of cublasLt
  // at its first use (lazy loading), and each handle. With a non-zero size, loading is not permitted during a
  // capture.
  std::uint64_t kernel_bytes = 0, blas_kernel_bytes = 0, blas_handle_bytes = 0;
  // Not empty: only the kernel of this name writes results. Other kernels and matrix products are checked,
  // queued and counted, and new memory holds bytes of 1. For tests of calls and their errors, which would
  // spend most of their time inside kernels.
  std::string only_kernel;
};
void set_machine(const Machine& m);

/// What the device's compiler reports of a kernel. The emulation cannot know it: the host's compiler
/// generates other code.
struct KernelResources {
  const char* kernel;     // kernel_signature(): "scale<float, 4>"
  unsigned max_threads;   // of a block: the launch bound; 0: none
  unsigned shared_bytes;  // static
  unsigned registers[6];  // of a thread, on 8.0, 8.6, 8.9, 9.0, 10.0, 12.0; 0: the kernel has no code for it
};
/// Kernels that are not listed have no limit of registers and threads, and the static shared memory that they
/// declare. `all` must outlive the program; reset() keeps it.
void set_kernel_resources(std::span<const KernelResources> all);
/// Name of the kernel at this address, with template arguments and without namespaces.
std::string kernel_signature(const void* kernel);
/// Bytes of the `__shared__` variables that are declared in the kernel itself, not in functions that it
/// calls.
unsigned declared_shared_bytes(const void* kernel);
/// Bytes of shared memory, static and dynamic, that a block may have after cudaFuncSetAttribute().
std::size_t shared_optin_bytes(const Machine& m);
/// The same without cudaFuncSetAttribute(), on every device.
inline constexpr std::size_t kDefaultSharedBytes = 48 * 1024;

// ---- failures

/// The nth call of `name` from now on (1: the next one) returns `code` and does nothing; calls that free
/// something do so nevertheless. sticky: every later CUDA call returns the code as well, as after an error
/// that breaks the context. Names are those of the functions ("cudaMalloc", "cudaLaunchKernelEx",
/// "cublasLtMatmul"), or "kernel" and "copy" for work that fails while it runs: the call that waits for it
/// returns the code, which is always sticky.
void fail(const std::string& name, std::uint64_t nth, int code, bool sticky = false);

/// Number of calls since reset(), by name.
std::map<std::string, std::uint64_t> calls();

/// Errors inside kernels and queues, which are also thrown as std::runtime_error by the call that waited, and
/// calls in places where CUDA does not permit them. Empty after a correct run.
std::vector<std::string> problems();

// ---- allocations and handles that were not freed

struct Outstanding {
  std::uint64_t device_bytes = 0, device_blocks = 0, pinned_bytes = 0, pinned_blocks = 0;
  std::uint64_t streams = 0, events = 0, graphs = 0, graph_execs = 0, blas_objects = 0;
  bool nothing() const {
    return device_blocks + pinned_blocks + streams + events + graphs + graph_execs + blas_objects == 0;
  }
};
Outstanding outstanding();
/// Peak of the allocated bytes (as requested) of device and of pinned memory since reset().
std::uint64_t peak_device_bytes();
std::uint64_t peak_pinned_bytes();

// ---- statistics of executed work

struct Amount {
  std::uint64_t count = 0, bytes = 0;
};
/// Executed work. Pageable copies are included in h2d and d2h.
struct Statistics {
  std::uint64_t launches = 0, matmuls = 0, host_functions = 0, graph_launches = 0;
  std::map<std::string, std::uint64_t> launches_of;  // by kernel
  std::map<std::string, std::uint64_t> matmuls_of;   // by algorithm: "plain", "split", "split, output type"
  Amount h2d, d2h, d2d, h2h, pageable_h2d, pageable_d2h, sets;
};
Statistics statistics();
Statistics statistics_of(cudaStream_t stream);
void clear_statistics();

enum class Work { kKernel, kMatmul, kCopy, kSet, kHost, kRecord, kWait };
/// A unit of work, in the order of execution. Times are those of the virtual clock.
struct Record {
  Work work;
  std::string name;     // of the kernel; "h2d", "d2h", ...; else of the function
  unsigned stream;      // number in order of creation, from 1; 0: the null stream
  std::uint64_t bytes;  // of copies and sets
  double begin_us, end_us;
};
void set_trace(bool on);
std::vector<Record> take_trace();
unsigned number_of(cudaStream_t stream);

/// Virtual time in microseconds. Every stream and the host have a clock. Work starts at the maximum of its
/// stream's clock, the time when it was queued, and the times of the events that it waits for. Streams do not
/// slow each other down. Waiting advances the host's clock.
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
/// Simulates that the host was busy for this time.
void advance_host_clock(double us);

}  // namespace emu
