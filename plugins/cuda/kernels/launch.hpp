// Launches a kernel. All kernels of this folder are launched with launch() instead of the <<<>>> syntax,
// because tests compile the same sources with the host compiler against the emulation (tests/support/cuda),
// which does not know that syntax. Host code only.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace trainhost::cuda {

/// While an object exists, launch() and clear() of its thread queue nothing: launch() loads the kernel
/// instead. CUDA loads a kernel at its first launch, which takes device memory; so the kernels of a run are
/// loaded before the run takes all memory that its plan states.
class LoadingKernels {
 public:
  LoadingKernels() { active() = true; }
  ~LoadingKernels() { active() = false; }
  LoadingKernels(const LoadingKernels&) = delete;
  static bool& active() {
    static thread_local bool is = false;
    return is;
  }
};

/// Makes the kernel accept launches with this much dynamic shared memory on the current device. Without
/// cudaFuncSetAttribute() a block may have 48 KiB, static shared memory included. The first call that needs
/// more raises the limit to all that the device permits, so it is set once per kernel and device and never
/// lowered. Returns cudaErrorInvalidValue if the device has less, as a launch does.
inline cudaError_t allow_dynamic_shared(const void* kernel, std::size_t bytes) {
  cudaFuncAttributes now{};
  cudaError_t e = cudaFuncGetAttributes(&now, kernel);
  if (e != cudaSuccess || bytes <= static_cast<std::size_t>(now.maxDynamicSharedSizeBytes)) return e;
  int device = 0, most = 0;
  if ((e = cudaGetDevice(&device)) != cudaSuccess) return e;
  e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (e != cudaSuccess) return e;
  most -= static_cast<int>(now.sharedSizeBytes);
  if (bytes > static_cast<std::size_t>(most)) return cudaErrorInvalidValue;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
}

/// Queues kernel(args...) on the stream; the arguments are copied. Does nothing if the grid has no blocks,
/// which CUDA would reject. Asynchronous: errors of the kernel itself are returned by later calls.
template <class... E, class... A>
cudaError_t launch(void (*kernel)(E...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                   A&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
  if (shared_bytes > 0 || LoadingKernels::active()) {
    const cudaError_t e = allow_dynamic_shared(reinterpret_cast<const void*>(kernel), shared_bytes);
    if (e != cudaSuccess || LoadingKernels::active()) return e;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...);
}

/// Queues zeros to `bytes` bytes of device memory.
inline cudaError_t clear(cudaStream_t stream, void* to, std::size_t bytes) {
  return LoadingKernels::active() ? cudaSuccess : cudaMemsetAsync(to, 0, bytes, stream);
}

}  // namespace trainhost::cuda
