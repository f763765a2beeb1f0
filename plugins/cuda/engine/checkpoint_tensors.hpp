// Reads and writes the tensors of a run by their checkpoint names, as f32, whatever the type and memory tier
// of their parameter. Tensors in NF4 are quantised by the host on their way. Data passes through a
// page-locked staging buffer, one piece at a time. No work may be pending on the device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "core/executor/quantised_tensors.hpp"
#include "core/step/program.hpp"
#include "plugins/cuda/engine/arenas.hpp"

namespace trainhost::cuda {

enum class State : std::uint8_t { kWeights, kMoment1, kMoment2 };

/// Buffers of quantised tensors as the host addresses them: on a device through the planned staging buffer.
class QuantisedStorage final : public executor::Storage {
 public:
  QuantisedStorage(const step::Program& program, const Arenas& arenas, cudaStream_t stream);
  void* at(step::BufferId b) override { return arenas_.at(b); }
  std::byte* staged(step::BufferId b, std::uint64_t first) override;
  void load_staged(step::BufferId b, std::uint64_t first, std::uint64_t n) override;
  void store_staged(step::BufferId b, std::uint64_t first, std::uint64_t n) override;

 private:
  bool on_device(step::BufferId b) const { return program_[b].tier == Tier::kDevice; }
  const step::Program& program_;
  const Arenas& arenas_;
  cudaStream_t stream_;
  std::byte* staging_;  // page-locked, for the largest quantised tensor; null if there is none
};

class CheckpointTensors {
 public:
  /// All arguments must outlive it. Sets the optimizer moments to zero.
  CheckpointTensors(const step::Program& program, const Arenas& arenas, cudaStream_t stream);

  std::size_t count() const { return locations_.size(); }
  const TensorInfo& info(std::size_t tensor) const { return program_.tensor_infos[tensor]; }
  /// True if the run has this state of the tensor.
  bool has(std::size_t tensor, State s) const {
    return f32_buffer(locations_[tensor], s) != step::kNoBuffer || bf16_only(tensor, s);
  }
  /// Writes elements [first, first + n) of a tensor; pieces of a tensor in NF4 must arrive in order. `from`
  /// must not be the staging buffer.
  void write(std::size_t tensor, State s, std::uint64_t first, std::uint64_t n, const float* from);
  /// Calls to(first, n, data) for consecutive pieces of the tensor; data is valid only during the call.
  void read(std::size_t tensor, State s,
            const std::function<void(std::uint64_t, std::uint64_t, const float*)>& to);
  /// Elements of the staging buffer: the largest n that write() copies at once.
  std::uint64_t piece() const { return piece_; }

 private:
  /// The buffers that contain a tensor. q, k and v share a parameter, as do gate and up.
  struct Location {
    const step::Param* param;
    std::uint64_t first;  // first element of the tensor inside the parameter's buffers
  };
  step::BufferId f32_buffer(const Location& l, State s) const;
  bool bf16_only(std::size_t tensor, State s) const;
  void put(step::BufferId b, std::uint64_t first, std::uint64_t n, const void* staged, std::uint64_t element);

  const step::Program& program_;
  const Arenas& arenas_;
  cudaStream_t stream_;
  std::byte* staging_;               // page-locked, piece_ floats
  std::uint64_t piece_;              // f32 elements
  std::vector<Location> locations_;  // by index into Program::tensor_infos
  QuantisedStorage quantised_storage_;
  executor::QuantisedTensors quantised_;
};

}  // namespace trainhost::cuda
