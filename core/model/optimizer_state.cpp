// See optimizer_state.hpp.
#include "core/model/optimizer_state.hpp"

#include <cassert>
#include <utility>

#include "core/base/checked.hpp"
#include "core/model/adapters.hpp"

namespace trainhost {

Optimizer optimizer_of(Optimizer o, const TensorInfo& t) {
  if (o == Optimizer::kMuon && (t.rank < 2 || t.layer < 0)) return Optimizer::kAdamW;
  if (o == Optimizer::kAdamW8bit && t.elements() < kSmallest8bitTensor) return Optimizer::kAdamW;
  return o;
}

int moment_count(Optimizer o) {
  switch (o) {
    case Optimizer::kSgd:
      return 0;
    case Optimizer::kSgdMomentum:
    case Optimizer::kLion:
      return 1;
    // Muon's second file has the moments of the tensors that AdamW updates.
    case Optimizer::kAdamW:
    case Optimizer::kAdafactor:
    case Optimizer::kMuon:
    case Optimizer::kAdamW8bit:
      break;
  }
  return 2;
}

std::vector<TensorInfo> state_tensors(const ModelSpec& m, const RunSpec& r, int moment) {
  assert(moment == 1 || moment == 2);
  std::vector<TensorInfo> out;
  for (TensorInfo& t : trained_tensors(m, r)) {
    const Optimizer o = optimizer_of(r.optimizer, t);
    if (moment > (o == Optimizer::kMuon ? 1 : moment_count(o))) continue;
    if (o == Optimizer::kAdafactor && t.rank < 2 && moment == 2) continue;
    if (o == Optimizer::kAdafactor && t.rank == 2) {
      t.rank = 1, t.dim = {t.dim[moment == 1 ? 0 : 1], 1};
      t.state = moment == 1 ? StatePart::kRows : StatePart::kColumns;
    }
    if (o == Optimizer::kAdamW8bit) {
      TensorInfo scales = t;
      scales.name += ".absmax", scales.rank = 1, scales.dim = {moment_blocks(t.elements()), 1};
      scales.state = StatePart::kBlocks;
      if (t.rank == 2 && t.dim[1] % kMomentBlock == 0) scales.blocks_per_row = t.dim[1] / kMomentBlock;
      out.push_back(std::move(scales));
    }
    out.push_back(std::move(t));
  }
  return out;
}

std::uint64_t count_state_elements(const ModelSpec& m, const RunSpec& r) {
  std::uint64_t sum = count_saved_parameters(m, r);
  for (int moment = 1; moment <= moment_count(r.optimizer); ++moment)
    for (const TensorInfo& t : state_tensors(m, r, moment)) sum = checked_add(sum, t.elements());
  return sum;
}

}  // namespace trainhost
