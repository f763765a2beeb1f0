// See state_layout.hpp.
#include "core/step/state_layout.hpp"

#include <algorithm>
#include <cassert>
#include <string>
#include <unordered_map>

#include "core/model/tensor_parts.hpp"

namespace trainhost::step {
namespace {

constexpr std::string_view kScales = ".absmax";

bool is_coded(std::uint64_t elements) { return elements >= kSmallest8bitTensor; }
/// The size of the whole tensor decides, also for a part of it on a TP rank.
bool is_coded(const Program& p, const Slice& s) {
  return is_coded(elements_of_whole(p.tensor_infos[s.tensor], p.run.parallel));
}
std::uint64_t floats_of(std::uint64_t elements, bool coded) {
  return coded ? moment_blocks(elements) : elements;
}

}  // namespace

std::vector<Moment8bit> moments_8bit(const Program& p, const Param& param) {
  std::vector<Moment8bit> out;
  std::uint64_t floats = 0, codes = 0;
  for (const Slice& s : param.slices) {
    const std::uint64_t n = p.tensor_infos[s.tensor].elements();
    const bool coded = is_coded(p, s);
    out.push_back({s.first_element, n, coded, floats, codes});
    floats += floats_of(n, coded) * sizeof(float);
    if (coded) codes += n;
  }
  for (Moment8bit& m : out) m.codes += floats;
  return out;
}

std::uint64_t bytes_of_moments_8bit(const Program& p, std::span<const Slice> slices) {
  std::uint64_t bytes = 0;
  bool any = false;
  for (const Slice& s : slices) {
    const std::uint64_t n = p.tensor_infos[s.tensor].elements();
    const bool coded = is_coded(p, s);
    bytes += floats_of(n, coded) * sizeof(float) + (coded ? n : 0);
    any = any || coded;
  }
  return any ? bytes : 0;
}

const Param& param_of_gradient(const Program& p, BufferId grad) {
  const auto found =
      std::find_if(p.params.begin(), p.params.end(), [&](const Param& q) { return q.grad == grad; });
  assert(found != p.params.end() && "the gradient of a parameter");
  return *found;
}

MatrixSlice matrix_slice(const Program& p, const Param& param, std::size_t slice) {
  const Slice& s = param.slices[slice];
  const TensorInfo& t = p.tensor_infos[s.tensor];
  const std::uint64_t cols = t.rank == 1 ? 1 : t.dim[1];
  return {s.first_element / cols, t.dim[0], cols};
}

bool is_divided_among_tensor_ranks(const Program& p, const Param& param) {
  return p.run.parallel.tensor > 1 && p.run.mode != RunMode::kInference &&
         division_of(p.tensor_infos[param.slices.front().tensor]) != Division::kNone;
}

const Param& param_of_direction(const Program& p, BufferId direction) {
  const Buffer& x = p[direction];
  const auto found = std::find_if(p.params.begin(), p.params.end(), [&](const Param& q) {
    return q.grad != kNoBuffer && p[q.grad].layer == x.layer && std::string_view(p[q.grad].role) == x.role;
  });
  assert(found != p.params.end() && "the direction of a parameter");
  return *found;
}

MuonSlice muon_slice(const Program& p, const Param& param, std::size_t slice) {
  const MatrixSlice part = matrix_slice(p, param, slice);
  const bool divided = is_divided_among_tensor_ranks(p, param);
  const std::uint32_t ranks = divided ? p.run.parallel.tensor : 1;
  const bool by_columns =
      divided && division_of(p.tensor_infos[param.slices[slice].tensor]) == Division::kColumns;
  return {part,
          checked_mul(part.rows, by_columns ? 1 : ranks),
          checked_mul(part.cols, by_columns ? ranks : 1),
          ranks,
          by_columns,
          p[param.grad].rows * p[param.grad].cols};
}

FactoredSlice factored_slice(const Program& p, const Param& param, std::size_t slice) {
  const MatrixSlice part = matrix_slice(p, param, slice);
  const bool divided = is_divided_among_tensor_ranks(p, param);
  const bool by_columns =
      divided && division_of(p.tensor_infos[param.slices[slice].tensor]) == Division::kColumns;
  const std::uint64_t ranks = divided ? p.run.parallel.tensor : 1;
  return {part,
          checked_mul(part.rows, by_columns ? 1 : ranks),
          checked_mul(part.cols, by_columns ? ranks : 1),
          divided,
          by_columns,
          !param.decay};
}

std::vector<StateLocation> state_locations(const Program& p, int moment) {
  std::unordered_map<std::string, StateLocation> by_name;
  for (const Param& q : p.params) {
    const BufferId b = moment == 1 ? q.m : q.v;
    if (p.run.parallel.zero > 0 && q.grad != kNoBuffer) {
      // The buffer has a range of the parameter's elements, which may end inside a tensor.
      const Shard shard = p[q.grad].whole ? present_elements(p, q.grad) : updated_elements(p, q.grad);
      for (const Slice& s : q.slices) {
        const TensorInfo& t = p.tensor_infos[s.tensor];
        const std::uint64_t begin = std::max(s.first_element, shard.first),
                            end = std::min(s.first_element + t.elements(), shard.first + shard.count);
        StateLocation& at = by_name[t.name];
        at.grad = q.grad, at.first_element = s.first_element;
        if (begin >= end || b == kNoBuffer) continue;  // the shard of this rank has nothing of the tensor
        at.buffer = b, at.byte = (begin - shard.first) * sizeof(float);
        at.part = {begin - s.first_element, end - begin};
      }
      continue;
    }
    if (b == kNoBuffer) continue;
    const Optimizer o = optimizer_of(p.run.optimizer, p.tensor_infos[q.slices.front().tensor]);
    if (p[b].dtype == DType::kU8) {
      const std::vector<Moment8bit> moments = moments_8bit(p, q);
      for (std::size_t i = 0; i < moments.size(); ++i) {
        const std::string& name = p.tensor_infos[q.slices[i].tensor].name;
        const Moment8bit& m = moments[i];
        using Form = StateLocation::Form;
        by_name[name] = {{}, b, m.coded ? m.codes : m.floats, m.coded ? Form::kCodes : Form::kF32};
        if (m.coded) by_name[name + std::string(kScales)] = {{}, b, m.floats, Form::kF32};
      }
      continue;
    }
    for (std::size_t i = 0; i < q.slices.size(); ++i) {
      const TensorInfo& t = p.tensor_infos[q.slices[i].tensor];
      std::uint64_t first = q.slices[i].first_element;
      if (o == Optimizer::kAdafactor && t.rank == 2)
        first = moment == 1 ? matrix_slice(p, q, i).first_row : i * t.dim[1];
      by_name[t.name] = {{}, b, first * sizeof(float), StateLocation::Form::kF32, {}, q.grad, first};
    }
  }
  std::vector<StateLocation> out;
  const Parallelism& ranks = p.run.parallel;
  for (const TensorInfo& t : state_tensors(whole_of_model(p.model, ranks), p.run, moment)) {
    const auto found = by_name.find(t.name);
    assert(found != by_name.end() && "every state tensor has a buffer");
    out.push_back(found->second);
    out.back().info = t;
    if (ranks.zero == 0) out.back().part = {0, part_of_tensor(t, ranks, 0).elements()};
  }
  return out;
}

}  // namespace trainhost::step
