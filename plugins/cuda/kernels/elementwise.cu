// Operations on independent elements (rotary positions, SwiGLU and its gradient, dropout, transposes) and
// sums for gradients of biases. Memory-bound: every array is read once and written once, 16 bytes at a time
// if alignment permits, with all loads of a thread issued before the first use. Interface:
// kernel_functions.hpp, adapter_kernels.hpp.
#include "plugins/cuda/kernels/adapter_kernels.hpp"
#include "plugins/cuda/kernels/packs.hpp"

namespace trainhost::cuda {
namespace {

// ---- rotary positions
// A thread rotates one pack of pairs in several heads of one row, so the table is read once per row. `lanes`
// threads work on a row: `parts` packs of half a head times head_lanes heads; each thread processes
// kHeadsPerThread heads, head_lanes apart, at the same time. Elements i and i + d/2 of a head form a pair.
constexpr int kHeadsPerThread = 4;

template <class T, int V>
__global__ __launch_bounds__(256) void rope_kernel(std::uint64_t rows, std::uint32_t heads, std::uint32_t d,
                                                   std::uint32_t ld, T* x, const float* __restrict__ table,
                                                   std::uint64_t first_pos, std::uint64_t period, float sign,
                                                   std::uint32_t parts, std::uint32_t head_lanes) {
  const std::uint32_t lanes = parts * head_lanes, in_block = threadIdx.x / lanes,
                      lane = threadIdx.x - in_block * lanes;
  // No barrier follows, so threads without a row may return.
  const std::uint64_t row = std::uint64_t{blockIdx.x} * (blockDim.x / lanes) + in_block;
  if (row >= rows) return;
  // Position of the row; a 64-bit modulo is avoided if 32 bits suffice.
  const std::uint64_t unwrapped = first_pos + row;
  const bool small = (unwrapped >> 32) == 0 && (period >> 32) == 0;
  const std::uint64_t pos =
      small ? static_cast<std::uint32_t>(unwrapped) % static_cast<std::uint32_t>(period) : unwrapped % period;
  const std::uint32_t half = d / 2, first_head = lane / parts;
  for (std::uint32_t i = (lane - first_head * parts) * V; i < half; i += parts * V) {
    const Floats<V> c = load_f32<V>(table + pos * d + i);
    Floats<V> s = load_f32<V>(table + pos * d + half + i);
#pragma unroll
    for (int e = 0; e < V; ++e) s[e] *= sign;
    for (std::uint32_t head = first_head; head < heads; head += kHeadsPerThread * head_lanes) {
      // In place: a thread loads both elements of a pair before it stores either, and no other thread
      // accesses them.
      T* at = x + row * ld + std::uint64_t{head} * d + i;
      const std::uint64_t step = std::uint64_t{head_lanes} * d;
      Pack<T, V> a[kHeadsPerThread], b[kHeadsPerThread];
#pragma unroll
      for (int k = 0; k < kHeadsPerThread; ++k)
        if (head + k * head_lanes < heads)
          a[k] = load<V>(at + k * step), b[k] = load<V>(at + k * step + half);
#pragma unroll
      for (int k = 0; k < kHeadsPerThread; ++k) {
        if (head + k * head_lanes >= heads) continue;
        const Floats<V> p = unpack(a[k]), q = unpack(b[k]);
        Floats<V> u, v;
#pragma unroll
        for (int e = 0; e < V; ++e) {
          u[e] = p[e] * c[e] - q[e] * s[e];
          v[e] = q[e] * c[e] + p[e] * s[e];
        }
        store_floats(at + k * step, u);
        store_floats(at + k * step + half, v);
      }
    }
  }
}

// ---- SwiGLU
// Results of bf16 runs are rounded to 8 bits, so approximate instructions with an accuracy of about 21 bits
// suffice; f32 runs use the exact functions.
// For a large negative x, exp(-x) is infinite and both quotients are 0, the limit.
__device__ __forceinline__ float sigmoid(float x, float) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float sigmoid(float x, Bf16) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

constexpr int kGates = 2;  // packs per thread: 4 loads in flight (gate, up), or 6 in the gradient

template <class T, int V>
__global__ __launch_bounds__(256) void swiglu_kernel(std::uint64_t rows, std::uint32_t n,
                                                     const T* __restrict__ gu, T* __restrict__ a,
                                                     std::uint32_t lanes) {
  const ThreadPacks at = packs_of_thread<kGates>(lanes);
  if (at.row >= rows) return;
  const std::uint32_t packs = n / V;
  const T* gate = gu + at.row * 2 * n;
  Pack<T, V> g[kGates], u[kGates];
#pragma unroll
  for (int k = 0; k < kGates; ++k) {
    const std::uint64_t i = std::uint64_t{at.first + k * lanes} * V;
    if (at.first + k * lanes < packs) g[k] = load<V>(gate + i), u[k] = load<V>(gate + n + i);
  }
#pragma unroll
  for (int k = 0; k < kGates; ++k) {
    if (at.first + k * lanes >= packs) continue;
    Floats<V> x = unpack(g[k]);
    const Floats<V> y = unpack(u[k]);
#pragma unroll
    for (int e = 0; e < V; ++e) x[e] = x[e] * sigmoid(x[e], T{}) * y[e];
    store_floats(a + at.row * n + std::uint64_t{at.first + k * lanes} * V, x);
  }
}

// With s = sigmoid(x), silu(x) = x s and silu'(x) = s (1 + x (1 - s)): d gate = da * up * silu'(gate), d up =
// da * silu(gate). Both replace gate and up in place.
template <class T, int V>
__global__ __launch_bounds__(256) void swiglu_bwd_kernel(std::uint64_t rows, std::uint32_t n,
                                                         const T* __restrict__ da, T* gu,
                                                         std::uint32_t lanes) {
  const ThreadPacks at = packs_of_thread<kGates>(lanes);
  if (at.row >= rows) return;
  const std::uint32_t packs = n / V;
  // Not __restrict__: this kernel writes where it reads. Every element is read and written by one thread.
  T* gate = gu + at.row * 2 * n;
  Pack<T, V> g[kGates], u[kGates], d[kGates];
#pragma unroll
  for (int k = 0; k < kGates; ++k) {
    const std::uint64_t i = std::uint64_t{at.first + k * lanes} * V;
    if (at.first + k * lanes < packs)
      g[k] = load<V>(gate + i), u[k] = load<V>(gate + n + i), d[k] = load<V>(da + at.row * n + i);
  }
#pragma unroll
  for (int k = 0; k < kGates; ++k) {
    if (at.first + k * lanes >= packs) continue;
    const std::uint64_t i = std::uint64_t{at.first + k * lanes} * V;
    const Floats<V> x = unpack(g[k]), y = unpack(u[k]), up = unpack(d[k]);
    Floats<V> dx, dy;
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const float s = sigmoid(x[e], T{});
      dx[e] = up[e] * y[e] * s * (1.0f + x[e] * (1.0f - s));
      dy[e] = up[e] * x[e] * s;
    }
    store_floats(gate + i, dx);
    store_floats(gate + n + i, dy);
  }
}

// ---- dropout
/// Four random words by Philox4x32-10: philox4x32_10() of core/step/dropout.hpp.
__device__ __forceinline__ void philox4x32_10(std::uint32_t (&c)[4], std::uint32_t key_0,
                                              std::uint32_t key_1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
    c[0] = static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ key_0, c[1] = static_cast<std::uint32_t>(b);
    c[2] = static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ key_1, c[3] = static_cast<std::uint32_t>(a);
    key_0 += 0x9E3779B9, key_1 += 0xBB67AE85;
  }
}

