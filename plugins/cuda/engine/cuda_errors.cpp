// The sorting of errors: NVIDIA's numbers, and for each kind the sentence that helps.
#include "plugins/cuda/engine/cuda_errors.hpp"

#include "core/abi/error_guard.hpp"

namespace trainhost::cuda {
namespace {

struct Known {
  int code;
  const char* hint;
};
// By the numbers of cudaError_t, which do not change between toolkits.
constexpr Known kLost[] = {
    {46, "another process holds the device, or it is in a mode that forbids use: see nvidia-smi"},
    {214, "an uncorrectable memory error: drain this GPU and reset it before anything else runs there"},
    {220, "an uncorrectable NVLink error: drain this GPU"},
    {226, "an uncorrectable memory error of this process's pages: run again with --resume"},
    {700, "a kernel read or wrote outside its memory: this is a bug of the trainer, please report it"},
    {702, "a kernel ran into the display's time limit: use a GPU without a display"},
    {709, "the context was destroyed"},
    {710, "a kernel's assertion failed: this is a bug of the trainer, please report it"},
    {714, "the hardware stack is corrupt: drain this GPU"},
    {715, "an illegal instruction: drain this GPU if it happens again"},
    {716, "a misaligned address: this is a bug of the trainer, please report it"},
    {717, "an address of another space: this is a bug of the trainer, please report it"},
    {718, "an invalid program counter: drain this GPU if it happens again"},
    {719, "a kernel failed: see the kernel log for an Xid; drain this GPU if it happens again"},
    {721, "the device could not be contained: drain this GPU"},
    {999, "the driver gave no reason: see the kernel log for an Xid (79: the GPU has fallen off the bus)"},
};

thread_local std::shared_ptr<const std::string> t_device;

const Known* lost(int code) {
  for (const Known& k : kLost)
    if (k.code == code) return &k;
  return nullptr;
}

}  // namespace

void speak_of(std::shared_ptr<const std::string> device) { t_device = std::move(device); }

bool device_lost(cudaError_t status) { return lost(static_cast<int>(status)) != nullptr; }

void check(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  const int number = static_cast<int>(status);
  const std::string said = std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation)
    throw abi::StatusError(TH_E_DEVICE_OOM, what + ": the device has no memory left",
                           "a smaller train.micro_batch, or train.recompute = \"auto\"")
        .of("cuda", number);
  if (const Known* k = lost(static_cast<int>(status)))
    throw abi::StatusError(
        TH_E_DEVICE_LOST,
        (t_device ? *t_device : std::string("the GPU")) + " is lost while " + what + ": " + said, k->hint)
        .of("cuda", number);
  throw abi::StatusError(TH_E_INTERNAL, what + ": " + said).of("cuda", number);
}

void check(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  // A device that is gone makes cuBLAS fail in any way, and this thread may not have heard of it: what was
  // queued fails behind its back. Any call asks the context; this one is allowed while a stream is captured
  // and waits for nothing.
  std::size_t left = 0, all = 0;
  if (const cudaError_t runtime = cudaMemGetInfo(&left, &all); device_lost(runtime)) check(runtime, what);
  const int number = static_cast<int>(status);
  const std::string said = what + ": " + cublasLtGetStatusName(status);
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      throw abi::StatusError(TH_E_DEVICE_OOM, said + ", no memory left").of("cublas", number);
    case CUBLAS_STATUS_EXECUTION_FAILED:
      check(cudaGetLastError(), what);
      break;  // the runtime knows more, mostly
    case CUBLAS_STATUS_NOT_SUPPORTED:
      throw abi::StatusError(TH_E_INTERNAL, said + ": no algorithm for this product").of("cublas", number);
    case CUBLAS_STATUS_ARCH_MISMATCH:
      throw abi::StatusError(TH_E_UNAVAILABLE, said + ": this cuBLAS does not know the device")
          .of("cublas", number);
    default:
      break;
  }
  throw abi::StatusError(TH_E_INTERNAL, said).of("cublas", number);
}

}  // namespace trainhost::cuda
