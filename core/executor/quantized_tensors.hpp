// The frozen tensors of a run that are stored in NF4 (core/model/nf4.hpp): they are quantized by the CPU
// while they are loaded or initialised, and dequantized in pieces when they are saved (Storage::staged()).
// The values in f32 never exist as a whole.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/executor/backend.hpp"
#include "core/model/tensor_parts.hpp"
#include "trainhost/trainer.h"

namespace trainhost::executor {

class QuantizedTensors {
 public:
  QuantizedTensors(const step::Program& program, Storage& storage);

  /// `tensor`: index into Program::tensor_infos, here and below.
  bool contains(std::size_t tensor) const { return positions_[tensor].layout.elements != 0; }
  /// Elements [first, first + values.size()) of a tensor, or of a TP rank's part of it, whose pieces must
  /// arrive in order. Errors: abi::StatusError (TH_E_ARG) for a piece out of order and for values that are
  /// not finite.
  void load(std::size_t tensor, std::uint64_t first, std::span<const float> values);
  /// Initial values (core/model/tensors.hpp) of the part of the whole tensor that this rank has, computed on
  /// the backend's threads.
  void init(std::size_t tensor, const TensorInfo& whole, const TensorPart& part, std::uint64_t seed,
            Backend& backend);
  /// Calls to(first, values) with the dequantized values, a piece at a time, from the first to the last.
  void read(std::size_t tensor, const std::function<void(std::uint64_t, std::span<const float>)>& to);
  /// Copies the codes of a tensor to where the CPU can address them (Storage::staged()), for the next read()
  /// of it. Nothing where all memory is the CPU's.
  void stage(std::size_t tensor);
  /// The dequantized values from element `first` on. On a device: of the tensor that was staged last.
  void read(std::size_t tensor, std::uint64_t first, std::span<float> to);

 private:
  struct Position {
    nf4::Layout layout;  // elements = 0: the tensor is not quantized
    step::BufferId buffer = step::kNoBuffer;
    std::uint64_t first_byte = 0;
  };
  std::byte* data(const Position& p) { return storage_.staged(p.buffer, p.first_byte); }
  /// After the last block was quantized.
  void complete(const Position& p);
  float* scales() { return storage_.f32(scales_); }

  const step::Program& program_;
  Storage& storage_;
  std::vector<Position> positions_;          // by tensor
  step::BufferId scales_ = step::kNoBuffer;  // f32 scales of the tensor that is being loaded
  // The tensor that is being loaded: number of elements that arrived; those after the last whole block.
  std::size_t loading_ = SIZE_MAX;
  std::uint64_t arrived_ = 0;
  std::array<float, nf4::kBlock> rest_{};
  std::size_t rest_size_ = 0;
};

}  // namespace trainhost::executor
