// The executor's queues with faults planted in them: executor_queues.cpp as it is, between it and the runtime
// two calls that can be told to leave out a wait or to make a copy twice. Linked before the engine, whose own
// executor_queues.cpp is then not used.
#include "tests/plugins/cuda/engine/fault_injection.hpp"

#include <cuda_runtime.h>

namespace trainhost::test {

Plants plants;

namespace {

cudaError_t planted_wait(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  const std::uint64_t number = ++plants.waits;
  const bool skip = plants.skip_every_wait || number == plants.skip_wait;
  return skip ? cudaSuccess : cudaStreamWaitEvent(stream, event, flags);
}

cudaError_t planted_copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                         cudaStream_t stream) {
  const cudaError_t first = cudaMemcpyAsync(to, from, bytes, kind, stream);
  const bool twice = ++plants.copies == plants.double_copy;
  return first == cudaSuccess && twice ? cudaMemcpyAsync(to, from, bytes, kind, stream) : first;
}

}  // namespace
}  // namespace trainhost::test

#define cudaStreamWaitEvent trainhost::test::planted_wait
#define cudaMemcpyAsync trainhost::test::planted_copy
#include "plugins/cuda/engine/executor_queues.cpp"
