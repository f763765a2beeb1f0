// The emulated runtime: order of work, waiting, memory accounting, failures, host functions and the virtual
// clock. If CUDA does not define an order, the schedules must produce both outcomes.
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "emu.hpp"
#include "plugins/cuda/kernels/launch.hpp"

using namespace trainhost::cuda;

namespace {

#define OK(expression) BOOST_REQUIRE_EQUAL(static_cast<int>(expression), static_cast<int>(cudaSuccess))
#define GIVES(code, expression) BOOST_CHECK_EQUAL(static_cast<int>(expression), static_cast<int>(code))

__global__ void add(int* x, int by) { *x += by; }
__global__ void times(int* x, int by) { *x *= by; }

/// Two streams, an event, one number on the device and one in pinned memory.
struct Fixture {
  cudaStream_t one, two;
  cudaEvent_t event;
  int *device, *pinned;
  Fixture() {
    OK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&event, cudaEventDefault));
    OK(cudaMalloc(&device, sizeof(int)));
    OK(cudaHostAlloc(&pinned, sizeof(int), cudaHostAllocDefault));
    *device = 1, *pinned = 5;
  }
  ~Fixture() {
    cudaStreamDestroy(one), cudaStreamDestroy(two), cudaEventDestroy(event), cudaFree(device),
        cudaFreeHost(pinned);
  }
};
struct Fresh {
  Fresh() { emu::reset(); }
};

template <class F>
std::set<int> outcomes(F&& compute) {
  std::set<int> all;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    emu::Schedule s;
    s.seed = seed;
    emu::set_schedule(s);
    Fixture fixture;
    all.insert(compute(fixture));
  }
  return all;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_runtime, Fresh)

BOOST_AUTO_TEST_CASE(work_runs_only_when_waited_for_unless_streams_are_eager) {
  Fixture r;
  OK(launch(add, 1, 1, 0, r.one, r.device, 4));
  BOOST_TEST(*r.device == 1);
  OK(cudaStreamSynchronize(r.one));
  BOOST_TEST(*r.device == 5);
  emu::Schedule eager;
  eager.lazy = false;
  emu::set_schedule(eager);
  OK(launch(add, 1, 1, 0, r.one, r.device, 4));
  BOOST_TEST(*r.device == 9);
}

BOOST_AUTO_TEST_CASE(a_missing_event_changes_the_result) {
  auto go = [](bool event) {
    return outcomes([event](Fixture& r) {
      OK(launch(add, 1, 1, 0, r.one, r.device, 1));
      OK(cudaEventRecord(r.event, r.one));
      if (event) OK(cudaStreamWaitEvent(r.two, r.event));
      OK(launch(times, 1, 1, 0, r.two, r.device, 10));
      OK(cudaDeviceSynchronize());
      return *r.device;
    });
  };
  BOOST_TEST(go(true) == std::set<int>{20}, boost::test_tools::per_element());
  BOOST_TEST(go(false).size() == 2u);
}

BOOST_AUTO_TEST_CASE(an_independent_stream_may_run_early_or_late) {
  const auto seen = outcomes([](Fixture& r) {
    OK(launch(add, 1, 1, 0, r.one, r.device, 1));
    OK(launch(times, 1, 1, 0, r.two, r.pinned, 2));
    OK(cudaStreamSynchronize(r.one));
    return *r.pinned;
  });
  BOOST_TEST(seen.size() == 2u);
}

BOOST_AUTO_TEST_CASE(overwriting_the_source_of_a_pending_copy_changes_the_result) {
  Fixture r;
  OK(cudaMemcpyAsync(r.device, r.pinned, sizeof(int), cudaMemcpyHostToDevice, r.one));
  *r.pinned = 6;
  OK(cudaStreamSynchronize(r.one));
  BOOST_TEST(*r.device == 6);
}

BOOST_AUTO_TEST_CASE(waiting_for_an_event_runs_the_work_before_it) {
  Fixture r;
  OK(launch(add, 1, 1, 0, r.one, r.device, 1));
  OK(cudaEventRecord(r.event, r.one));
  OK(launch(times, 1, 1, 0, r.one, r.device, 10));
  OK(cudaEventSynchronize(r.event));
  BOOST_TEST((*r.device == 2 || *r.device == 20));
  OK(cudaEventRecord(r.event, r.one));
  while (cudaEventQuery(r.event) == cudaErrorNotReady) {
  }
  BOOST_TEST(*r.device == 20);
}

