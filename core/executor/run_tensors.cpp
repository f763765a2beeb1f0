// See run_tensors.hpp. Names, shapes and pieces come from the host through the C interface: each is checked.
// A tensor may be a slice of a fused parameter (q, k and v in qkv), so it has a position in one.
#include "core/executor/run_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::executor {

// positions_ has, by tensor, the parameter and the offset of its slice in elements.
Tensors::Tensors(const step::Program& program, Storage& storage, std::string trainer)
    : program_(program),
      storage_(storage),
      trainer_(std::move(trainer)),
      positions_(program.tensor_infos.size()),
      loaded_(program.tensor_infos.size()) {
  for (const step::Param& p : program_.params)
    for (const step::Slice& s : p.slices) positions_[s.tensor] = {&p, s.first_element};
}

float* Tensors::data(const Position& position, std::uint32_t scope) {
  const bool weight = scope == TH_SCOPE_WEIGHTS || scope == TH_SCOPE_ADAPTER;
  const step::BufferId b = weight                      ? position.param->weight
                           : scope == TH_SCOPE_MOMENT1 ? position.param->m
                           : scope == TH_SCOPE_MOMENT2 ? position.param->v
                                                       : step::kNoBuffer;
  // nullptr: this optimizer has no such moment.
  return b == step::kNoBuffer ? nullptr : storage_.f32(b) + position.first;
}

void Tensors::load(std::uint32_t scope, const th_tensor& t) {
  const std::size_t i = find_tensor(program_, t, trainer_);
  require_scope(program_.tensor_infos[i], scope);
  float* to = data(positions_[i], scope);
  if (!to) bad_argument(program_.tensor_infos[i].name + ": the run has no such optimizer state");
  std::memcpy(to + t.first, t.data, t.count * sizeof(float));
  if (scope == TH_SCOPE_WEIGHTS || scope == TH_SCOPE_ADAPTER) loaded_[i] += t.count;
  // Without a sum that could overflow.
  // Counts elements, so pieces may come in any order; a piece that is loaded again counts again.
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
    float* to = data(positions_[i], TH_SCOPE_WEIGHTS);
    backend.for_each(static_cast<std::uint32_t>((n + kPiece - 1) / kPiece), [&](std::uint32_t p) {
      const std::uint64_t first = p * kPiece, count = std::min(kPiece, n - first);
      init_tensor(program_.model, info, seed, first, std::span<float>(to + first, count));
    });
  }
}

void Tensors::save(std::uint32_t scope, th_tensor_sink& sink) {
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    if (!is_in_scope(program_.tensor_infos[i], scope)) continue;
    float* from = data(positions_[i], scope);
    if (!from) continue;  // the optimizer does not have this moment, or the weight is frozen
    th_tensor t = describe_tensor(program_.tensor_infos[i]);
    t.data = from;
    send_tensor(sink, t);
  }
}

}  // namespace trainhost::executor
