// Converts return codes of the CUDA runtime and of cuBLAS to exceptions. Every call of either library in this
// folder goes through check(), or through ignore() in destructors; no other code looks at return codes. The
// message names the operation, the library's error, and what the user can do.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <memory>
#include <string>

namespace trainhost::cuda {

/// Throws abi::StatusError unless `status` is success: TH_E_DEVICE_OOM if the device is out of memory,
/// TH_E_DEVICE_LOST if no call on this device can succeed in this process any more (uncorrectable memory
/// error, GPU off the bus, faulted kernel), TH_E_UNAVAILABLE if the driver gives no access to it before a run
/// was created (exclusive mode), else TH_E_INTERNAL. `what`: the operation, for example "queueing layers.3
/// attention".
void check(cudaError_t status, const std::string& what);
void check(cublasStatus_t status, const std::string& what);

/// Sets the device name that messages of the calling thread use, "device 0 (NVIDIA H200)"; "": no run was
/// created yet.
void set_device_name_for_messages(const std::string& device);

/// True if after this error every further call on the device fails as well.
bool device_lost(cudaError_t status);

/// Discards a status: for destructors, which cannot throw and may run after the device was lost.
inline void ignore(cudaError_t) noexcept {}
inline void ignore(cublasStatus_t) noexcept {}

}  // namespace trainhost::cuda