// A thread processes the columns of a row that have the four words of one counter: of column i of the mask
// word i % 4 of counter i / 4. Column c of x is column first_column + c of the mask. ADD: y += factor * x,
// else y = factor * x. V: elements per access; 4 if rows and first_column are multiples of 4 elements,
// else 1.
template <class T, int V, bool ADD>
__global__ __launch_bounds__(256) void dropout_kernel(std::uint64_t rows, std::uint32_t n,
                                                      const DropoutMask mask, const T* __restrict__ x,
                                                      T* __restrict__ y, std::uint32_t lanes) {
  const ThreadPacks at = packs_of_thread<1>(lanes);
  const std::uint32_t skipped = mask.first_column % 4;  // words of the first counter
  if (at.row >= rows || at.first * 4 >= n + skipped) return;
  std::uint32_t words[4] = {mask.first_column / 4 + at.first, static_cast<std::uint32_t>(at.row),
                            static_cast<std::uint32_t>(mask.micro_batch[0]),
                            mask.product << 16 | (static_cast<std::uint32_t>(mask.micro_batch[1]) & 0xffff)};
  philox4x32_10(words, mask.seed_low, mask.seed_high);
#pragma unroll
  for (int part = 0; part < 4 / V; ++part) {
    const std::uint32_t column = at.first * 4 + part * V - skipped;  // wraps before the first one
    if (column >= n) continue;
    const std::uint64_t i = at.row * n + column;
    Floats<V> f = load_floats<V>(x + i), sum{};
    if constexpr (ADD) sum = load_floats<V>(y + i);
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const bool kept = words[part * V + e] >= mask.dropped_below;
      // A dropped element adds nothing, also if it is not finite.
      if (ADD)
        f[e] = kept ? sum[e] + mask.scale * f[e] : sum[e];
      else
        f[e] = kept ? mask.scale * f[e] : 0.0f;
    }
    store_floats(y + i, f);
  }
}

