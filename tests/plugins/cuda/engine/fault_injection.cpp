// Compiles executor_queues.cpp with two calls of the CUDA runtime replaced by functions that can omit a wait
// or repeat a copy. Linked before the engine's library, so that the linker uses this object instead of the
// engine's own.
#include "tests/plugins/cuda/engine/fault_injection.hpp"

#include <cuda_runtime.h>

namespace trainhost::test {

InjectedFaults faults;

namespace {

cudaError_t faulty_wait(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  const std::uint64_t number = ++faults.waits;
  const bool skip = faults.skip_every_wait || number == faults.skip_wait;
  return skip ? cudaSuccess : cudaStreamWaitEvent(stream, event, flags);
}

cudaError_t faulty_copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                        cudaStream_t stream) {
  const cudaError_t first = cudaMemcpyAsync(to, from, bytes, kind, stream);
  const bool twice = ++faults.copies == faults.double_copy;
  return first == cudaSuccess && twice ? cudaMemcpyAsync(to, from, bytes, kind, stream) : first;
}

}  // namespace
}  // namespace trainhost::test

#define cudaStreamWaitEvent trainhost::test::faulty_wait
#define cudaMemcpyAsync trainhost::test::faulty_copy
#include "plugins/cuda/engine/executor_queues.cpp"
