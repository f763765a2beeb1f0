// See run_tensors.hpp. Names, shapes and pieces come from the host through the C interface: each is checked.
// A tensor may be a slice of a fused parameter (q, k and v in qkv), so it has a position in one.
#include "core/executor/run_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "core/model/optimizer_state.hpp"
#include "core/model/tensors.hpp"
#include "core/step/moment_codes.hpp"

namespace trainhost::executor {

// positions_ has, by tensor, the parameter and the offset of its slice in elements.
Tensors::Tensors(const step::Program& program, Storage& storage, std::string trainer)
    : program_(program),
      storage_(storage),
      trainer_(std::move(trainer)),
      quantised_(program, storage),
      positions_(program.tensor_infos.size()),
      loaded_(program.tensor_infos.size()) {
  for (const step::Param& p : program_.params)
    for (const step::Slice& s : p.slices) positions_[s.tensor] = {&p, s.first_element};
  if (program.run.mode == RunMode::kInference) return;
  for (int moment = 1; moment <= moment_count(program.run.optimizer); ++moment) {
    State& state = states_[static_cast<std::size_t>(moment - 1)];
    state.locations = step::state_locations(program, moment);
    for (const step::StateLocation& at : state.locations) state.infos.push_back(at.info);
  }
}

void Tensors::load(std::uint32_t scope, const th_tensor& t) {
  if (scope == TH_SCOPE_MOMENT1 || scope == TH_SCOPE_MOMENT2) return load_state(scope - TH_SCOPE_MOMENT1, t);
  const std::size_t i = find_tensor(program_, t, trainer_);
  require_scope(program_.tensor_infos[i], scope);
  if (quantised_.contains(i))
    quantised_.load(i, t.first, {static_cast<const float*>(t.data), t.count});
  else
    std::memcpy(weight(i) + t.first, t.data, t.count * sizeof(float));
  loaded_[i] += t.count;
  // Without a sum that could overflow.
  // Counts elements, so pieces may come in any order; a piece that is loaded again counts again.
}

void Tensors::load_state(std::size_t moment, const th_tensor& t) {
  const State& state = states_[moment];
  // A name that the model has, but not this moment: another optimizer, or a frozen weight.
  const bool of_model = t.name && std::ranges::any_of(program_.tensor_infos,
                                                      [&](const TensorInfo& i) { return i.name == t.name; });
  if (of_model && std::ranges::none_of(state.infos, [&](const TensorInfo& i) { return i.name == t.name; }))
    bad_argument(escaped(t.name) + ": the run has no such optimizer state");
  const step::StateLocation& at = state.locations[find_tensor(state.infos, t, trainer_)];
  const auto* from = static_cast<const float*>(t.data);
  if (at.form == step::StateLocation::Form::kF32) {
    std::memcpy(floats(at) + t.first, from, t.count * sizeof(float));
    return;
  }
  const step::MomentCodes& map = step::moment_codes(moment == 0);
  for (std::uint64_t i = 0; i < t.count; ++i) {
    if (!(std::abs(from[i]) <= 1.0f))
      bad_argument(at.info.name + ": 8-bit moments are numbers of [-1, 1], not " + std::to_string(from[i]));
    codes(at)[t.first + i] = map.code(from[i]);
  }
}

// Divided into pieces of 64K elements, so that one large tensor occupies all threads. The values depend only
// on the element.
void Tensors::init(std::uint64_t seed, Backend& backend) {
  constexpr std::uint64_t kPiece = 1 << 16;
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    const TensorInfo& info = program_.tensor_infos[i];
    const std::uint64_t n = info.elements();
    // Completely loaded. A partly loaded tensor is overwritten as a whole.
    if (loaded_[i] >= n) continue;
    if (quantised_.contains(i)) {
      quantised_.init(i, seed, backend);
      continue;
    }
    float* to = weight(i);
    backend.for_each(static_cast<std::uint32_t>((n + kPiece - 1) / kPiece), [&](std::uint32_t p) {
      const std::uint64_t first = p * kPiece, count = std::min(kPiece, n - first);
      init_tensor(program_.model, info, seed, first, std::span<float>(to + first, count));
    });
  }
}

void Tensors::save(std::uint32_t scope, th_tensor_sink& sink) {
  if (scope == TH_SCOPE_MOMENT1 || scope == TH_SCOPE_MOMENT2)
    return save_state(scope - TH_SCOPE_MOMENT1, sink);
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    if (!is_in_scope(program_.tensor_infos[i], scope)) continue;
    if (quantised_.contains(i)) {
      quantised_.save(i, sink);
      continue;
    }
    th_tensor t = describe_tensor(program_.tensor_infos[i]);
    t.data = weight(i);
    send_tensor(sink, t);
  }
}

/// 8-bit moments are sent as the numbers of their codes, a piece at a time.
void Tensors::save_state(std::size_t moment, th_tensor_sink& sink) {
  constexpr std::uint64_t kPiece = 16384;
  const step::MomentCodes& map = step::moment_codes(moment == 0);
  std::vector<float> values;
  for (const step::StateLocation& at : states_[moment].locations) {
    th_tensor t = describe_tensor(at.info);
    if (at.form == step::StateLocation::Form::kF32) {
      t.data = floats(at);
      send_tensor(sink, t);
      continue;
    }
    values.resize(kPiece);
    for (std::uint64_t first = 0; first < at.info.elements(); first += kPiece) {
      t.first = first, t.count = std::min(kPiece, at.info.elements() - first), t.data = values.data();
      for (std::uint64_t i = 0; i < t.count; ++i) values[i] = map.value[codes(at)[first + i]];
      send_tensor(sink, t);
    }
  }
}

}  // namespace trainhost::executor
