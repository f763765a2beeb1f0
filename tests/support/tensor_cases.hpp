// Runs on several tensor-parallel ranks for tests of trainers: models that the ranks divide, and cases.
#pragma once
#include "core/model/tensor_parts.hpp"
#include "tests/support/rank_runs.hpp"

namespace trainhost::test {

/// A small model of which each of `tensor` ranks has a part of the original size.
inline NamedModel divided_model(std::size_t i, std::uint32_t tensor) {
  NamedModel m = small_models()[i];
  Parallelism p;
  p.tensor = tensor;
  m.spec = whole_of_model(m.spec, p);
  return m;
}

/// A model whose matrices have blocks of 256 elements that 2 ranks do not divide, some of them in rows of o
/// and down, and k and v of 4,096 elements, the smallest with 8-bit moments.
inline NamedModel model_of_blocks() {
  NamedModel m = small_models()[1];
  m.spec.hidden = 16, m.spec.heads = 4, m.spec.kv_heads = 2, m.spec.head_dim = 128, m.spec.intermediate = 512;
  m.spec.vocab = 64, m.spec.layers = 2;
  m.what = "blocks of 256 elements";
  return m;
}

inline RankCase tensor_case(std::size_t model, std::uint32_t tensor, std::uint32_t data, std::uint32_t zero,
                            Recompute recompute = Recompute::kNone) {
  RankCase c{divided_model(model, tensor), data, zero, recompute};
  c.tensor = tensor;
  return c;
}

/// With sequences that the tensor-parallel ranks divide.
inline RankCase with_sequence(RankCase c) {
  c.sequence = true, c.model.seq = (c.model.seq + c.tensor - 1) / c.tensor * c.tensor;
  return c;
}

/// Runs of Adafactor: of matrices that the ranks divide by rows and by columns, of biases, and beside
/// adapters.
inline std::vector<RankCase> adafactor_cases() {
  std::vector<RankCase> all{tensor_case(1, 2, 2, 0),
                            tensor_case(2, 3, 1, 0, Recompute::kFull),
                            with_sequence(tensor_case(3, 2, 1, 0)),
                            tensor_case(4, 4, 1, 0),
                            tensor_case(2, 2, 1, 0),
                            tensor_case(2, 2, 1, 0)};
  for (RankCase& c : all) c.optimizer = Optimizer::kAdafactor;
  all[4].mode = RunMode::kLora, all[4].targets = 0x1ff, all[4].dora = true;
  all[5].bf16 = true;
  return all;
}

}  // namespace trainhost::test
