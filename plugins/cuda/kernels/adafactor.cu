// Adafactor as torch.optim.Adafactor, one tensor per call: means of squared gradients over rows and columns;
// squares of the change, which is computed again in the last pass instead of being stored. Rows are divided
// into the planned slots, whose sums are added in order, so the bits depend on shape and plan only. A warp
// processes a row, so that no barrier separates rows. Interface: tensor_optimizers.hpp.
#include "plugins/cuda/kernels/tensor_optimizers.hpp"

#include "plugins/cuda/kernels/update_pieces.hpp"

namespace trainhost::cuda {
namespace {

// torch's defaults: eps1 is that of f32; the largest RMS of a change is 1.
constexpr double kEps1 = 1.1920928955078125e-07;

/// Elements of a tensor in rows that a warp processes: the rows of a matrix, pieces of a vector.
struct Rows {
  std::uint64_t count, cols, elements;
};
struct RowRange {
  std::uint64_t begin, end;
};
/// The rows of slot s.
__device__ __forceinline__ RowRange rows_of_slot(std::uint64_t rows, std::uint32_t s, std::uint32_t slots) {
  return {rows * s / slots, rows * (s + 1) / slots};
}

/// Sum over the elements of a row of square(i), i from the start of the tensor: each lane adds 16 of them in
/// f32 and these sums in f64. All lanes get the result.
template <class Square>
__device__ __forceinline__ double sum_of_row(const Rows& rows, std::uint64_t row, Square&& square) {
  const std::uint64_t first = row * rows.cols,
                      end = first + rows.cols < rows.elements ? first + rows.cols : rows.elements;
  double total = 0;
  for (std::uint64_t base = first + threadIdx.x % kWarp; base < end; base += 16 * kWarp) {
    float sum = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < 16; ++k)
      if (const std::uint64_t i = base + k * kWarp; i < end) sum += square(i);
    total += sum;
  }
  return warp_sum(total);
}

/// moment = (1 - weight) moment + weight mean, as torch.lerp.
__device__ __forceinline__ void average_into(float& moment, double mean, double weight) {
  moment = static_cast<float>(moment + weight * (mean - moment));
}

/// Row means of a matrix, or the second moment of a vector. sums of slot s: [0] squares of weights, [1] row
/// means. One block per slot. squares_of_rows: null, or of a part of every row its sums instead of means.
template <class T>
__global__ __launch_bounds__(kUpdateThreads) void adafactor_rows_kernel(const AdafactorTensor<T> t,
                                                                        const Rows rows, std::uint64_t width,
                                                                        double* __restrict__ sums,
                                                                        const double* __restrict__ scalars,
                                                                        float* __restrict__ squares_of_rows) {
  __shared__ double shared[2][32];
  if (scalars[step::kApplied] == 0) return;
  const double clip = scalars[step::kClipFactor], weight = scalars[step::kMomentWeight];
  const RowRange mine = rows_of_slot(rows.count, blockIdx.x, gridDim.x);
  const bool first_lane = threadIdx.x % kWarp == 0;
  double squares = 0, means = 0;
  for (std::uint64_t r = mine.begin + threadIdx.x / kWarp; r < mine.end; r += kUpdateWarps) {
    squares += sum_of_row(rows, r, [&](std::uint64_t i) {
      const float w = weight_of<T>(t, i);
      return w * w;
    });
    if (!t.row_means) {
      const std::uint64_t end = (r + 1) * rows.cols < rows.elements ? (r + 1) * rows.cols : rows.elements;
      for (std::uint64_t i = r * rows.cols + threadIdx.x % kWarp; i < end; i += kWarp) {
        const double g = t.grad[i] * clip;
        average_into(t.col_means[i], g * g, weight);
      }
      continue;
    }
    const double g2 = sum_of_row(rows, r, [&](std::uint64_t i) { return t.grad[i] * t.grad[i]; });
    if (!first_lane) continue;
    if (squares_of_rows) {
      squares_of_rows[r] = static_cast<float>(g2 * clip * clip);
      continue;
    }
    average_into(t.row_means[r], g2 * clip * clip / static_cast<double>(rows.cols), weight);
    means += t.row_means[r];
  }
  squares = sum_of_block(first_lane ? squares : 0.0, shared[0]);
  means = sum_of_block(means, shared[1]);
  if (threadIdx.x == 0) sums[blockIdx.x * width] = squares, sums[blockIdx.x * width + 1] = means;
}

/// sums of slot s: [2 + c] squares of the gradients of column c. A thread has one column of one slot.
__global__ __launch_bounds__(kUpdateThreads) void adafactor_columns_kernel(
    const float* __restrict__ grad, const Rows rows, std::uint64_t width, double* __restrict__ sums,
    const double* __restrict__ scalars) {
  const std::uint64_t c = std::uint64_t{blockIdx.x} * kUpdateThreads + threadIdx.x;
  if (scalars[step::kApplied] == 0 || c >= rows.cols) return;
  const RowRange mine = rows_of_slot(rows.count, blockIdx.y, gridDim.y);
  double total = 0;
  for (std::uint64_t base = mine.begin; base < mine.end; base += 16) {
    float sum = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < 16; ++k)
      if (base + k < mine.end) {
        const float g = grad[(base + k) * rows.cols + c];
        sum += g * g;
      }
    total += sum;
  }
  sums[blockIdx.y * width + 2 + c] = total;
}

