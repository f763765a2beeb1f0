// The update: sum of squares of all gradients, gradient norm with clip factor and the decision whether the
// update is applied, and the optimizers with f32 moments of the shape of the weight (others:
// tensor_optimizers.hpp). Each kernel processes up to kMaxPieces parameters. If kApplied is 0, no weight and
// no moment changes. All scalars are read from and written to device memory. Interface: kernel_functions.hpp.
#include "plugins/cuda/kernels/lion.hpp"
#include "plugins/cuda/kernels/update_pieces.hpp"

namespace trainhost::cuda {
namespace {

// ---- norm
// A thread sums the squares of 16 elements of a chunk in f32 and adds the sum in f64, so the rounding error
// is that of 16 f32 terms, at 1/16 of the f64 operations.
constexpr std::uint32_t kNormThreads = 512, kNormLoads = 4, kNormChunk = kNormThreads * kNormLoads * 4;

__global__ __launch_bounds__(kNormThreads) void grad_squares_kernel(const Pieces<GradPiece> pieces,
                                                                    bool first_call, double* partials) {
  __shared__ double shared[32];
  double total = 0;
  for_chunks<kNormChunk>(pieces, [&](const GradPiece& piece, std::uint64_t first, std::uint64_t end) {
    const float* g = piece.grad;
    Pack<float, 4> p[kNormLoads];
    const std::uint64_t mine = first + threadIdx.x * 4;
#pragma unroll
    for (std::uint32_t k = 0; k < kNormLoads; ++k) {
      const std::uint64_t i = mine + k * kNormThreads * 4;
      p[k] = i + 4 <= end ? load<4>(g + i) : zeros<float, 4>();
    }
    float sum = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < kNormLoads; ++k) {
      const Floats<4> f = unpack(p[k]);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum = fmaf(f[e], f[e], sum);
    }
    if (threadIdx.x < (end - first) % 4) {  // the last elements of a piece whose size is not a multiple of 4
      const float f = g[end - 1 - threadIdx.x];
      sum = fmaf(f, f, sum);
    }
    total += sum;
  });
  total = sum_of_block(total, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = first_call ? total : partials[blockIdx.x] + total;
}

constexpr std::uint32_t kFinishThreads = 256;

__device__ __forceinline__ bool finite(double x) { return x - x == 0; }  // inf - inf and NaN - NaN are NaN

// Thread t adds partials t, t + 256, ... in this order; then the sums of the threads are added by a tree. One
// block.
__global__ __launch_bounds__(kFinishThreads) void finish_norm_kernel(std::uint32_t slots,
                                                                     const double* __restrict__ partials,
                                                                     double clip_norm, double* scalars) {
  __shared__ double shared[32];
  double total = 0;
#pragma unroll 4
  for (std::uint32_t s = threadIdx.x; s < slots; s += kFinishThreads) total += partials[s];
  total = sum_of_block(total, shared);
  if (threadIdx.x != 0) return;
  const double norm2 = scalars[step::kNorm2] + total, norm = sqrt(norm2);
  scalars[step::kNorm2] = norm2;
  scalars[step::kGradNorm] = norm;
  const double clip = clip_norm == 0 ? 1.0 : clip_norm / (norm + 1e-6);
  scalars[step::kClipFactor] = clip < 1.0 ? clip : 1.0;
  scalars[step::kApplied] = finite(norm) && finite(scalars[step::kLossSum]) ? 1.0 : 0.0;
}

// ---- optimizers
struct SgdRule {
  static constexpr int kMoments = 0;
  __device__ __forceinline__ float operator()(const Step& s, float decay, float g, float w, float&,
                                              float&) const {
    return w * decay - s.lr * g;
  }
};
struct MomentumRule {
  static constexpr int kMoments = 1;
  float momentum;
  __device__ __forceinline__ float operator()(const Step& s, float decay, float g, float w, float& m,
                                              float&) const {
    m = momentum * m + g;
    return w * decay - s.lr * m;
  }
};
struct LionRule {
  static constexpr int kMoments = 1;
  LionBetas c;
  __device__ __forceinline__ float operator()(const Step& s, float decay, float g, float w, float& m,
                                              float&) const {
    const float direction = c.beta1 * m + c.one_minus_beta1 * g;
    const float sign = (direction > 0.0f ? 1.0f : 0.0f) - (direction < 0.0f ? 1.0f : 0.0f);
    m = c.beta2 * m + c.one_minus_beta2 * g;
    return w * decay - s.lr * sign;
  }
};

constexpr std::uint32_t kUpdateLoads = 2, kUpdateChunk = kUpdateThreads * kUpdateLoads * 4;

/// V elements of each array of a parameter.
template <class T, class Rule, int V>
struct Elements {
  Floats<V> g, w, m{}, v{};
  __device__ __forceinline__ void load(const ParamPiece<T>& p, std::uint64_t i) {
    g = load_floats<V>(p.grad + i);
    w = p.master ? load_floats<V>(p.master + i) : load_floats<V>(p.weight + i);
    if constexpr (Rule::kMoments > 0) m = load_floats<V>(p.m + i);
    if constexpr (Rule::kMoments > 1) v = load_floats<V>(p.v + i);
  }
  /// Applies the rule and stores the results.
  __device__ __forceinline__ void update(const ParamPiece<T>& p, std::uint64_t i, const Rule& rule,
                                         const Step& step) {
    const float decay = p.decay ? step.decay : 1.0f;
#pragma unroll
    for (int e = 0; e < V; ++e) w[e] = rule(step, decay, g[e] * step.clip, w[e], m[e], v[e]);
    if (p.master) store_floats(p.master + i, w);
    store_floats(p.weight + i, w);
    if constexpr (Rule::kMoments > 0) store_floats(p.m + i, m);
    if constexpr (Rule::kMoments > 1) store_floats(p.v + i, v);
  }
};

template <class T, class Rule>
__global__ __launch_bounds__(kUpdateThreads, 4) void update_kernel(const Pieces<ParamPiece<T>> pieces,
                                                                   const Rule rule,
                                                                   const double* __restrict__ scalars) {
  if (scalars[step::kApplied] == 0) return;
  const Step step = step_of(scalars);
  for_chunks<kUpdateChunk>(pieces, [&](const ParamPiece<T>& piece, std::uint64_t first, std::uint64_t end) {
    Elements<T, Rule, 4> four[kUpdateLoads];
    const std::uint64_t mine = first + threadIdx.x * 4;
#pragma unroll
    for (std::uint32_t k = 0; k < kUpdateLoads; ++k)
      if (mine + k * kUpdateThreads * 4 + 4 <= end) four[k].load(piece, mine + k * kUpdateThreads * 4);
#pragma unroll
    for (std::uint32_t k = 0; k < kUpdateLoads; ++k)
      if (mine + k * kUpdateThreads * 4 + 4 <= end)
        four[k].update(piece, mine + k * kUpdateThreads * 4, rule, step);
    if (threadIdx.x < (end - first) % 4) {
      Elements<T, Rule, 1> one;
      one.load(piece, end - 1 - threadIdx.x);
      one.update(piece, end - 1 - threadIdx.x, rule, step);
    }
  });
}

template <class T, class Rule>
cudaError_t update(cudaStream_t stream, const Pieces<ParamPiece<T>>& pieces, const Rule& rule,
                   const double* scalars) {
  return launch(update_kernel<T, Rule>, blocks_of(pieces, kUpdateChunk), dim3(kUpdateThreads), 0, stream,
                pieces, rule, scalars);
}

}  // namespace

// A call without pieces is not skipped: the partial sums of a first call must become 0.
cudaError_t grad_squares(cudaStream_t stream, const Pieces<GradPiece>& pieces, std::uint32_t slots,
                         bool first, double* partials) {
  return launch(grad_squares_kernel, dim3(slots), dim3(kNormThreads), 0, stream, pieces, first, partials);
}

cudaError_t finish_norm(cudaStream_t stream, std::uint32_t slots, const double* partials, double clip_norm,
                        double* scalars) {
  return launch(finish_norm_kernel, dim3(1), dim3(kFinishThreads), 0, stream, slots, partials, clip_norm,
                scalars);
}

template <class T>
cudaError_t adamw(cudaStream_t stream, const Pieces<ParamPiece<T>>& pieces, const AdamW& c,
                  const double* scalars) {
  return update(stream, pieces, AdamWRule{c}, scalars);
}
template <class T>
cudaError_t sgd(cudaStream_t stream, const Pieces<ParamPiece<T>>& pieces, const double* scalars) {
  return update(stream, pieces, SgdRule{}, scalars);
}
template <class T>
cudaError_t sgd_momentum(cudaStream_t stream, const Pieces<ParamPiece<T>>& pieces, float momentum,
                         const double* scalars) {
  return update(stream, pieces, MomentumRule{momentum}, scalars);
}
template <class T>
cudaError_t lion(cudaStream_t stream, const Pieces<ParamPiece<T>>& pieces, const LionBetas& c,
                 const double* scalars) {
  return update(stream, pieces, LionRule{c}, scalars);
}

#define TRAINHOST_UPDATES(T)                                                                              \
  template cudaError_t adamw<T>(cudaStream_t, const Pieces<ParamPiece<T>>&, const AdamW&, const double*); \
  template cudaError_t sgd<T>(cudaStream_t, const Pieces<ParamPiece<T>>&, const double*);                 \
  template cudaError_t sgd_momentum<T>(cudaStream_t, const Pieces<ParamPiece<T>>&, float, const double*); \
  template cudaError_t lion<T>(cudaStream_t, const Pieces<ParamPiece<T>>&, const LionBetas&, const double*);
TRAINHOST_UPDATES(float)
TRAINHOST_UPDATES(Bf16)
#undef TRAINHOST_UPDATES

}  // namespace trainhost::cuda