BOOST_AUTO_TEST_CASE(the_null_stream_and_blocking_streams_wait_for_each_other) {
  for (std::uint64_t seed = 1; seed < 8; ++seed) {
    emu::Schedule s;
    s.seed = seed;
    emu::set_schedule(s);
    Fixture r;
    cudaStream_t blocking;
    OK(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
    OK(launch(add, 1, 1, 0, blocking, r.device, 1));
    OK(launch(times, 1, 1, 0, nullptr, r.device, 10));
    OK(launch(add, 1, 1, 0, blocking, r.device, 3));
    OK(cudaStreamSynchronize(blocking));
    BOOST_TEST(*r.device == 23);
    OK(cudaStreamDestroy(blocking));
  }
}

BOOST_AUTO_TEST_CASE(memory_is_counted_limited_and_filled_with_nan) {
  emu::Machine m;
  m.memory_bytes = 4096, m.pinned_bytes = 100, m.used_by_others_bytes = 1024;
  emu::set_machine(m);
  float *a, *b;
  std::size_t free = 0, total = 0;
  OK(cudaMalloc(&a, 1000));
  BOOST_TEST(std::isnan(a[3]));
  OK(cudaMemGetInfo(&free, &total));
  BOOST_TEST(free == 2048u);
  BOOST_TEST(total == 4096u);
  GIVES(cudaErrorMemoryAllocation, cudaMalloc(&b, 2049));
  BOOST_TEST(b == nullptr);
  GIVES(cudaErrorMemoryAllocation, cudaGetLastError());
  OK(cudaGetLastError());
  GIVES(cudaErrorMemoryAllocation, cudaHostAlloc(&b, 101, 0));
  BOOST_TEST(emu::outstanding().device_bytes == 1000u);
  GIVES(cudaErrorInvalidValue, cudaFree(a + 1));
  OK(cudaFree(a));
  BOOST_TEST(emu::outstanding().nothing());
  BOOST_TEST(emu::peak_device_bytes() == 1000u);
}

BOOST_AUTO_TEST_CASE(copies_are_checked_and_counted_by_kind) {
  Fixture r;
  int pageable[2] = {3, 4};
  GIVES(cudaErrorInvalidValue,
        cudaMemcpyAsync(r.device, pageable, 8, cudaMemcpyHostToDevice, r.one));  // beyond the allocation
  GIVES(cudaErrorInvalidValue, cudaMemcpyAsync(r.pinned, pageable, 4, cudaMemcpyHostToDevice, r.one));
  GIVES(cudaErrorInvalidValue, cudaMemsetAsync(r.pinned, 0, 4, r.one));
  OK(cudaMemcpyAsync(r.device, pageable, 4, cudaMemcpyHostToDevice, r.one));
  OK(cudaMemcpyAsync(r.device, r.pinned, 4, cudaMemcpyDefault, r.one));
  OK(cudaMemcpyAsync(r.pinned, r.device, 4, cudaMemcpyDeviceToHost, r.two));
  OK(cudaDeviceSynchronize());
  BOOST_TEST(emu::statistics().h2d.count == 2u);
  BOOST_TEST(emu::statistics().h2d.bytes == 8u);
  BOOST_TEST(emu::statistics().pageable_h2d.bytes == 4u);
  BOOST_TEST(emu::statistics().d2h.bytes == 4u);
  BOOST_TEST(emu::statistics_of(r.one).d2h.count == 0u);
  BOOST_TEST(emu::statistics_of(r.two).d2h.count == 1u);
}

BOOST_AUTO_TEST_CASE(freeing_memory_waits_for_pending_copies) {
  Fixture r;
  int* gone;
  OK(cudaMalloc(&gone, 4));
  OK(cudaMemcpyAsync(gone, r.pinned, 4, cudaMemcpyHostToDevice, r.one));
  emu::fail("cudaFree", 1, cudaErrorUnknown);
  GIVES(cudaErrorUnknown, cudaFree(gone));  // waits for all work first, and frees in spite of the error
  BOOST_TEST(emu::outstanding().device_blocks == 1u);
  BOOST_TEST(emu::statistics().h2d.count == 1u);
}

BOOST_AUTO_TEST_CASE(the_nth_call_fails_and_sticky_codes_stay) {
  Fixture r;
  emu::fail("cudaLaunchKernelEx", 2, cudaErrorLaunchOutOfResources);
  OK(launch(add, 1, 1, 0, r.one, r.device, 1));
  GIVES(cudaErrorLaunchOutOfResources, launch(add, 1, 1, 0, r.one, r.device, 1));
  OK(launch(add, 1, 1, 0, r.one, r.device, 1));
  OK(cudaStreamSynchronize(r.one));
  BOOST_TEST(*r.device == 3);
  BOOST_TEST(emu::calls()["cudaLaunchKernelEx"] == 3u);

  emu::fail("kernel", 1, cudaErrorIllegalAddress);
  OK(launch(add, 1, 1, 0, r.one, r.device, 1));
  GIVES(cudaErrorIllegalAddress, cudaStreamSynchronize(r.one));
  GIVES(cudaErrorIllegalAddress, cudaMemsetAsync(r.device, 0, 4, r.one));
  GIVES(cudaErrorIllegalAddress, cudaStreamSynchronize(r.two));
}

BOOST_AUTO_TEST_CASE(launches_beyond_the_limits_are_rejected) {
  Fixture r;
  GIVES(cudaErrorInvalidConfiguration, launch(add, 1, 1025, 0, r.one, r.device, 1));
  OK(launch(add, dim3(0), 1, 0, r.one, r.device, 1));
  OK(launch(add, 1, 1, 227 * 1024, r.one, r.device, 1));
  GIVES(cudaErrorInvalidValue, launch(add, 1, 1, 227 * 1024 + 1, r.one, r.device, 1));
  cudaLaunchConfig_t c = {dim3(1), dim3(1), 49 * 1024, r.one, nullptr, 0};
  GIVES(cudaErrorInvalidValue,
        cudaLaunchKernelEx(&c, times, r.device, 1));  // cudaFuncSetAttribute was not called
}

BOOST_AUTO_TEST_CASE(a_machine_without_device_or_with_an_old_driver_returns_errors) {
  emu::Machine m;
  int n = 0;
  m.devices = 0;
  emu::set_machine(m);
  GIVES(cudaErrorNoDevice, cudaGetDeviceCount(&n));
  m.devices = 1, m.driver_version = 12080;
  emu::set_machine(m);
  GIVES(cudaErrorInsufficientDriver, cudaGetDeviceCount(&n));
  OK(cudaDriverGetVersion(&n));
  BOOST_TEST(n == 12080);
}

BOOST_AUTO_TEST_CASE(host_functions_run_in_order_may_not_call_cuda_and_need_no_waiting_call) {
  Fixture r;
  static std::atomic<int> seen = 0;
  static int* number;
  number = r.device;
  OK(launch(add, 1, 1, 0, r.one, r.device, 1));
  OK(cudaLaunchHostFunc(
      r.one, [](void* by) { seen = *number * *static_cast<int*>(by); }, r.pinned));
  for (int ms = 0; seen == 0 && ms < 5000; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  BOOST_TEST(seen == 10);
  OK(cudaLaunchHostFunc(
      r.one, [](void* s) { cudaStreamSynchronize(static_cast<cudaStream_t>(s)); }, r.two));
  OK(cudaStreamSynchronize(r.one));
  BOOST_TEST(emu::problems().size() == 1u);
}

BOOST_AUTO_TEST_CASE(the_clock_shows_overlap) {
  Fixture r;
  emu::Costs c;
  c.copy_bytes_per_us = 1, c.kernel_us = 100;
  emu::set_costs(c);
  char *device, *host;
  OK(cudaMalloc(&device, 60));
  OK(cudaHostAlloc(&host, 60, 0));
  OK(launch(add, 1, 1, 0, r.one, r.device, 1));
  OK(cudaMemcpyAsync(device, host, 60, cudaMemcpyHostToDevice, r.two));
  OK(cudaDeviceSynchronize());
  BOOST_TEST(emu::host_clock_us() == 100.0);  // overlapping
  cudaEvent_t begin;
  OK(cudaEventCreateWithFlags(&begin, cudaEventDefault));
  OK(cudaEventRecord(begin, r.one));
  OK(launch(add, 1, 1, 0, r.one, r.device, 1));
  OK(cudaEventRecord(r.event, r.one));
  OK(cudaStreamWaitEvent(r.two, r.event));
  OK(cudaMemcpyAsync(device, host, 60, cudaMemcpyHostToDevice, r.two));
  OK(cudaEventRecord(r.event, r.two));
  OK(cudaDeviceSynchronize());
  BOOST_TEST(emu::host_clock_us() == 260.0);  // one after the other
  float ms = 0;
  OK(cudaEventElapsedTime(&ms, begin, r.event));
  BOOST_TEST(ms == 0.16f);
  cudaEventDestroy(begin), cudaFree(device), cudaFreeHost(host);
}

BOOST_AUTO_TEST_CASE(the_trace_lists_work_in_the_order_of_execution) {
  Fixture r;
  emu::set_trace(true);
  OK(launch(add, 1, 1, 0, r.two, r.device, 1));
  OK(cudaMemcpyAsync(r.pinned, r.device, 4, cudaMemcpyDeviceToHost, r.two));
  OK(cudaStreamSynchronize(r.two));
  const auto trace = emu::take_trace();
  BOOST_REQUIRE_EQUAL(trace.size(), 2u);
  BOOST_TEST(trace[0].name == "add");
  BOOST_TEST(trace[0].stream == emu::number_of(r.two));
  BOOST_TEST((trace[1].work == emu::Work::kCopy && trace[1].name == "d2h" && trace[1].bytes == 4));
}

BOOST_AUTO_TEST_SUITE_END()
