// How every kernel of this folder is started, and how it gets its dynamic shared memory. Kernels are never
// launched with
// <<<>>>: the same sources are compiled by the host compiler for tests, where no such syntax exists.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace trainhost::cuda {

/// Bytes of dynamic shared memory that a kernel gets without asking.
inline constexpr std::size_t kDefaultSharedBytes = 48 * 1024;

/// Queues kernel(args...) on the stream; arguments travel by value. A grid without blocks is nothing to do.
template <class... E, class... A>
cudaError_t launch(void (*kernel)(E...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                   A&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
  if (shared_bytes > kDefaultSharedBytes) {
    const cudaError_t asked =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (asked != cudaSuccess) return asked;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...);
}

/// The block's dynamic shared memory, 16-byte aligned; what a kernel keeps there is its own affair.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char trainhost_dynamic_shared[];
  return reinterpret_cast<T*>(trainhost_dynamic_shared);
#else
  return static_cast<T*>(emu::dynamic_shared());
#endif
}

}  // namespace trainhost::cuda
