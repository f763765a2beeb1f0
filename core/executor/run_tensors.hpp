// The tensors of a run by checkpoint name: load, save and initialise. Every piece from the host is checked
// before it is copied. For parameters in f32, or in bf16 with an f32 master copy unless they are frozen, in
// memory that the CPU can address. Pieces are f32: the master copy, and the numbers of 8-bit moments.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/executor/backend.hpp"
#include "core/executor/host_arguments.hpp"
#include "core/executor/quantized_tensors.hpp"
#include "core/executor/rank_operations.hpp"
#include "core/executor/state_tensors.hpp"

namespace trainhost::executor {

class Tensors {
 public:
  /// `trainer`: the trainer's name in messages. The other arguments must outlive it.
  Tensors(const step::Program& program, Storage& storage, RankOperations& ranks, std::string trainer);

  /// Copies a piece of a tensor into its parameter (scope: TH_SCOPE_*). Errors: abi::StatusError (TH_E_ARG)
  /// for a name, shape, type or range that the model does not have, and for optimizer state that the run does
  /// not have.
  void load(std::uint32_t scope, const th_tensor& t);
  /// Initialises the weights that load() did not set completely (core/model/tensors.hpp), on the backend's
  /// threads. Magnitudes of DoRA last, because they follow from the other weights. Under ZeRO 3 or tensor
  /// parallelism with DoRA all ranks initialise together, and have loaded the same tensors.
  void init(std::uint64_t seed, Backend& backend);
  /// Passes every tensor of that scope to the sink, complete and in order, in checkpoint order. Optimizer
  /// state and master copies under ZeRO, weights under ZeRO 3, and all of them under tensor parallelism come
  /// from all ranks, which therefore save together. With TH_SAVE_OWN_PART: what elements_to_write() says,
  /// from this rank alone.
  void save(std::uint32_t scope, th_tensor_sink& sink);

 private:
  /// Position of a weight: its parameter and its first element in the parameter's buffers.
  struct Position {
    const step::Param* param = nullptr;
    std::uint64_t first = 0;
  };
  /// The elements of a tensor, or of a TP rank's part of it, that this rank has: all, or under ZeRO those in
  /// its shard of the parameter. `to`: the first of them, f32 or bf16.
  struct Present {
    std::uint64_t first = 0, count = 0;
    void* to = nullptr;
    DType type = DType::kF32;

    /// Calls f(element of the rank's part, values) for all of them, in order.
    void for_values(const std::function<void(std::uint64_t first, std::span<const float> values)>& f) const;
    /// Stores values from element `at` of the rank's part on, all of them present, in this type.
    void store(std::uint64_t at, std::span<const float> values) const;
  };
  /// In the buffer of the weight, or in that of its master copy.
  Present present(std::size_t tensor, step::BufferId buffer);
  /// The values of a weight that a checkpoint has: its master copy, or the weight itself, in f32, or in bf16
  /// if it is frozen. kNoBuffer on a rank that has no element of a master copy that the ranks divide.
  struct SavedWeight {
    step::BufferId buffer;
    bool sharded;
  };
  SavedWeight saved_weight(const step::Param& p) const;
  /// Stores elements of the rank's part of a tensor, from `first` on, where this rank has them: in the weight
  /// and in its master copy.
  void store_weight(std::size_t tensor, std::uint64_t first, std::span<const float> values);
  static void copy_present(std::span<const float> piece, std::uint64_t first, const Present& here,
                           const TensorPart& part);
  /// Of a tensor of the whole model, this rank's part.
  TensorPart part_of(const TensorInfo& whole) const;
  /// Passes the elements of a weight of the whole model to `to`, a part at a time, in order. Where no rank
  /// has all weights all ranks call it, and each gets all parts.
  void read_weight(std::size_t tensor,
                   const std::function<void(std::uint64_t first, std::span<const float> values)>& to);
  float* floats(const step::StateLocation& at) {
    return reinterpret_cast<float*>(static_cast<std::byte*>(storage_.at(at.buffer)) + at.byte);
  }
  std::uint8_t* codes(const step::StateLocation& at) {
    return static_cast<std::uint8_t*>(storage_.at(at.buffer)) + at.byte;
  }
  /// Those of initial_magnitudes.hpp.
  void init_magnitudes(std::size_t tensor);
  void load_state(std::uint32_t scope, const th_tensor& t);
  void save_state(std::uint32_t scope, th_tensor_sink& sink);
  void save_own(std::uint32_t scope, th_tensor_sink& sink);
  void save_own_state(std::uint32_t scope, th_tensor_sink& sink);

  const step::Program& program_;
  Storage& storage_;
  RankOperations& ranks_;
  const std::string trainer_;
  const std::vector<TensorInfo> whole_;  // the tensors of the whole model: as the host knows them
  QuantizedTensors quantized_;
  StateTensors states_;
  std::vector<Position> positions_;    // by index into program_.tensor_infos
  std::vector<std::uint64_t> loaded_;  // number of elements of each tensor that load() set
};

}  // namespace trainhost::executor
