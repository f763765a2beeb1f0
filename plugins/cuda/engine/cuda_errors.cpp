// Classifies error codes of the CUDA runtime and of cuBLAS, with a hint for every code after which the device
// is lost or cannot be used. Only reports: what a run does after an error is in instance.cpp. See
// cuda_errors.hpp.
#include "plugins/cuda/engine/cuda_errors.hpp"

#include <mutex>
#include <set>

#include "core/abi/error_guard.hpp"

namespace trainhost::cuda {
namespace {

struct DeviceError {
  int code;
  const char* hint;
};
// Errors after which the device is lost. Numbers instead of enumerators of cudaError_t: the numbers are the
// same in every toolkit, some enumerators exist only in newer ones.
constexpr DeviceError kLostDeviceErrors[] = {
    {214, "an uncorrectable memory error: drain this GPU and reset it before it runs other work"},
    {220, "an uncorrectable NVLink error: drain this GPU"},
    {226, "an uncorrectable memory error of this process's pages: run again with --resume"},
    {700, "a kernel accessed memory out of bounds: this is a bug in the trainer, please report it"},
    {702, "a kernel exceeded the time limit of a GPU with a display: use a GPU without one"},
    {709, "the context was destroyed, as by a reset of the GPU: nvidia-smi shows its state"},
    {710, "an assertion in a kernel failed: this is a bug in the trainer, please report it"},
    {714, "the hardware stack is corrupt: drain this GPU"},
    {715, "an illegal instruction: drain this GPU if it happens again"},
    {716, "a misaligned address: this is a bug in the trainer, please report it"},
    {717, "an address in the wrong address space: this is a bug in the trainer, please report it"},
    {718, "an invalid program counter: drain this GPU if it happens again"},
    {719, "a kernel failed: see the kernel log for an Xid; drain this GPU if it happens again"},
    {721, "an error on the device could not be contained: drain this GPU"},
    {999, "see the kernel log for an Xid; 79: the GPU has fallen off the bus: reboot, or use another GPU"},
};

// Errors by which the driver gives no access to a device. Before a run was created, it cannot be used; during
// a run it is lost: it was reset, fell off the bus, or its compute mode was changed.
struct NoAccessError {
  int code;
  const char *before, *hint_before;
};
constexpr NoAccessError kNoAccessErrors[] = {
    {46, "the device is busy or in exclusive mode",
     "`nvidia-smi -q -d COMPUTE,PIDS` shows its compute mode and the process that uses it: end that process, "
     "or set plugin.cuda.device"},
    {100, "the driver has no device",
     "nvidia-smi -L lists its devices; the kernel log says why one is missing"},
    {101, "the driver has no such device", "nvidia-smi -L lists its devices"},
    {304, "the driver cannot open the device", "check the permissions of /dev/nvidia*; else reboot"},
    {802, "the driver is not ready",
     "the fabric manager is not running: systemctl status nvidia-fabricmanager"},
};
constexpr const char* kHintDuring =
    "the GPU was reset, has fallen off the bus, or has another compute mode: nvidia-smi and the kernel log "
    "(Xid) show which";

// A pointer, because glibc ends the process if it has no memory to register the destructor of a thread-local
// variable.
thread_local const std::string* t_device_name = nullptr;

/// The one copy of a name, which lives as long as the process: there are as many as devices.
const std::string* kept(const std::string& name) {
  static std::mutex lock;
  static std::set<std::string> names;
  const std::lock_guard guard(lock);
  return &*names.insert(name).first;
}

const NoAccessError* find_no_access_error(int code) {
  for (const NoAccessError& k : kNoAccessErrors)
    if (k.code == code) return &k;
  return nullptr;
}

/// What to do about an error after which the device is lost; null if it is not. The name of the device is
/// known to the calling thread from the creation of a run on.
const char* hint_of_lost_device(int code) {
  for (const DeviceError& k : kLostDeviceErrors)
    if (k.code == code) return k.hint;
  return t_device_name && find_no_access_error(code) ? kHintDuring : nullptr;
}

}  // namespace

void set_device_name_for_messages(const std::string& device) {
  t_device_name = device.empty() ? nullptr : kept(device);
}

bool device_lost(cudaError_t status) { return hint_of_lost_device(static_cast<int>(status)) != nullptr; }

void check(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  const int number = static_cast<int>(status);
  const std::string error = std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation)
    throw abi::StatusError(TH_E_DEVICE_OOM, what + ": out of device memory",
                           "reduce train.micro_batch, or set train.recompute = \"auto\"")
        .of("cuda", number);
  if (const char* hint = hint_of_lost_device(number))
    throw abi::StatusError(
        TH_E_DEVICE_LOST,
        (t_device_name ? *t_device_name : std::string("the GPU")) + " is lost while " + what + ": " + error,
        hint)
        .of("cuda", number);
  if (const NoAccessError* k = find_no_access_error(number))
    throw abi::StatusError(TH_E_UNAVAILABLE, what + ": " + k->before + ": " + error, k->hint_before)
        .of("cuda", number);
  throw abi::StatusError(TH_E_INTERNAL, what + ": " + error).of("cuda", number);
}

void check(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  // If the device is lost, cuBLAS may return any status, and this thread may not know yet: queued work fails
  // asynchronously, and the error may have been returned to another thread. Any runtime call returns the
  // context's sticky error; cudaMemGetInfo is permitted during stream capture and does not block.
  std::size_t free_bytes = 0, total_bytes = 0;
  if (const cudaError_t runtime = cudaMemGetInfo(&free_bytes, &total_bytes); device_lost(runtime))
    check(runtime, what);
  const int number = static_cast<int>(status);
  const std::string error = what + ": " + cublasLtGetStatusName(status);
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      throw abi::StatusError(TH_E_DEVICE_OOM, error + ", out of memory").of("cublas", number);
    case CUBLAS_STATUS_EXECUTION_FAILED:
      check(cudaGetLastError(), what);
      break;  // only if the runtime has no error of its own to report
    case CUBLAS_STATUS_NOT_SUPPORTED:
      throw abi::StatusError(TH_E_INTERNAL, error + ": no algorithm for this product").of("cublas", number);
    case CUBLAS_STATUS_ARCH_MISMATCH:
      throw abi::StatusError(TH_E_UNAVAILABLE, error + ": this version of cuBLAS does not support the device")
          .of("cublas", number);
    default:
      break;
  }
  throw abi::StatusError(TH_E_INTERNAL, error).of("cublas", number);
}

}  // namespace trainhost::cuda
