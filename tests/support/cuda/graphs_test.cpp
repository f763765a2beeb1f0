// Stream capture: captured work, graph launches, and calls that are not permitted during a capture.
#include <boost/test/unit_test.hpp>
#include <set>

#include "emu.hpp"
#include "plugins/cuda/kernels/launch.hpp"

using namespace trainhost::cuda;

namespace {

#define OK(expression) BOOST_REQUIRE_EQUAL(static_cast<int>(expression), static_cast<int>(cudaSuccess))
#define GIVES(code, expression) BOOST_CHECK_EQUAL(static_cast<int>(expression), static_cast<int>(code))

__global__ void add(int* x, int by) { *x += by; }
__global__ void times(int* x, int by) { *x *= by; }

struct Fixture {
  cudaStream_t one, two;
  cudaEvent_t fork, join;
  int* x;
  Fixture() {
    emu::reset();
    OK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    OK(cudaMalloc(&x, sizeof(int)));
    *x = 1;
  }
  cudaGraphExec_t finish() {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamEndCapture(one, &graph));
    OK(cudaGraphInstantiate(&exec, graph));
    OK(cudaGraphDestroy(graph));
    return exec;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_graphs, Fixture)

BOOST_AUTO_TEST_CASE(a_graph_runs_the_captured_work_at_every_launch) {
  OK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
  OK(launch(add, 1, 1, 0, one, x, 1));
  OK(launch(times, 1, 1, 0, one, x, 2));
  const auto exec = finish();
  OK(cudaDeviceSynchronize());
  BOOST_TEST(*x == 1);  // capturing runs nothing
  OK(cudaGraphLaunch(exec, one));
  OK(cudaGraphLaunch(exec, one));
  OK(cudaStreamSynchronize(one));
  BOOST_TEST(*x == 10);
  BOOST_TEST(emu::statistics().graph_launches == 2u);
  BOOST_TEST(emu::statistics().launches == 4u);
  OK(cudaGraphExecDestroy(exec));
}

BOOST_AUTO_TEST_CASE(branches_of_a_graph_run_in_any_order_that_events_allow) {
  for (bool event : {true, false}) {
    OK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(fork, one));
    OK(cudaStreamWaitEvent(two, fork));
    OK(launch(add, 1, 1, 0, one, x, 1));
    if (event) {
      OK(cudaEventRecord(fork, one));
      OK(cudaStreamWaitEvent(two, fork));
    }
    OK(launch(times, 1, 1, 0, two, x, 10));
    OK(cudaEventRecord(join, two));
    OK(cudaStreamWaitEvent(one, join));
    const auto exec = finish();
    std::set<int> seen;
    for (int i = 0; i < 20; ++i) {
      *x = 1;
      OK(cudaGraphLaunch(exec, two));
      OK(cudaStreamSynchronize(two));
      seen.insert(*x);
    }
    BOOST_TEST(seen.size() == (event ? 1u : 2u));
    OK(cudaGraphExecDestroy(exec));
  }
}

BOOST_AUTO_TEST_CASE(an_unjoined_stream_invalidates_the_capture) {
  cudaGraph_t graph;
  OK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(fork, one));
  OK(cudaStreamWaitEvent(two, fork));
  OK(launch(add, 1, 1, 0, two, x, 1));
  GIVES(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(one, &graph));
  OK(launch(add, 1, 1, 0, two, x, 1));  // both streams are ordinary again
  OK(cudaStreamSynchronize(two));
  BOOST_TEST(*x == 2);
}

BOOST_AUTO_TEST_CASE(calls_that_cannot_be_captured_invalidate_the_capture) {
  cudaGraph_t graph;
  int* p;
  const std::vector<std::function<cudaError_t()>> forbidden = {
      [&] { return cudaStreamSynchronize(one); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaMalloc(&p, 4); },
      [&] { return cudaStreamQuery(one); },
  };
  for (const auto& each : forbidden) {
    OK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    GIVES(cudaErrorStreamCaptureUnsupported, each());
    GIVES(cudaErrorStreamCaptureInvalidated, launch(add, 1, 1, 0, one, x, 1));
    GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(one, &graph));
  }
  OK(cudaEventRecord(fork, two));
  OK(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
  GIVES(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(one, fork));  // recorded outside the capture
  GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(one, &graph));
  GIVES(cudaErrorInvalidValue, cudaStreamEndCapture(one, &graph));
}

BOOST_AUTO_TEST_SUITE_END()
