// Shared by the parts of trainhost_gpu_probe: errors, memory, time, and contents of arrays.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace trainhost::gpu_probe {

constexpr int kRounds = 3;        // the best one counts
constexpr double kEnough = 0.03;  // seconds of one round, about

[[noreturn]] inline void fail(const std::string& text, int code = 1) {
  std::fprintf(stderr, "trainhost_gpu_probe: %s\n", text.c_str());
  std::exit(code);
}
inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    fail(std::string(what) + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
}
inline void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(std::string(what) + ": cuBLAS status " + std::to_string(static_cast<int>(status)));
}
#define CHECK(call) check((call), #call)

/// Memory of the device, or page-locked memory of the host.
class Memory {
 public:
  enum Where { kDevice, kPinned };
  Memory(std::size_t bytes, Where where) : where_(where) {
    if (where == kDevice)
      CHECK(cudaMalloc(&at, bytes));
    else
      CHECK(cudaHostAlloc(&at, bytes, cudaHostAllocDefault));
  }
  ~Memory() { where_ == kDevice ? cudaFree(at) : cudaFreeHost(at); }
  Memory(const Memory&) = delete;
  void* at = nullptr;

 private:
  Where where_;
};

struct Timer {
  cudaEvent_t begin{}, end{};
  Timer() {
    CHECK(cudaEventCreateWithFlags(&begin, cudaEventDefault));
    CHECK(cudaEventCreateWithFlags(&end, cudaEventDefault));
  }
  ~Timer() { cudaEventDestroy(begin), cudaEventDestroy(end); }
  /// Seconds that `times` calls of `work` take in stream `s`.
  template <class Work>
  double run(cudaStream_t s, int times, const Work& work) {
    CHECK(cudaEventRecord(begin, s));
    for (int i = 0; i < times; ++i) work();
    CHECK(cudaEventRecord(end, s));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return ms * 1e-3;
  }
};

/// Seconds of one call of `work`, the best round's mean. The first calls warm clocks and caches and are not
/// counted. `most`: calls of a round.
template <class Work>
double best_seconds(cudaStream_t s, const Work& work, int most = 2000) {
  Timer t;
  const double once = std::max(1e-6, t.run(s, 3, work) / 3);
  const int times = std::max(1, std::min(most, static_cast<int>(kEnough / once)));
  double best = 1e30;
  for (int i = 0; i < kRounds; ++i) best = std::min(best, t.run(s, times, work) / times);
  return best;
}

/// Numbers in (-1, 1) without a pattern: constant data draws less power, and a device at its limit would look
/// faster.
inline void fill(void* at, std::size_t bytes, std::size_t element, cudaStream_t s) {
  std::vector<unsigned char> block(std::min(bytes, std::size_t{16} << 20));
  unsigned long long x = 1;
  for (std::size_t i = 0; i + element <= block.size(); i += element) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    const float value = static_cast<float>(static_cast<int>(x >> 32)) * 0x1p-31f;
    unsigned bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (element == 2) bits >>= 16;  // bf16 is the upper half of a float
    std::memcpy(&block[i], &bits, element);
  }
  for (std::size_t done = 0; done < bytes; done += block.size())
    CHECK(cudaMemcpyAsync(static_cast<char*>(at) + done, block.data(), std::min(block.size(), bytes - done),
                          cudaMemcpyHostToDevice, s));
  CHECK(cudaStreamSynchronize(s));
}

/// `attention`: the kernels of attention over whole sequences; see attention_rates.cu. words: CALLS SHAPE...
int attention_rates(const std::vector<std::string>& words);

}  // namespace trainhost::gpu_probe
