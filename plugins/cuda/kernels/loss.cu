// Cross-entropy over rows of logits, with the gradient in place, and the sum of the losses. One block per
// row. The first pass computes maximum and sum; the part of the row that fits into shared memory is kept
// there for the second pass, which computes the gradient, so that it is read from device memory only once.
// Interface: kernel_functions.hpp.
#include "plugins/cuda/kernels/softmax_rows.hpp"

namespace trainhost::cuda {
namespace {

// The first `kept` packs of a row stay in dynamic shared memory; each is read again only by the thread that
// wrote it, so no barrier is needed for them.
template <class T>
__global__ __launch_bounds__(1024) void cross_entropy_kernel(std::uint64_t vocab, T* logits,
                                                             const std::int32_t* __restrict__ targets,
                                                             const double* __restrict__ scale, float* losses,
                                                             std::uint32_t kept) {
  constexpr int V = kWide<T>;
  __shared__ float tops[32], sums[32];
  Pack<T, V>* kept_packs = dynamic_shared<Pack<T, V>>();
  T* row = logits + blockIdx.x * vocab;
  const std::int32_t target = targets[blockIdx.x];
  const std::uint32_t me = threadIdx.x, threads = blockDim.x;
  const auto [head, packs, tail] = RowParts(row, vocab);
  T* body = row + head;

  if (target == kIgnored) {
    if (me == 0) losses[blockIdx.x] = 0;
    if (scale == nullptr) return;
    const Floats<1> zero{};
    for (std::uint64_t i = me; i < head; i += threads) store_floats(row + i, zero);
    for (std::uint64_t i = me; i < packs; i += threads) store(body + i * V, zeros<T, V>());
    for (std::uint64_t i = tail + me; i < vocab; i += threads) store_floats(row + i, zero);
    return;
  }

  float of_target = 0;
  if (me == 0)
    of_target = load_floats<1>(row + target)[0];  // the row is overwritten only after the barrier below
  OnlineSoftmax online;
  for (std::uint64_t i = me; i < head; i += threads) online.add(load_floats<1>(row + i), T{});
  for (std::uint64_t i = tail + me; i < vocab; i += threads) online.add(load_floats<1>(row + i), T{});
  for (std::uint64_t i = me; i < packs; i += kLoads * threads) {
    Pack<T, V> p[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      if (i + k * threads < packs) p[k] = load<V>(body + (i + k * threads) * V);
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      if (i + k * threads >= packs) continue;
      if (i + k * threads < kept) kept_packs[i + k * threads] = p[k];
      online.add(unpack(p[k]), T{});
    }
  }

  online.combine(tops, sums);
  const float top = online.top, sum = online.sum;
  if (me == 0) losses[blockIdx.x] = top + logf(sum) - of_target;
  if (scale == nullptr) return;

  // gradient = softmax * scale - onehot * scale
  const float target_part = static_cast<float>(*scale), factor = target_part / sum;
  const auto single = [&](std::uint64_t i) {
    const float p = exponential(load_floats<1>(row + i)[0] - top, T{}) * factor;
    store_floats(row + i, Floats<1>{{i == static_cast<std::uint64_t>(target) ? p - target_part : p}});
  };
  for (std::uint64_t i = me; i < head; i += threads) single(i);
  for (std::uint64_t i = tail + me; i < vocab; i += threads) single(i);
  for (std::uint64_t i = me; i < packs; i += kLoads * threads) {
    Pack<T, V> p[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const std::uint64_t at = i + k * threads;
      if (at < packs) p[k] = at < kept ? kept_packs[at] : load<V>(body + at * V);
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const std::uint64_t at = i + k * threads;
      if (at >= packs) continue;
      Floats<V> x = unpack(p[k]);
      const std::uint64_t hit = static_cast<std::uint64_t>(target) - head -
                                at * V;  // >= V (or wrapped) if the target is not in this pack
#pragma unroll
      for (int e = 0; e < V; ++e) {
        x[e] = exponential(x[e] - top, T{}) * factor;
        if (hit == static_cast<std::uint64_t>(e)) x[e] -= target_part;
      }
      store_floats(body + at * V, x);
    }
  }
}

constexpr int kSumThreads = 1024;

// Thread t adds losses t, t + 1024, ... in this order; then the sums of the threads are added by a tree. In
// f64, because an update can have millions of tokens.
__global__ __launch_bounds__(kSumThreads) void add_losses_kernel(std::uint64_t rows,
                                                                 const float* __restrict__ losses,
                                                                 double* sum) {
  __shared__ double shared[32];
  double total = 0;
#pragma unroll 8
  for (std::uint64_t i = threadIdx.x; i < rows; i += kSumThreads) total += losses[i];
  total = sum_of_block(total, shared);
  if (threadIdx.x == 0) *sum += total;
}

/// Bytes of a row that a block keeps in shared memory. Up to kSmallRow two blocks of 512 threads share the
/// 228 KiB of an SM, so that one reads while the other writes. Larger rows use one block of 1024 threads;
/// bytes beyond kMaxKept are read again from L2 or device memory.
constexpr std::uint64_t kSmallRow = 112 * 1024, kMaxKept = 224 * 1024;

}  // namespace

template <class T>
cudaError_t cross_entropy(cudaStream_t stream, std::uint64_t rows, std::uint64_t vocab, T* logits,
                          const std::int32_t* targets, const double* scale, float* losses) {
  if (rows == 0 || vocab == 0) return cudaSuccess;
  std::uint64_t kept = 0;
  std::uint32_t threads = 512;
  if (scale != nullptr) {
    int device = 0, most = 0;
    cudaError_t asked = cudaGetDevice(&device);
    if (asked == cudaSuccess)
      asked = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (asked != cudaSuccess) return asked;
    const std::uint64_t reserved =
        1024;  // static shared memory of the kernel, and the part that CUDA reserves
    const std::uint64_t available = static_cast<std::uint64_t>(most) < kMaxKept + reserved
                                        ? static_cast<std::uint64_t>(most) - reserved
                                        : kMaxKept;
    kept = vocab * sizeof(T) / 16;
    if (kept * 16 > kSmallRow) threads = 1024;
    if (kept * 16 > available) kept = available / 16;
  }
  const std::uint64_t packs = divide_up(vocab, kWide<T>);
  if (packs < threads) threads = whole_warps(packs);
  return launch(cross_entropy_kernel<T>, dim3(static_cast<unsigned>(rows)), dim3(threads), kept * 16, stream,
                vocab, logits, targets, scale, losses, static_cast<std::uint32_t>(kept));
}

cudaError_t add_losses(cudaStream_t stream, std::uint64_t rows, const float* losses, double* sum) {
  if (rows == 0) return cudaSuccess;
  return launch(add_losses_kernel, dim3(1), dim3(kSumThreads), 0, stream, rows, losses, sum);
}

template cudaError_t cross_entropy<float>(cudaStream_t, std::uint64_t, std::uint64_t, float*,
                                          const std::int32_t*, const double*, float*);
template cudaError_t cross_entropy<Bf16>(cudaStream_t, std::uint64_t, std::uint64_t, Bf16*,
                                         const std::int32_t*, const double*, float*);

}  // namespace trainhost::cuda
