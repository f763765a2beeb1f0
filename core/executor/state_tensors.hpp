// The optimizer state of a run by checkpoint name: which tensors exist and where they are, checks of what the
// host sends, and 8-bit moments as the numbers of a checkpoint. Copies no memory of a run: trainers do
// (run_tensors.cpp, plugins/cuda/engine/checkpoint_tensors.cpp).
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/step/state_layout.hpp"
#include "trainhost/trainer.h"

namespace trainhost::executor {

/// True for TH_SCOPE_MOMENT1 and TH_SCOPE_MOMENT2.
constexpr bool is_state_scope(std::uint32_t scope) {
  return scope == TH_SCOPE_MOMENT1 || scope == TH_SCOPE_MOMENT2;
}

class StateTensors {
 public:
  /// `trainer`: its name in messages. program must outlive it. An inference run has no state.
  StateTensors(const step::Program& program, std::string trainer);

  /// The tensors of a state scope, in checkpoint order.
  std::span<const step::StateLocation> of(std::uint32_t scope) const {
    return states_[index(scope)].locations;
  }
  /// The tensor that `piece` is a part of. Errors: abi::StatusError (TH_E_ARG) for a name, shape, type or
  /// range that the state does not have.
  const step::StateLocation& find(std::uint32_t scope, const th_tensor& piece) const;

 private:
  /// infos[i] is locations[i].info.
  struct State {
    std::vector<step::StateLocation> locations;
    std::vector<TensorInfo> infos;
  };
  static std::size_t index(std::uint32_t scope) { return scope - TH_SCOPE_MOMENT1; }

  const step::Program& program_;
  const std::string trainer_;
  std::array<State, 2> states_;  // moments 1 and 2
};

/// codes[i] = the code whose number is nearest to values[i]. Errors: abi::StatusError (TH_E_ARG) for a number
/// outside [-1, 1]; `info` is the tensor, for the message.
void encode_numbers(std::uint32_t scope, const TensorInfo& info, std::span<const float> values,
                    std::uint8_t* codes);
/// values[i] = the number of codes[i]
void decode_numbers(std::uint32_t scope, std::span<const std::uint8_t> codes, float* values);

}  // namespace trainhost::executor
