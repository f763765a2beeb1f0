// See size_overflow.hpp.
#include "core/planning/size_overflow.hpp"

namespace trainhost::planning {

std::vector<std::pair<std::string, std::uint64_t>> numbers_of(const runfile::RunConfig& c) {
  const ModelSpec& m = c.model;
  const RunSpec& r = c.run;
  return {{"model.vocab_size", m.vocab},
          {"model.hidden_size", m.hidden},
          {"model.intermediate_size", m.intermediate},
          {"model.num_hidden_layers", m.layers},
          {"model.num_attention_heads", m.heads},
          {"data.seq_len", r.seq_len},
          {"train.micro_batch", r.micro_batch},
          {"train.grad_accum", r.accumulate},
          {"lora.rank", r.lora_rank},
          {"parallel.vocab_multiple", r.memory.vocab_multiple},
          {"parallel.data", r.parallel.data},
          {"parallel.tensor", r.parallel.tensor}};
}

}  // namespace trainhost::planning