/// Column means; and sums[2] = 1 / mean of the row means, in place of a sum that only the writing thread
/// reads.
__global__ __launch_bounds__(kUpdateThreads) void adafactor_average_kernel(
    float* __restrict__ col_means, const Rows rows, std::uint32_t slots, std::uint64_t width,
    double* __restrict__ sums, const double* __restrict__ scalars) {
  const std::uint64_t c = std::uint64_t{blockIdx.x} * kUpdateThreads + threadIdx.x;
  if (scalars[step::kApplied] == 0 || c >= rows.cols) return;
  const double clip = scalars[step::kClipFactor];
  double total = 0, means = 0;
  for (std::uint32_t s = 0; s < slots; ++s) total += sums[s * width + 2 + c];
  average_into(col_means[c], total * clip * clip / static_cast<double>(rows.count),
               scalars[step::kMomentWeight]);
  if (c != 0) return;
  for (std::uint32_t s = 0; s < slots; ++s) means += sums[s * width + 1];
  sums[2] = 1.0 / fmax(means / static_cast<double>(rows.count), kEps1);
}

/// The change of element i of a row, before it is scaled to the learning rate.
template <class T>
struct AdafactorChange {
  const AdafactorTensor<T>& t;
  const float clip, inverse_mean;
  __device__ __forceinline__ AdafactorChange(const AdafactorTensor<T>& tensor, const double* sums,
                                             const double* scalars)
      : t(tensor),
        clip(static_cast<float>(scalars[step::kClipFactor])),
        inverse_mean(tensor.row_means ? static_cast<float>(sums[2]) : 1.0f) {}
  __device__ __forceinline__ float factor(std::uint64_t row) const {
    return t.row_means ? t.row_means[row] * inverse_mean : 1.0f;
  }
  /// first: element at which the column means of the row begin, 0 for a vector.
  __device__ __forceinline__ float operator()(std::uint64_t i, std::uint64_t first, float row_factor) const {
    const float estimate = row_factor * t.col_means[i - first];
    return t.grad[i] * clip / sqrtf(fmaxf(estimate, static_cast<float>(kEps1 * kEps1)));
  }
};

/// sums of slot s: [1] squares of the changes. One block per slot.
template <class T>
__global__ __launch_bounds__(kUpdateThreads) void adafactor_squares_kernel(
    const AdafactorTensor<T> t, const Rows rows, std::uint64_t width, double* sums,
    const double* __restrict__ scalars) {
  __shared__ double shared[32];
  if (scalars[step::kApplied] == 0) return;
  const AdafactorChange<T> change(t, sums, scalars);
  const RowRange mine = rows_of_slot(rows.count, blockIdx.x, gridDim.x);
  double squares = 0;
  for (std::uint64_t r = mine.begin + threadIdx.x / kWarp; r < mine.end; r += kUpdateWarps) {
    const float factor = change.factor(r);
    const std::uint64_t first = t.row_means ? r * rows.cols : 0;
    squares += sum_of_row(rows, r, [&](std::uint64_t i) {
      const float u = change(i, first, factor);
      return u * u;
    });
  }
  squares = sum_of_block(threadIdx.x % kWarp == 0 ? squares : 0.0, shared);
  if (threadIdx.x == 0) sums[blockIdx.x * width + 1] = squares;
}

