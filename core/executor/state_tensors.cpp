// See state_tensors.hpp.
#include "core/executor/state_tensors.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "core/base/text.hpp"
#include "core/executor/host_arguments.hpp"
#include "core/model/optimizer_state.hpp"
#include "core/step/moment_codes.hpp"

namespace trainhost::executor {

StateTensors::StateTensors(const step::Program& program, std::string trainer)
    : program_(program), trainer_(std::move(trainer)) {
  if (program.run.mode == RunMode::kInference) return;
  for (int moment = 1; moment <= moment_count(program.run.optimizer); ++moment) {
    State& state = states_[static_cast<std::size_t>(moment - 1)];
    state.locations = step::state_locations(program, moment);
    for (const step::StateLocation& at : state.locations) state.infos.push_back(at.info);
  }
}

const step::StateLocation& StateTensors::find(std::uint32_t scope, const th_tensor& piece) const {
  assert(is_state_scope(scope));
  const State& state = states_[index(scope)];
  const auto named = [&](const TensorInfo& i) { return i.name == piece.name; };
  // A name that the model has, but not this moment: another optimizer, or a frozen weight.
  if (piece.name && std::ranges::any_of(program_.tensor_infos, named) &&
      std::ranges::none_of(state.infos, named))
    bad_argument(escaped(piece.name) + ": the run has no such optimizer state");
  return state.locations[find_tensor(state.infos, piece, trainer_)];
}

void encode_numbers(std::uint32_t scope, const TensorInfo& info, std::span<const float> values,
                    std::uint8_t* codes) {
  const step::MomentCodes& map = step::moment_codes(scope == TH_SCOPE_MOMENT1);
  for (const float x : values) {
    if (!(std::abs(x) <= 1.0f))
      bad_argument(info.name + ": 8-bit moments are numbers of [-1, 1], not " + std::to_string(x));
    *codes++ = map.code(x);
  }
}

void decode_numbers(std::uint32_t scope, std::span<const std::uint8_t> codes, float* values) {
  const step::MomentCodes& map = step::moment_codes(scope == TH_SCOPE_MOMENT1);
  for (const std::uint8_t code : codes) *values++ = map.value[code];
}

}  // namespace trainhost::executor
