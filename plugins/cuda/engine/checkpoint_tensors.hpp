// The tensors of a run by their checkpoint names: in and out, a page-locked piece at a time, wherever their
// parameter lies and in whatever type. Nothing may be under way on the device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "core/step/program.hpp"
#include "plugins/cuda/engine/arenas.hpp"

namespace trainhost::cuda {

enum class State : std::uint8_t { kWeights, kMoment1, kMoment2 };

class CheckpointTensors {
 public:
  CheckpointTensors(const step::Program& program, const Arenas& arenas, cudaStream_t stream);

  std::size_t count() const { return places_.size(); }
  const TensorInfo& info(std::size_t tensor) const { return program_.tensor_infos[tensor]; }
  /// Does the run keep this state of the tensor?
  bool has(std::size_t tensor, State s) const {
    return f32_home(places_[tensor], s) != step::kNoBuffer || half_only(tensor, s);
  }
  /// Elements [first, first + n) of a tensor, f32.
  void write(std::size_t tensor, State s, std::uint64_t first, std::uint64_t n, const float* from);
  /// Calls to(first, n, data) for pieces in order; data is valid inside the call.
  void read(std::size_t tensor, State s,
            const std::function<void(std::uint64_t, std::uint64_t, const float*)>& to);
  /// Room for a piece that write() may be given: not the buffer that it copies from.
  std::uint64_t piece() const { return piece_; }

 private:
  struct Place {
    const step::Param* param;
    std::uint64_t first;  // element inside the parameter's buffer
  };
  step::BufferId f32_home(const Place& p, State s) const;
  bool half_only(std::size_t tensor, State s) const;
  void put(step::BufferId b, std::uint64_t first, std::uint64_t n, const void* staged, std::uint64_t element);

  const step::Program& program_;
  const Arenas& arenas_;
  cudaStream_t stream_;
  std::byte* staging_;
  std::uint64_t piece_;  // elements of f32
  std::vector<Place> places_;
};

}  // namespace trainhost::cuda
