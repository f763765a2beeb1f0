// Optimizers whose blocks and matrices begin with a tensor of a checkpoint, as functions that queue them on a
// stream: AdamW with 8-bit moments, Adafactor, and what Muon needs beside matrix products, whose order is in
// plugins/cuda/engine/ops_optimizers.cpp. Interface of adamw_8bit.cu, adafactor.cu and muon.cu. Scalars and
// kApplied as for adamw() in kernel_functions.hpp. Arrays need only the alignment of their elements, because
// a tensor may begin in the middle of a parameter.
#pragma once
#include "plugins/cuda/kernels/kernel_functions.hpp"

namespace trainhost::cuda {

/// One tensor: the arrays of ParamPiece. `master`: null if the weight itself is f32.
template <class T>
struct TensorPiece {
  std::uint64_t elements;
  const float* grad;
  T* weight;
  float* master;
  bool decay;
};

/// A moment of a tensor: the codes of its elements and the scales of its blocks of 256 elements. Without
/// codes, `floats` is the moment itself.
struct Moment8bitPiece {
  std::uint8_t* codes;
  float* floats;
};
template <class T>
struct Piece8bit : TensorPiece<T> {
  Moment8bitPiece m, v;
};
/// Tensors per launch: with the two maps, 4 KiB of kernel arguments.
inline constexpr std::uint32_t kMax8bitPieces = 24;
template <class T>
struct Pieces8bit {
  std::uint32_t count;
  Piece8bit<T> piece[kMax8bitPieces];
};
/// adamw() with moments that are decoded before and encoded after it, with the codes and scales of
/// core/step/moment_codes.hpp.
template <class T>
cudaError_t adamw_8bit(cudaStream_t stream, const Pieces8bit<T>& pieces, const AdamW& c,
                       const double* scalars);

/// A tensor as Adafactor has it. Matrix: rows, cols, and f32 means of squared gradients over each row and
/// each column. Vector of n elements: rows = 1, cols = n, row_means = null, col_means = the second moment
/// [n].
template <class T>
struct AdafactorTensor : TensorPiece<T> {
  std::uint64_t rows, cols;
  float *row_means, *col_means;
};
/// sums: scratch f64[slots, width], width >= cols + 2. eps: the smallest RMS of weights that counts. Five
/// launches for a matrix, three for a vector.
template <class T>
cudaError_t adafactor(cudaStream_t stream, const AdafactorTensor<T>& t, double eps, std::uint32_t slots,
                      std::uint64_t width, double* sums, const double* scalars);

/// A part of a tensor that TP ranks divide, and the whole: Adafactor in three parts, between which the ranks
/// add up what the first two write. of_ranks: [2 + cols], or [2 + rows] if the ranks divide columns, [2] of a
/// vector (core/step/operands.hpp, adafactor_sums).
template <class T>
struct AdafactorPart : AdafactorTensor<T> {
  std::uint64_t all_rows, all_cols;
  bool by_columns;
};
template <class T>
cudaError_t adafactor_sums(cudaStream_t stream, const AdafactorPart<T>& t, std::uint32_t slots,
                           std::uint64_t width, double* sums, const double* scalars, float* of_ranks);
/// change[1] = this rank's part of the sum of squares of the change.
template <class T>
cudaError_t adafactor_change(cudaStream_t stream, const AdafactorPart<T>& t, std::uint32_t slots,
                             std::uint64_t width, double* sums, const double* scalars, const float* of_ranks,
                             float* change);
template <class T>
cudaError_t adafactor_apply(cudaStream_t stream, const AdafactorPart<T>& t, double eps, std::uint32_t slots,
                            std::uint64_t width, double* sums, const double* scalars, const float* of_ranks,
                            const float* change);

/// m = beta m + (1-beta) g'; x[elements] = ((1-beta) g' + beta m) / its Frobenius norm. partials: scratch,
/// one f32 per 1,024 elements, not in x.
cudaError_t muon_direction(cudaStream_t stream, std::uint64_t elements, const float* grad, float* m, float* x,
                           float beta, float one_minus_beta, float* partials, const double* scalars);
/// The same without the norm: x is not divided by it.
cudaError_t muon_momentum(cudaStream_t stream, std::uint64_t elements, const float* grad, float* m, float* x,
                          float beta, float one_minus_beta, const double* scalars);
/// A tensor [rows, cols] of which TP ranks have a part [part_rows, part_cols] each, in pieces of `piece`
/// elements: from row first_row of a piece on.
struct MuonPieces {
  std::uint64_t rows, cols, part_rows, part_cols, first_row, piece;
  bool by_columns;    // the ranks divide columns, else rows
  std::uint32_t own;  // number of this rank
};
/// x[rows, cols] = the tensor, divided by its Frobenius norm. partials: as muon_direction().
cudaError_t muon_assemble(cudaStream_t stream, const MuonPieces& tensor, const float* pieces, float* x,
                          float* partials, const double* scalars);
/// The part of x[rows, cols] that this rank has, into its piece.
cudaError_t muon_take(cudaStream_t stream, const MuonPieces& tensor, const float* x, float* pieces);
/// w = w * decay - lr * lr_factor * x
template <class T>
cudaError_t muon_apply(cudaStream_t stream, const TensorPiece<T>& t, const float* x, double lr_factor,
                       const double* scalars);

}  // namespace trainhost::cuda
