// Embedding: copies rows of the table to activations, and adds gradients of activations to rows of the
// table's gradient. The gradient adds rows in a fixed order without atomics, because the host passes the row
// numbers sorted by token id.
#include "plugins/cuda/kernels/packs.hpp"
#include "plugins/cuda/kernels/parts_kernels.hpp"

namespace trainhost::cuda {
namespace {

constexpr int kCopies = 4;  // units per thread, loaded before the first store

// U: the unit of an access, 16 bytes or one element; a row has n units.
template <class U>
__global__ __launch_bounds__(256) void embed_kernel(std::uint64_t rows, std::uint32_t n,
                                                    const std::int32_t* __restrict__ ids, IdRange range,
                                                    const U* __restrict__ table, U* __restrict__ x,
                                                    std::uint32_t lanes) {
  const ThreadPacks at = packs_of_thread<kCopies>(lanes);
  if (at.row >= rows) return;
  const std::int32_t row = ids[at.row] - range.first;
  const bool present = row >= 0 && row < range.count;
  const U* from = table + (present ? static_cast<std::uint64_t>(row) * n : 0);
  U* to = x + at.row * n;
  U u[kCopies] = {};
#pragma unroll
  for (int k = 0; k < kCopies; ++k)
    if (present && at.first + k * lanes < n) u[k] = from[at.first + k * lanes];
#pragma unroll
  for (int k = 0; k < kCopies; ++k)
    if (at.first + k * lanes < n) to[at.first + k * lanes] = u[k];
}

template <class U>
cudaError_t embed_units(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const std::int32_t* ids,
                        IdRange range, const void* table, void* x) {
  const RowCut cut(rows, n, kCopies);
  return launch(embed_kernel<U>, cut.grid(), cut.block(), 0, stream, rows, n, ids, range,
                static_cast<const U*>(table), static_cast<U*>(x), cut.lanes);
}

constexpr int kWarps = 4;      // per block: each has 32 * V neighbouring columns
constexpr int kInFlight = 16;  // rows of a long run that are loaded before the first one is added

// grad[ids[r]] += dx[r]. `order` has the row numbers sorted by id, so all rows of one id are consecutive (a
// run). Block x looks at position x of `order`: if a run starts there, it sums the run and adds it to grad;
// else it returns. The warps of a block are independent and have different columns. Each lane reads one
// position, so a warp knows 32 rows of the run at a time. Rows are loaded several at a time, but added one
// after the other in the order of the run.
template <class T, int V>
__global__ __launch_bounds__(kWarps * 32) void embed_bwd_kernel(std::uint64_t rows, std::uint32_t h,
                                                                const std::int32_t* __restrict__ ids,
                                                                const std::int32_t* __restrict__ order,
                                                                IdRange range, const T* __restrict__ dx,
                                                                float* __restrict__ grad) {
  const std::uint32_t lane = threadIdx.x % 32;
  const std::uint64_t piece = (std::uint64_t{blockIdx.y} * kWarps + threadIdx.x / 32) * 32 * V;
  if (piece >= h) return;
  const std::uint64_t column = piece + lane * V;
  const bool valid = column < h;  // lanes beyond the last column only take part in the shuffles
  std::uint64_t at = blockIdx.x;
  std::int32_t row = 0, id = -1;  // of position at + lane
  if (at + lane < rows) {
    row = order[at + lane];
    id = ids[row];
  }
  const std::int32_t id_before = at > 0 ? ids[order[at - 1]] : -1;
  const std::int32_t own = __shfl_sync(kFullWarp, id, 0);
  const std::int32_t row_of_table = own - range.first;
  // Not the start of a run, or the run of an id without a row; the whole warp returns.
  if (id_before == own || row_of_table < 0 || row_of_table >= range.count) return;

  float* sum = grad + static_cast<std::uint64_t>(row_of_table) * h + column;
  Floats<V> total{};
  if (valid) total = load_f32<V>(sum);
  for (;;) {
    const int count =
        __popc(__ballot_sync(kFullWarp, id == own));  // lanes [0, count): positions are sorted by id
    // The next 32 positions are loaded while these rows are added.
    std::int32_t next_row = 0, next_id = -1;
    at += 32;
    if (count == 32 && at + lane < rows) {
      next_row = order[at + lane];
      next_id = ids[next_row];
    }
    int k = 0;
    for (; k + kInFlight <= count; k += kInFlight) {
      Pack<T, V> p[kInFlight];
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const std::int32_t r = __shfl_sync(kFullWarp, row, k + j);
        p[j] = valid ? load<V>(dx + static_cast<std::uint64_t>(r) * h + column) : zeros<T, V>();
      }
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const Floats<V> f = unpack(p[j]);
#pragma unroll
        for (int e = 0; e < V; ++e) total[e] += f[e];
      }
    }
    for (; k < count; k += 4) {
      Pack<T, V> p[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::int32_t r = __shfl_sync(kFullWarp, row, (k + j) % 32);
        p[j] =
            valid && k + j < count ? load<V>(dx + static_cast<std::uint64_t>(r) * h + column) : zeros<T, V>();
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (k + j >= count) continue;
        const Floats<V> f = unpack(p[j]);
#pragma unroll
        for (int e = 0; e < V; ++e) total[e] += f[e];
      }
    }
    if (count < 32) break;  // the run ended in these positions
    row = next_row;
    id = next_id;
  }
  if (valid) store_floats(sum, total);
}

}  // namespace

