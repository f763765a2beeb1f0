// Functions of the CUDA driver on the emulated devices, for the fake driver of the tests, which calls them by
// name. A context is the number of its device.
#include <cstdint>
#include <vector>

#include "cuda_runtime.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
thread_local std::vector<int> devices_before;
constexpr int kNotReady = 600, kFailed = 999;
int result_of(cudaError_t e) { return e == cudaSuccess ? 0 : e == cudaErrorNotReady ? kNotReady : kFailed; }
cudaStream_t stream_of(void* s) { return static_cast<cudaStream_t>(s); }
void* pointer(std::uint64_t p) { return reinterpret_cast<void*>(p); }
}  // namespace

EXPORT int emulated_cuCtxPushCurrent(int device) {
  int before = 0;
  cudaGetDevice(&before);
  devices_before.push_back(before);
  return result_of(cudaSetDevice(device));
}
EXPORT int emulated_cuCtxPopCurrent(void**) {
  const int before = devices_before.back();
  devices_before.pop_back();
  return result_of(cudaSetDevice(before));
}
EXPORT int emulated_cuStreamCreate(void** stream, unsigned flags) {
  cudaStream_t s{};
  const cudaError_t e = cudaStreamCreateWithFlags(&s, flags);
  *stream = s;
  return result_of(e);
}
EXPORT int emulated_cuStreamQuery(void* stream) { return result_of(cudaStreamQuery(stream_of(stream))); }
EXPORT int emulated_cuStreamDestroy(void* stream) { return result_of(cudaStreamDestroy(stream_of(stream))); }
EXPORT int emulated_cuMemAlloc(std::uint64_t* p, std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t e = cudaMalloc(&memory, bytes);
  *p = reinterpret_cast<std::uint64_t>(memory);
  return result_of(e);
}
EXPORT int emulated_cuMemFree(std::uint64_t p) { return result_of(cudaFree(pointer(p))); }
EXPORT int emulated_cuMemAllocHost(void** p, std::size_t bytes) {
  return result_of(cudaHostAlloc(p, bytes, cudaHostAllocDefault));
}
EXPORT int emulated_cuMemFreeHost(void* p) { return result_of(cudaFreeHost(p)); }
EXPORT int emulated_cuMemcpyHtoDAsync(std::uint64_t to, const void* from, std::size_t bytes, void* stream) {
  return result_of(cudaMemcpyAsync(pointer(to), from, bytes, cudaMemcpyHostToDevice, stream_of(stream)));
}
EXPORT int emulated_cuMemcpyDtoHAsync(void* to, std::uint64_t from, std::size_t bytes, void* stream) {
  return result_of(cudaMemcpyAsync(to, pointer(from), bytes, cudaMemcpyDeviceToHost, stream_of(stream)));
}