template <bool ADD, class T>
cudaError_t queue_dropout(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const DropoutMask& mask,
                          const T* x, T* y) {
  if (rows == 0 || n == 0) return cudaSuccess;
  const auto aligned = [](const T* p) { return reinterpret_cast<std::uintptr_t>(p) % (4 * sizeof(T)) == 0; };
  const std::uint32_t skipped = mask.first_column % 4;
  const bool wide = n % 4 == 0 && skipped == 0 && aligned(x) && aligned(y);
  const RowCut cut(rows, static_cast<std::uint32_t>(divide_up(n + skipped, 4)), 1);
  return launch(wide ? dropout_kernel<T, 4, ADD> : dropout_kernel<T, 1, ADD>, cut.grid(), cut.block(), 0,
                stream, rows, n, mask, x, y, cut.lanes);
}

// ---- transposed factors of adapters
template <class T>
__global__ __launch_bounds__(256) void transpose_kernel(std::uint32_t rows, std::uint32_t cols,
                                                        const T* __restrict__ x, T* __restrict__ y) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;  // of y
  if (i >= std::uint64_t{rows} * cols) return;
  y[i] = x[i % rows * cols + i / rows];
}

// ---- column sums
// A block sums 32 packs of columns over the rows of one slot. Each of its 8 warps adds every eighth row; then
// the sums of the warps are added in order. Lanes beyond the last column add nothing but reach the barrier.
constexpr std::uint32_t kSumWarps = 8, kRowsAhead = 4;

template <class T, int V>
__global__ __launch_bounds__(kSumWarps * 32) void column_sums_kernel(std::uint64_t rows, std::uint32_t n,
                                                                     const T* __restrict__ x,
                                                                     std::uint32_t slots,
                                                                     float* __restrict__ partials) {
  __shared__ float shared[kSumWarps][32 * V];
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, slot = blockIdx.y;
  const std::uint64_t first = std::uint64_t{blockIdx.x} * 32 * V, column = first + lane * V;
  const std::uint64_t begin = rows * slot / slots, end = rows * (slot + 1) / slots;
  Floats<V> total{};
  if (column < n)
    for (std::uint64_t base = begin + warp; base < end; base += kSumWarps * kRowsAhead) {
      Pack<T, V> p[kRowsAhead];
#pragma unroll
      for (std::uint32_t j = 0; j < kRowsAhead; ++j) {
        const std::uint64_t row = base + j * kSumWarps;
        p[j] = row < end ? load<V>(x + row * n + column) : zeros<T, V>();
      }
#pragma unroll
      for (std::uint32_t j = 0; j < kRowsAhead; ++j) {
        const Floats<V> f = unpack(p[j]);
#pragma unroll
        for (int e = 0; e < V; ++e) total[e] += f[e];
      }
    }
#pragma unroll
  for (int e = 0; e < V; ++e) shared[warp][lane * V + e] = total[e];
  __syncthreads();
  // After the barrier one thread per column adds the sums of the warps, in the order of the warps.
  if (threadIdx.x < 32 * V && first + threadIdx.x < n) {
    float sum = shared[0][threadIdx.x];
#pragma unroll
    for (std::uint32_t w = 1; w < kSumWarps; ++w) sum += shared[w][threadIdx.x];
    partials[std::uint64_t{slot} * n + first + threadIdx.x] = sum;
  }
}

template <class T, int V>
cudaError_t rope_packs(cudaStream_t stream, std::uint64_t rows, std::uint32_t heads, std::uint32_t d,
                       std::uint32_t ld, T* x, const float* table, std::uint64_t first_pos,
                       std::uint64_t period, float sign) {
  const std::uint32_t packs = d / 2 / V, parts = packs < 256 ? packs : 256;
  // As many lanes as the heads need if each processes kHeadsPerThread, but at most a block; further heads are
  // a loop in the kernel.
  std::uint32_t head_lanes = static_cast<std::uint32_t>(divide_up(heads, kHeadsPerThread));
  if (head_lanes > 256 / parts) head_lanes = 256 / parts;
  const std::uint32_t lanes = parts * head_lanes, rows_per_block = 256 / lanes;
  const dim3 grid(static_cast<unsigned>(divide_up(rows, rows_per_block)));
  return launch(rope_kernel<T, V>, grid, dim3(lanes * rows_per_block), 0, stream, rows, heads, d, ld, x,
                table, first_pos, period, sign, parts, head_lanes);
}

