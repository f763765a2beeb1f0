// Tensor parallelism: which part of the model a TP rank has. Of the products whose outputs are divided (q,
// k and v; gate and up) a rank has rows of the weight and of the bias, of those whose inputs are divided
// (o, down) columns; of the embedding and the head it has the rows of its part of the vocabulary. Norms,
// and the biases of o and down, are whole on every rank. Of adapters a rank has rows of B, or columns of A,
// likewise. A part is itself a model, with fewer heads, a smaller intermediate size and a smaller
// vocabulary, so a step program of a rank is that of its part.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/model/model_spec.hpp"
#include "core/model/parallelism.hpp"
#include "core/model/tensors.hpp"

namespace trainhost {

/// Throws usage_error, beginning with "parallel.tensor", if the TP ranks do not divide the heads, the
/// key/value heads, the intermediate size or the vocabulary of the model.
void require_divisible(const ModelSpec& whole, const Parallelism& p);

/// The part of a model that each TP rank has; the model itself with one. Rounds down what is not divisible.
ModelSpec part_of_model(const ModelSpec& whole, const Parallelism& p);
/// The model of a part.
ModelSpec whole_of_model(const ModelSpec& part, const Parallelism& p);

enum class Division : std::uint8_t { kNone, kRows, kColumns };
/// How a tensor of the model is divided among TP ranks. Of an adapter of a matrix that is divided by rows B
/// and the magnitudes are too, and of one that is divided by columns A; the others are whole on every rank.
/// The embedding is divided by rows, its tokens, which are the inputs of its adapter: A is divided, by rows
/// too, because it is stored transposed (is_transposed_in_files()).
Division division_of(const TensorInfo& t);

/// Elements of the whole tensor of which `part`, a tensor of the part of a model, is the part.
std::uint64_t elements_of_whole(const TensorInfo& part, const Parallelism& p);

/// True if each TP rank computes a part of the gradient of a tensor that all of them have: of norms of q and
/// k that of its heads, of what it has whole of an adapter that of its outputs or inputs, with sequence
/// parallelism of the other norms that of its tokens.
bool has_part_of_gradient(const TensorInfo& t, const Parallelism& p);

/// The part of a tensor [rows, cols] that a TP rank has: rows from first_row on, of these columns from
/// first_col on. Row-major itself, so elements of the part have the order that they have in the whole.
struct TensorPart {
  std::uint64_t rows = 0, cols = 0;  // of the whole
  std::uint64_t first_row = 0, part_rows = 0, first_col = 0, part_cols = 0;

  std::uint64_t elements() const { return part_rows * part_cols; }
  /// Number of elements of the part before element `whole` of the tensor.
  std::uint64_t elements_before(std::uint64_t whole) const;
  /// Calls f(element of the part, element of the whole, count) for runs that are contiguous in both, which
  /// together are elements [first, first + count) of the part.
  template <class F>
  void for_runs(std::uint64_t first, std::uint64_t count, F&& f) const {
    for (std::uint64_t at = first, end = first + count; at < end;) {
      const std::uint64_t row = at / part_cols, col = at % part_cols;
      const std::uint64_t run = part_cols == cols ? end - at : std::min(end - at, part_cols - col);
      f(at, (first_row + row) * cols + first_col + col, run);
      at += run;
    }
  }
};
/// `rank` counts from 0. Scales of the blocks of a matrix are a matrix too: the blocks of each of its rows.
TensorPart part_of_tensor(const TensorInfo& whole, const Parallelism& p, std::uint32_t rank);
/// The tensor `whole` with the shape of a part of it.
TensorInfo info_of_part(const TensorInfo& whole, const TensorPart& part);

}  // namespace trainhost
