// Every call of the CUDA runtime and of cuBLAS goes through check(): a failure becomes one exception that
// says what was being done, what the library said, and what the user can do. Nothing else in this folder
// looks at return codes.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <memory>
#include <string>

namespace trainhost::cuda {

/// Throws abi::StatusError: TH_E_DEVICE_OOM when the device has no memory left, TH_E_DEVICE_LOST when
/// nothing on this device can work again in this process (uncorrectable memory error, fallen off the bus, a
/// kernel that faulted), else TH_E_INTERNAL. `what`: "queueing layers.3 attention".
void check(cudaError_t status, const std::string& what);
void check(cublasStatus_t status, const std::string& what);

/// Which device this thread is at work on, for messages: "device 0 (NVIDIA H200)"; null: not known yet.
void speak_of(std::shared_ptr<const std::string> device);

/// Is this an error after which every further call fails too?
bool device_lost(cudaError_t status);

/// For destructors: the device may be gone, and nobody can be told.
inline void ignore(cudaError_t) noexcept {}
inline void ignore(cublasStatus_t) noexcept {}

}  // namespace trainhost::cuda
