// Offsets of the optimizer state of each checkpoint tensor in the state buffers of a program, and the
// form of 8-bit moments.
//
// Buffer of 8-bit moments of a parameter, u8[bytes]: first all f32 numbers, tensor by tensor (the scales of a
// tensor's blocks; of a tensor under 4,096 elements its moments), then the codes, tensor by tensor, one byte
// per element. A parameter whose tensors are all small has plain f32 moments.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/model/optimizer_state.hpp"
#include "core/step/program.hpp"

namespace trainhost::step {

/// The state of one tensor in a buffer of 8-bit moments, in bytes from its start.
struct Moment8bit {
  std::uint64_t first_element;  // of the tensor in the parameter
  std::uint64_t elements;
  bool coded;            // false: f32 moments at `floats`, no codes
  std::uint64_t floats;  // byte of the first scale or moment, a multiple of 4
  std::uint64_t codes;   // byte of the first code
};
/// One entry per slice of the parameter.
std::vector<Moment8bit> moments_8bit(const Program& p, const Param& param);
/// Bytes of the buffer of a parameter with these tensors; 0 if they are all small.
std::uint64_t bytes_of_moments_8bit(const Program& p, std::span<const Slice> slices);

/// The parameter with this gradient; it must exist.
const Param& param_of_gradient(const Program& p, BufferId grad);
/// Rows [first, first + rows) of a parameter's matrix that are one tensor.
struct MatrixSlice {
  std::uint64_t first_row, rows, cols;
};
MatrixSlice matrix_slice(const Program& p, const Param& param, std::size_t slice);

/// True if TP ranks divide the tensors of the parameter, so that Muon and Adafactor need what all of them
/// have.
bool is_divided_among_tensor_ranks(const Program& p, const Param& param);
/// The parameter whose gradient has the role and layer of this direction of kMuonDirection, or of these sums
/// of Adafactor.
const Param& param_of_direction(const Program& p, BufferId direction);
/// A tensor that Adafactor updates: this rank's part of it, and how TP ranks divide it.
struct FactoredSlice {
  MatrixSlice part;
  std::uint64_t rows, cols;  // of the whole; of a vector cols = 1
  bool divided, by_columns;  // by_columns: the ranks divide columns, else rows
  bool vector;               // no means, but a second moment per element
  /// Numbers that the ranks add up: sums of squares of the rows of which each has a part, or of such columns.
  std::uint64_t exchanged() const { return !divided || vector ? 0 : by_columns ? part.rows : part.cols; }
};
FactoredSlice factored_slice(const Program& p, const Param& param, std::size_t slice);
/// A tensor that Muon orthogonalises whole: this rank's part of it, and the whole, which is put together from
/// the pieces of `ranks` TP ranks. A piece has all tensors of the parameter, stacked as in this rank.
struct MuonSlice {
  MatrixSlice part;
  std::uint64_t rows, cols;  // of the whole
  std::uint32_t ranks;
  bool by_columns;      // the ranks divide columns, else rows
  std::uint64_t piece;  // elements of a rank's piece
  /// Index in the pieces of element [row, col] of the whole.
  std::uint64_t index(std::uint64_t row, std::uint64_t col) const {
    const std::uint64_t rank = by_columns ? col / part.cols : row / part.rows;
    return rank * piece + (part.first_row + (by_columns ? row : row % part.rows)) * part.cols +
           (by_columns ? col % part.cols : col);
  }
};
MuonSlice muon_slice(const Program& p, const Param& param, std::size_t slice);

/// One tensor of a checkpoint's state file in memory.
struct StateLocation {
  enum class Form : std::uint8_t { kF32, kCodes };
  TensorInfo info;  // as in state_tensors() of the whole model
  BufferId buffer = kNoBuffer;
  std::uint64_t byte = 0;  // of its first number or code
  Form form = Form::kF32;
  // The elements of the tensor, or of a TP rank's part of it, that the buffer has: all, or under ZeRO those
  // of this rank's shard; `byte` is that of the first one.
  Shard part{};
  // The gradient of the parameter, and the first element of the tensor in it. Of f32 state alone.
  BufferId grad = kNoBuffer;
  std::uint64_t first_element = 0;
};
/// All tensors of moment 1 or 2, in the order of state_tensors().
std::vector<StateLocation> state_locations(const Program& p, int moment);

}  // namespace trainhost::step
