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
/// means. One block per slot.
template <class T>
__global__ __launch_bounds__(kUpdateThreads) void adafactor_rows_kernel(const AdafactorTensor<T> t,
                                                                        const Rows rows, std::uint64_t width,
                                                                        double* __restrict__ sums,
                                                                        const double* __restrict__ scalars) {
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
    const double* __restrict__ sums, const double* __restrict__ scalars) {
  __shared__ double shared[2][32];
  if (scalars[step::kApplied] == 0) return;
  double of_weights = 0, of_changes = 0;
  for (std::uint32_t s = threadIdx.x; s < slots; s += kUpdateThreads)
    of_weights += sums[s * width], of_changes += sums[s * width + 1];
  of_weights = sum_of_block(of_weights, shared[0]), of_changes = sum_of_block(of_changes, shared[1]);
  const auto n = static_cast<double>(rows.elements);
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

}  // namespace

template <class T>
cudaError_t adafactor(cudaStream_t stream, const AdafactorTensor<T>& t, double eps, std::uint32_t slots,
                      std::uint64_t width, double* sums, const double* scalars) {
  // Pieces of a vector: 256 elements, so that several warps share it.
  const Rows rows =
      t.row_means ? Rows{t.rows, t.cols, t.elements} : Rows{divide_up(t.elements, 256), 256, t.elements};
  const dim3 threads(kUpdateThreads), columns(static_cast<unsigned>(divide_up(t.cols, kUpdateThreads)));
  cudaError_t e =
      launch(adafactor_rows_kernel<T>, dim3(slots), threads, 0, stream, t, rows, width, sums, scalars);
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
  const std::uint64_t blocks = divide_up(rows.count, kUpdateWarps);
  return launch(adafactor_apply_kernel<T>,
                dim3(blocks < kUpdateBlocks ? static_cast<unsigned>(blocks) : kUpdateBlocks), threads, 0,
                stream, t, rows, eps, slots, width, sums, scalars);
}

template cudaError_t adafactor<float>(cudaStream_t, const AdafactorTensor<float>&, double, std::uint32_t,
                                      std::uint64_t, double*, const double*);
template cudaError_t adafactor<Bf16>(cudaStream_t, const AdafactorTensor<Bf16>&, double, std::uint32_t,
                                     std::uint64_t, double*, const double*);

}  // namespace trainhost::cuda