template <class T>
__global__ __launch_bounds__(kUpdateThreads, 4) void adafactor_apply_kernel(
    const AdafactorTensor<T> t, const Rows rows, double eps, std::uint32_t slots, std::uint64_t width,
    double all_elements, const double* __restrict__ sums, const double* __restrict__ scalars) {
  __shared__ double shared[2][32];
  if (scalars[step::kApplied] == 0) return;
  double of_weights = 0, of_changes = 0;
  for (std::uint32_t s = threadIdx.x; s < slots; s += kUpdateThreads)
    of_weights += sums[s * width], of_changes += sums[s * width + 1];
  of_weights = sum_of_block(of_weights, shared[0]), of_changes = sum_of_block(of_changes, shared[1]);
  const double n = all_elements;
  const auto step = static_cast<float>(fmax(eps, sqrt(of_weights / n)) * scalars[step::kRelativeLr] /
                                       fmax(1.0, sqrt(of_changes / n)));
  const float decay = t.decay ? static_cast<float>(scalars[step::kDecayFactor]) : 1.0f;
  const AdafactorChange<T> change(t, sums, scalars);
  for (std::uint64_t r = std::uint64_t{blockIdx.x} * kUpdateWarps + threadIdx.x / kWarp; r < rows.count;
       r += std::uint64_t{gridDim.x} * kUpdateWarps) {
    const float factor = change.factor(r);
    const std::uint64_t begin = r * rows.cols, first = t.row_means ? begin : 0,
                        end = begin + rows.cols < rows.elements ? begin + rows.cols : rows.elements;
#pragma unroll 4
    for (std::uint64_t i = begin + threadIdx.x % kWarp; i < end; i += kWarp)
      set_weight<T>(t, i, decay * weight_of<T>(t, i) - step * change(i, first, factor));
  }
}

// ---- of TP ranks
/// of_ranks: [0] squares of weights, [1] sum of the row means, [2 + c] squares of column c, unless `columns`
/// is 0: from the sums of the slots.
__global__ __launch_bounds__(kUpdateThreads) void adafactor_collect_kernel(
    std::uint64_t columns, bool has_row_means, std::uint32_t slots, std::uint64_t width,
    const double* __restrict__ sums, const double* __restrict__ scalars, float* __restrict__ of_ranks) {
  const std::uint64_t c = std::uint64_t{blockIdx.x} * kUpdateThreads + threadIdx.x;
  if (scalars[step::kApplied] == 0) return;
  const auto total = [&](std::uint64_t i) {
    double sum = 0;
    for (std::uint32_t s = 0; s < slots; ++s) sum += sums[s * width + i];
    return sum;
  };
  const double clip = scalars[step::kClipFactor];
  if (c < columns) of_ranks[2 + c] = static_cast<float>(total(2 + c) * clip * clip);
  if (c != 0) return;
  of_ranks[0] = static_cast<float>(total(0)),
  of_ranks[1] = has_row_means ? static_cast<float>(total(1)) : 0.0f;
}

/// means[n] averaged with the squares of rows or columns of `elements` elements.
__global__ __launch_bounds__(kUpdateThreads) void adafactor_average_of_ranks_kernel(
    std::uint64_t n, double elements, const float* __restrict__ squares, const double* __restrict__ scalars,
    float* __restrict__ means) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * kUpdateThreads + threadIdx.x;
  if (scalars[step::kApplied] == 0 || i >= n) return;
  average_into(means[i], squares[i] / elements, scalars[step::kMomentWeight]);
}

