// Operations of tensor-parallel ranks, each of which has a part of the vocabulary and, with sequence
// parallelism, a part of the rows: as functions that queue them on a stream (embedding.cu, parts.cu). A
// header of its own, so that a change of it does not compile the kernels of attention again.
#pragma once
#include "plugins/cuda/kernels/kernel_functions.hpp"

namespace trainhost::cuda {

/// The token ids that a table has rows of: row i is that of id first + i.
struct IdRange {
  std::int32_t first, count;
};

/// x[r, h] = table[ids[r] - range.first, h], zeros if the table has no row of the id.  table: [range.count,
/// h].
template <class T>
cudaError_t embed_part(cudaStream_t stream, std::uint64_t rows, std::uint32_t h, const std::int32_t* ids,
                       IdRange range, const T* table, T* x);

/// embed_bwd() for the rows whose ids are in the range: grad[ids[r] - range.first, h] += dx[r, h].
template <class T>
cudaError_t embed_part_bwd(cudaStream_t stream, std::uint64_t rows, std::uint32_t h, const std::int32_t* ids,
                           const std::int32_t* order, IdRange range, const T* dx, float* grad);

/// Of each row of logits[rows, vocab], those of tokens first_token, first_token + 1, ...: stats[r] = maximum,
/// sum of exponentials of the logits minus the maximum, and logit of targets[r], 0 if it is not among them.
/// Zeros if the target is -100.  stats: [rows, 3].
template <class T>
cudaError_t softmax_stats(cudaStream_t stream, std::uint64_t rows, std::uint64_t vocab, const T* logits,
                          const std::int32_t* targets, std::int32_t first_token, float* stats);

/// The parts of a vocabulary: their number, that of this rank, its first token; and the rows between the
/// statistics of two parts.
struct VocabularyParts {
  std::uint32_t count = 1, own = 0;
  std::int32_t first_token = 0;
  std::uint64_t rows = 0;
};

/// cross_entropy() over the whole vocabulary, of which `logits` is the part of this rank. Row r of part p has
/// its statistics at stats + 3 * (p * parts.rows + r); they are added in the order of the parts, so every
/// rank gets the same losses, to the bit.
template <class T>
cudaError_t cross_entropy_of_parts(cudaStream_t stream, std::uint64_t rows, std::uint64_t vocab, T* logits,
                                   const std::int32_t* targets, const double* scale,
                                   const VocabularyParts& parts, const float* stats, float* losses);

/// y[n] = sum[n], or sum[n] + residual[n] if residual is not null.
template <class T>
cudaError_t take_rows(cudaStream_t stream, std::uint64_t n, const T* sum, const T* residual, T* y);

}  // namespace trainhost::cuda
