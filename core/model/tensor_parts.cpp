// See tensor_parts.hpp. The division is that of Megatron-LM (Shoeybi et al. 2019): the two products of an
// attention block, and of an MLP, need one sum over the ranks.
#include "core/model/tensor_parts.hpp"

#include <string>

#include "core/base/error.hpp"
#include "core/model/run_rules.hpp"

namespace trainhost {

void require_divisible(const ModelSpec& whole, const Parallelism& p) {
  const struct {
    std::uint64_t value;
    const char* of;
  } divided[] = {{whole.heads, "attention heads (num_attention_heads)"},
                 {whole.kv_heads, "key/value heads (num_key_value_heads)"},
                 {whole.intermediate, "outputs of gate and up (intermediate_size)"},
                 {whole.vocab, "tokens of the vocabulary (vocab_size)"}};
  for (const auto& d : divided)
    if (d.value % p.tensor)
      throw usage_error("parallel.tensor = " + std::to_string(p.tensor) + " does not divide " +
                            std::to_string(d.value) + " " + d.of,
                        nearest_divisors(p.tensor, d.value));
}

ModelSpec part_of_model(const ModelSpec& whole, const Parallelism& p) {
  ModelSpec m = whole;
  m.heads /= p.tensor, m.kv_heads /= p.tensor, m.intermediate /= p.tensor, m.vocab /= p.tensor;
  return m;
}

ModelSpec whole_of_model(const ModelSpec& part, const Parallelism& p) {
  ModelSpec m = part;
  m.heads *= p.tensor, m.kv_heads *= p.tensor, m.intermediate *= p.tensor, m.vocab *= p.tensor;
  return m;
}

static Division division_of_matrix(TensorRole role) {
  switch (role) {
    case TensorRole::kEmbed:
    case TensorRole::kQ:
    case TensorRole::kK:
    case TensorRole::kV:
    case TensorRole::kQBias:
    case TensorRole::kKBias:
    case TensorRole::kVBias:
    case TensorRole::kGate:
    case TensorRole::kUp:
    case TensorRole::kGateBias:
    case TensorRole::kUpBias:
    case TensorRole::kHead:
      return Division::kRows;
    case TensorRole::kO:
    case TensorRole::kDown:
      return Division::kColumns;
    case TensorRole::kNorm1:
    case TensorRole::kQNorm:
    case TensorRole::kKNorm:
    case TensorRole::kOBias:
    case TensorRole::kNorm2:
    case TensorRole::kDownBias:
    case TensorRole::kFinalNorm:
      break;
  }
  return Division::kNone;
}

static Division division_of_elements(const TensorInfo& t) {
  const Division matrix = division_of_matrix(t.role);
  if (t.role == TensorRole::kEmbed && t.part != AdapterPart::kNone)
    return t.part == AdapterPart::kA ? Division::kRows : Division::kNone;
  if (t.part == AdapterPart::kNone || (t.part == AdapterPart::kA && matrix == Division::kColumns) ||
      (t.part != AdapterPart::kA && matrix == Division::kRows))
    return matrix;
  return Division::kNone;
}

Division division_of(const TensorInfo& t) {
  const Division elements = division_of_elements(t);
  if (t.state == StatePart::kRows && elements == Division::kColumns) return Division::kNone;
  if (t.state == StatePart::kColumns)  // a vector
    return elements == Division::kColumns ? Division::kRows : Division::kNone;
  return elements;
}

std::uint64_t elements_of_whole(const TensorInfo& part, const Parallelism& p) {
  return division_of(part) == Division::kNone ? part.elements() : part.elements() * p.tensor;
}

bool has_part_of_gradient(const TensorInfo& t, const Parallelism& p) {
  if (p.tensor == 1) return false;
  if (t.part != AdapterPart::kNone) return division_of(t) == Division::kNone;
  const TensorRole r = t.role;
  return r == TensorRole::kQNorm || r == TensorRole::kKNorm ||
         (p.sequence && (r == TensorRole::kNorm1 || r == TensorRole::kNorm2 || r == TensorRole::kFinalNorm));
}

std::uint64_t TensorPart::elements_before(std::uint64_t whole) const {
  const std::uint64_t row = whole / cols, col = whole % cols;
  if (row < first_row) return 0;
  if (row >= first_row + part_rows) return elements();
  return (row - first_row) * part_cols + std::min(part_cols, col - std::min(col, first_col));
}

TensorPart part_of_tensor(const TensorInfo& whole, const Parallelism& p, std::uint32_t rank) {
  const std::uint64_t cols = whole.state == StatePart::kBlocks ? whole.blocks_per_row : whole.dim[1],
                      rows = whole.elements() / cols;
  TensorPart t{rows, cols, 0, rows, 0, cols};
  if (p.tensor == 1) return t;
  const Division division = division_of(whole);
  if (division == Division::kRows) t.part_rows /= p.tensor, t.first_row = rank * t.part_rows;
  if (division == Division::kColumns) t.part_cols /= p.tensor, t.first_col = rank * t.part_cols;
  return t;
}

TensorInfo info_of_part(const TensorInfo& whole, const TensorPart& part) {
  TensorInfo out = whole;
  if (whole.rank == 2)
    out.dim = {part.part_rows, part.part_cols};
  else
    out.dim = {part.elements(), 1};
  return out;
}

}  // namespace trainhost