/// The sums of all ranks in slot 0, and none in the others: squares of weights and changes, and 1 / mean of
/// the row means, whose sum the ranks have added up unless each has all rows (row_means). One block.
__global__ __launch_bounds__(kUpdateThreads) void adafactor_prepare_kernel(
    const float* __restrict__ of_ranks, const float* __restrict__ change, const float* __restrict__ row_means,
    std::uint64_t rows, double all_rows, std::uint32_t slots, std::uint64_t width, double* __restrict__ sums,
    const double* __restrict__ scalars) {
  __shared__ double shared[32];
  if (scalars[step::kApplied] == 0) return;
  double means = 0;
  if (row_means)
    for (std::uint64_t r = threadIdx.x; r < rows; r += kUpdateThreads) means += row_means[r];
  means = sum_of_block(means, shared);
  for (std::uint32_t s = threadIdx.x; s < slots; s += kUpdateThreads) {
    sums[s * width] = s == 0 ? of_ranks[0] : 0.0;
    sums[s * width + 1] = s == 0 && change ? change[0] : 0.0;
  }
  if (threadIdx.x == 0)
    sums[2] = 1.0 / fmax((row_means ? means : static_cast<double>(of_ranks[1])) / all_rows, kEps1);
}

/// change[0] = the sum of the slots. One thread.
__global__ __launch_bounds__(1) void adafactor_change_kernel(std::uint32_t slots, std::uint64_t width,
                                                             const double* __restrict__ sums,
                                                             const double* __restrict__ scalars,
                                                             float* __restrict__ change) {
  if (scalars[step::kApplied] == 0) return;
  double total = 0;
  for (std::uint32_t s = 0; s < slots; ++s) total += sums[s * width + 1];
  change[0] = static_cast<float>(total);
}

template <class T>
Rows rows_of(const AdafactorTensor<T>& t) {
  // Pieces of a vector: 256 elements, so that several warps share it.
  return t.row_means ? Rows{t.rows, t.cols, t.elements} : Rows{divide_up(t.elements, 256), 256, t.elements};
}

template <class T>
cudaError_t launch_apply(cudaStream_t stream, const AdafactorTensor<T>& t, const Rows& rows, double eps,
                         std::uint32_t slots, std::uint64_t width, double all_elements, const double* sums,
                         const double* scalars) {
  const std::uint64_t blocks = divide_up(rows.count, kUpdateWarps);
  return launch(adafactor_apply_kernel<T>,
                dim3(blocks < kUpdateBlocks ? static_cast<unsigned>(blocks) : kUpdateBlocks),
                dim3(kUpdateThreads), 0, stream, t, rows, eps, slots, width, all_elements, sums, scalars);
}

template <class T>
cudaError_t launch_prepare(cudaStream_t stream, const AdafactorPart<T>& t, std::uint32_t slots,
                           std::uint64_t width, double* sums, const double* scalars, const float* of_ranks,
                           const float* change) {
  return launch(adafactor_prepare_kernel, dim3(1), dim3(kUpdateThreads), 0, stream, of_ranks, change,
                t.by_columns ? t.row_means : nullptr, t.rows, static_cast<double>(t.all_rows), slots, width,
                sums, scalars);
}

dim3 blocks_of(std::uint64_t n) { return dim3(static_cast<unsigned>(divide_up(n, kUpdateThreads))); }

}  // namespace

template <class T>
cudaError_t adafactor_sums(cudaStream_t stream, const AdafactorPart<T>& t, std::uint32_t slots,
                           std::uint64_t width, double* sums, const double* scalars, float* of_ranks) {
  const Rows rows = rows_of<T>(t);
  const bool matrix = t.row_means, by_columns = matrix && t.by_columns;
  const dim3 threads(kUpdateThreads), columns = blocks_of(t.cols);
  cudaError_t e = launch(adafactor_rows_kernel<T>, dim3(slots), threads, 0, stream, t, rows, width, sums,
                         scalars, by_columns ? of_ranks + 2 : nullptr);
  if (e == cudaSuccess && matrix)
    e = launch(adafactor_columns_kernel, dim3(columns.x, slots), threads, 0, stream, t.grad, rows, width,
               sums, scalars);
  // First, because the average overwrites a sum.
  if (e == cudaSuccess)
    e = launch(adafactor_collect_kernel, matrix && !by_columns ? columns : dim3(1), threads, 0, stream,
               matrix && !by_columns ? t.cols : 0, matrix && !by_columns, slots, width, sums, scalars,
               of_ranks);
  if (e == cudaSuccess && by_columns)
    e = launch(adafactor_average_kernel, columns, threads, 0, stream, t.col_means, rows, slots, width, sums,
               scalars);
  return e;
}