template <class T, int V>
cudaError_t column_sums_packs(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* x,
                              std::uint32_t slots, float* partials) {
  // One block per slot and group of columns: partial sums have one writer each.
  const dim3 grid(static_cast<unsigned>(divide_up(n, 32 * V)), slots);
  return launch(column_sums_kernel<T, V>, grid, dim3(kSumWarps * 32), 0, stream, rows, n, x, slots, partials);
}

}  // namespace

template <class T>
cudaError_t rope(cudaStream_t stream, std::uint64_t rows, std::uint32_t heads, std::uint32_t d,
                 std::uint32_t ld, T* x, const float* table, std::uint64_t first_pos, std::uint64_t period,
                 float sign) {
  if (rows == 0 || heads == 0 || d < 2) return cudaSuccess;
  // Packs must not span the halves of a head, so half a head is a multiple of 16 bytes. The table is f32.
  const bool wide = d % 2 == 0 && wide_rows(d / 2, x) && wide_rows(ld, x) &&
                    reinterpret_cast<std::uintptr_t>(table) % 16 == 0;
  return wide ? rope_packs<T, kWide<T>>(stream, rows, heads, d, ld, x, table, first_pos, period, sign)
              : rope_packs<T, 1>(stream, rows, heads, d, ld, x, table, first_pos, period, sign);
}

template <class T>
cudaError_t swiglu(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* gu, T* a) {
  if (rows == 0 || n == 0) return cudaSuccess;
  const bool wide = wide_rows(n, gu, a);
  const RowCut cut(rows, wide ? n / kWide<T> : n, kGates);
  return launch(wide ? swiglu_kernel<T, kWide<T>> : swiglu_kernel<T, 1>, cut.grid(), cut.block(), 0, stream,
                rows, n, gu, a, cut.lanes);
}

template <class T>
cudaError_t swiglu_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* da, T* gu) {
  if (rows == 0 || n == 0) return cudaSuccess;
  const bool wide = wide_rows(n, da, gu);
  const RowCut cut(rows, wide ? n / kWide<T> : n, kGates);
  return launch(wide ? swiglu_bwd_kernel<T, kWide<T>> : swiglu_bwd_kernel<T, 1>, cut.grid(), cut.block(), 0,
                stream, rows, n, da, gu, cut.lanes);
}

template <class T>
cudaError_t column_sums(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const T* x,
                        std::uint32_t slots, float* partials) {
  if (n == 0 || slots == 0)
    return cudaSuccess;  // rows == 0 is not skipped: sum_slots() reads the partial sums, which must become 0
  return wide_rows(n, x) ? column_sums_packs<T, kWide<T>>(stream, rows, n, x, slots, partials)
                         : column_sums_packs<T, 1>(stream, rows, n, x, slots, partials);
}

template <class T>
cudaError_t dropout(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const DropoutMask& mask,
                    const T* x, T* y) {
  return queue_dropout<false>(stream, rows, n, mask, x, y);
}

template <class T>
cudaError_t dropout_add(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const DropoutMask& mask,
                        const T* dy, T* dx) {
  return queue_dropout<true>(stream, rows, n, mask, dy, dx);
}

template <class T>
cudaError_t transpose(cudaStream_t stream, std::uint32_t rows, std::uint32_t cols, const T* x, T* y) {
  const std::uint64_t n = std::uint64_t{rows} * cols;
  if (n == 0) return cudaSuccess;
  return launch(transpose_kernel<T>, dim3(static_cast<unsigned>(divide_up(n, 256))), dim3(256), 0, stream,
                rows, cols, x, y);
}

#define TRAINHOST_ELEMENTWISE(T)                                                                             \
  template cudaError_t rope<T>(cudaStream_t, std::uint64_t, std::uint32_t, std::uint32_t, std::uint32_t, T*, \
                               const float*, std::uint64_t, std::uint64_t, float);                           \
  template cudaError_t swiglu<T>(cudaStream_t, std::uint64_t, std::uint32_t, const T*, T*);                  \
  template cudaError_t swiglu_bwd<T>(cudaStream_t, std::uint64_t, std::uint32_t, const T*, T*);              \
  template cudaError_t column_sums<T>(cudaStream_t, std::uint64_t, std::uint32_t, const T*, std::uint32_t,   \
                                      float*);                                                               \
  template cudaError_t dropout<T>(cudaStream_t, std::uint64_t, std::uint32_t, const DropoutMask&, const T*,  \
                                  T*);                                                                       \
  template cudaError_t dropout_add<T>(cudaStream_t, std::uint64_t, std::uint32_t, const DropoutMask&,        \
                                      const T*, T*);                                                         \
  template cudaError_t transpose<T>(cudaStream_t, std::uint32_t, std::uint32_t, const T*, T*);
TRAINHOST_ELEMENTWISE(float)
TRAINHOST_ELEMENTWISE(Bf16)
#undef TRAINHOST_ELEMENTWISE

}  // namespace trainhost::cuda
