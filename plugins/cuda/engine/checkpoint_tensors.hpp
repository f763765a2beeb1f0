// Reads and writes the weights and the optimizer state of a run by their checkpoint names, as f32, whatever
// their type and memory tier. The host quantizes tensors in NF4 and encodes 8-bit moments on their way. Data
// passes through a page-locked staging buffer, one piece at a time. No work may be pending on the device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/base/collectives.hpp"
#include "core/executor/quantized_tensors.hpp"
#include "core/executor/rank_operations.hpp"
#include "core/executor/state_tensors.hpp"
#include "core/model/tensor_parts.hpp"
#include "core/step/program.hpp"
#include "plugins/cuda/engine/arenas.hpp"

namespace trainhost::cuda {

/// Buffers of quantized tensors as the host addresses them: on a device through the planned staging buffer.
class QuantizedStorage final : public executor::Storage {
 public:
  QuantizedStorage(const step::Program& program, const Arenas& arenas, cudaStream_t stream);
  void* at(step::BufferId b) override { return arenas_.at(b); }
  std::byte* staged(step::BufferId b, std::uint64_t first) override;
  void load_staged(step::BufferId b, std::uint64_t first, std::uint64_t n) override;
  void store_staged(step::BufferId b, std::uint64_t first, std::uint64_t n) override;

 private:
  bool on_device(step::BufferId b) const { return program_[b].tier == Tier::kDevice; }
  const step::Program& program_;
  const Arenas& arenas_;
  cudaStream_t stream_;
  std::byte* staging_;  // page-locked, for the largest quantized tensor; null if there is none
};

class CheckpointTensors {
 public:
  /// All arguments must outlive it. Sets the optimizer moments to zero. ranks: those of the run in host
  /// memory; null in a run of one rank.
  CheckpointTensors(const step::Program& program, const Arenas& arenas, cudaStream_t stream,
                    Collectives* ranks);

  std::size_t count() const { return locations_.size(); }
  /// A tensor of the whole model, of which a TP rank has a part.
  const TensorInfo& info(std::size_t tensor) const { return whole_[tensor]; }
  std::span<const TensorInfo> infos() const { return whole_; }
  /// The tensor that this rank has of a whole one.
  TensorInfo info_of_own_part(const TensorInfo& whole) const { return info_of_part(whole, part_of(whole)); }
  /// Writes what this rank has of elements [first, first + n) of a weight; pieces of a tensor in NF4 must
  /// arrive in order. `from` must not be the staging buffer.
  void write(std::size_t tensor, std::uint64_t first, std::uint64_t n, const float* from);
  using Sink = std::function<void(std::uint64_t first, std::uint64_t n, const float* data)>;
  /// Calls `to` for consecutive pieces of the weight; data is valid only during the call. What is divided
  /// among the ranks comes from all of them, which call it together: what TP ranks divide, state under ZeRO,
  /// weights under ZeRO 3, and under ZeRO 1 and 2 those with a master copy. own_part: only what
  /// executor::elements_to_write() says, from this rank alone; elements are those of info_of_own_part().
  void read(std::size_t tensor, bool own_part, const Sink& to);
  /// The same for a tensor of optimizer state. Errors: abi::StatusError (TH_E_ARG) for a number that is no
  /// 8-bit moment.
  void write_state(std::uint32_t scope, const step::StateLocation& at, std::uint64_t first,
                   std::span<const float> values);
  void read_state(std::uint32_t scope, const step::StateLocation& at, bool own_part, const Sink& to);
  /// Elements of the staging buffer: the largest n that write() copies at once.
  std::uint64_t piece() const { return piece_; }

 private:
  /// The buffers that contain a tensor. q, k and v share a parameter, as do gate and up.
  struct Location {
    const step::Param* param;
    std::uint64_t first;  // first element of the tensor inside the parameter's buffers
  };
  TensorPart part_of(const TensorInfo& whole) const;
  bool is_divided(const TensorInfo& whole) const;
  std::span<const float> elements_of_part(const TensorInfo& whole, std::uint64_t& first,
                                          std::span<const float> values);
  void write_part(std::size_t tensor, std::uint64_t first, std::span<const float> values);
  step::BufferId f32_weight(const Location& l) const;
  void put(step::BufferId b, std::uint64_t first, std::uint64_t n, const void* staged);
  void put_present(step::BufferId b, std::uint64_t at, std::span<const float> values);
  void fetch_floats(step::BufferId b, std::uint64_t first, std::uint64_t n, float* to);
  const std::byte* fetch(step::BufferId b, std::uint64_t first, std::uint64_t n);
  void gather(const executor::DividedTensor& tensor, const Sink& to);

  const step::Program& program_;
  const Arenas& arenas_;
  cudaStream_t stream_;
  std::byte* staging_;               // page-locked, piece_ floats
  std::uint64_t piece_;              // f32 elements
  Collectives* const ranks_;         // null in a run of one rank
  std::vector<TensorInfo> whole_;    // tensors of the whole model
  std::vector<Location> locations_;  // by index into Program::tensor_infos, likewise
  std::vector<float> of_part_;       // scratch of elements_of_part()
  QuantizedStorage quantized_storage_;
  executor::QuantizedTensors quantized_;
};

}  // namespace trainhost::cuda