template <class T>
cudaError_t adafactor_change(cudaStream_t stream, const AdafactorPart<T>& t, std::uint32_t slots,
                             std::uint64_t width, double* sums, const double* scalars, const float* of_ranks,
                             float* change) {
  const Rows rows = rows_of<T>(t);
  const dim3 threads(kUpdateThreads);
  cudaError_t e = cudaSuccess;
  if (t.row_means) {
    const std::uint64_t n = t.by_columns ? t.rows : t.cols;
    e = launch(adafactor_average_of_ranks_kernel, blocks_of(n), threads, 0, stream, n,
               static_cast<double>(t.by_columns ? t.all_cols : t.all_rows), of_ranks + 2, scalars,
               t.by_columns ? t.row_means : t.col_means);
  }
  if (e == cudaSuccess) e = launch_prepare<T>(stream, t, slots, width, sums, scalars, of_ranks, nullptr);
  if (e == cudaSuccess)
    e = launch(adafactor_squares_kernel<T>, dim3(slots), threads, 0, stream, t, rows, width, sums, scalars);
  if (e != cudaSuccess) return e;
  return launch(adafactor_change_kernel, dim3(1), dim3(1), 0, stream, slots, width, sums, scalars, change);
}

template <class T>
cudaError_t adafactor_apply(cudaStream_t stream, const AdafactorPart<T>& t, double eps, std::uint32_t slots,
                            std::uint64_t width, double* sums, const double* scalars, const float* of_ranks,
                            const float* change) {
  const cudaError_t e = launch_prepare<T>(stream, t, slots, width, sums, scalars, of_ranks, change);
  if (e != cudaSuccess) return e;
  return launch_apply<T>(stream, t, rows_of<T>(t), eps, slots, width,
                         static_cast<double>(t.all_rows) * static_cast<double>(t.all_cols), sums, scalars);
}

template <class T>
cudaError_t adafactor(cudaStream_t stream, const AdafactorTensor<T>& t, double eps, std::uint32_t slots,
                      std::uint64_t width, double* sums, const double* scalars) {
  const Rows rows = rows_of<T>(t);
  const dim3 threads(kUpdateThreads), columns = blocks_of(t.cols);
  cudaError_t e = launch(adafactor_rows_kernel<T>, dim3(slots), threads, 0, stream, t, rows, width, sums,
                         scalars, static_cast<float*>(nullptr));
  if (e == cudaSuccess && t.row_means) {
    e = launch(adafactor_columns_kernel, dim3(columns.x, slots), threads, 0, stream, t.grad, rows, width,
               sums, scalars);
    if (e == cudaSuccess)
      e = launch(adafactor_average_kernel, columns, threads, 0, stream, t.col_means, rows, slots, width, sums,
                 scalars);
  }
  if (e == cudaSuccess)
    e = launch(adafactor_squares_kernel<T>, dim3(slots), threads, 0, stream, t, rows, width, sums, scalars);
  if (e != cudaSuccess) return e;
  return launch_apply<T>(stream, t, rows, eps, slots, width, static_cast<double>(t.elements), sums, scalars);
}

#define TRAINHOST_ADAFACTOR(T)                                                                           \
  template cudaError_t adafactor<T>(cudaStream_t, const AdafactorTensor<T>&, double, std::uint32_t,      \
                                    std::uint64_t, double*, const double*);                              \
  template cudaError_t adafactor_sums<T>(cudaStream_t, const AdafactorPart<T>&, std::uint32_t,           \
                                         std::uint64_t, double*, const double*, float*);                 \
  template cudaError_t adafactor_change<T>(cudaStream_t, const AdafactorPart<T>&, std::uint32_t,         \
                                           std::uint64_t, double*, const double*, const float*, float*); \
  template cudaError_t adafactor_apply<T>(cudaStream_t, const AdafactorPart<T>&, double, std::uint32_t,  \
                                          std::uint64_t, double*, const double*, const float*,           \
                                          const float*);
TRAINHOST_ADAFACTOR(float)
TRAINHOST_ADAFACTOR(Bf16)
#undef TRAINHOST_ADAFACTOR

}  // namespace trainhost::cuda