template <class T>
cudaError_t embed_part(cudaStream_t stream, std::uint64_t rows, std::uint32_t h, const std::int32_t* ids,
                       IdRange range, const T* table, T* x) {
  if (rows == 0 || h == 0) return cudaSuccess;
  if (wide_rows(h, table, x)) return embed_units<uint4>(stream, rows, h / kWide<T>, ids, range, table, x);
  return embed_units<T>(stream, rows, h, ids, range, table, x);
}

template <class T>
cudaError_t embed_part_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t h, const std::int32_t* ids,
                           const std::int32_t* order, IdRange range, const T* dx, float* grad) {
  if (rows == 0 || h == 0) return cudaSuccess;
  // Four columns per thread for both types: 16-byte accesses of grad, and registers for kInFlight rows.
  const bool wide = h % 4 == 0 && reinterpret_cast<std::uintptr_t>(dx) % (4 * sizeof(T)) == 0 &&
                    reinterpret_cast<std::uintptr_t>(grad) % 16 == 0;
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>(divide_up(h, kWarps * 32 * (wide ? 4 : 1))));
  return wide ? launch(embed_bwd_kernel<T, 4>, grid, dim3(kWarps * 32), 0, stream, rows, h, ids, order, range,
                       dx, grad)
              : launch(embed_bwd_kernel<T, 1>, grid, dim3(kWarps * 32), 0, stream, rows, h, ids, order, range,
                       dx, grad);
}

constexpr IdRange kAllIds{0, 0x7fffffff};

template <class T>
cudaError_t embed(cudaStream_t stream, std::uint64_t rows, std::uint32_t h, const std::int32_t* ids,
                  const T* table, T* x) {
  return embed_part<T>(stream, rows, h, ids, kAllIds, table, x);
}

template <class T>
cudaError_t embed_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t h, const std::int32_t* ids,
                      const std::int32_t* order, const T* dx, float* grad) {
  return embed_part_bwd<T>(stream, rows, h, ids, order, kAllIds, dx, grad);
}

#define TRAINHOST_EMBEDDING(T)                                                                             \
  template cudaError_t embed<T>(cudaStream_t, std::uint64_t, std::uint32_t, const std::int32_t*, const T*, \
                                T*);                                                                       \
  template cudaError_t embed_bwd<T>(cudaStream_t, std::uint64_t, std::uint32_t, const std::int32_t*,       \
                                    const std::int32_t*, const T*, float*);                                \
  template cudaError_t embed_part<T>(cudaStream_t, std::uint64_t, std::uint32_t, const std::int32_t*,      \
                                     IdRange, const T*, T*);                                               \
  template cudaError_t embed_part_bwd<T>(cudaStream_t, std::uint64_t, std::uint32_t, const std::int32_t*,  \
                                         const std::int32_t*, IdRange, const T*, float*);
TRAINHOST_EMBEDDING(float)
TRAINHOST_EMBEDDING(Bf16)
#undef TRAINHOST_EMBEDDING

}  // namespace trainhost::cuda
