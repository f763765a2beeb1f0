// See simulate_layout.hpp.
#include "core/planning/simulate_layout.hpp"

#include "core/base/error.hpp"
#include "core/model/parallelism.hpp"

namespace trainhost::planning {

using step::OpKind;

step::StepRates rates_of(const parallel::Machine& m, const RunSpec& r) {
  const double products = 1 / (m.flops * m.matrix_efficiency), head = 1 / (m.wide_flops * m.wide_efficiency),
               attention = 1 / (m.wide_flops * m.attention_efficiency);
  step::StepRates rates;
  rates.kinds.fill({products, 1 / m.memory_bytes_s});
  const auto set = [&](OpKind kind, double per_flop) {
    rates.kinds[static_cast<std::size_t>(kind)].per_flop = per_flop;
  };
  for (const OpKind kind : {OpKind::kAttention, OpKind::kAttentionBwd}) set(kind, attention);
  for (const OpKind kind : {OpKind::kHeadLoss, OpKind::kHeadStats}) set(kind, head);
  const auto link = [&](double inner, double size) {
    const double per_byte = 1 / parallel::ring_bandwidth(m, inner, size);
    return step::LinkRates{parallel::ring_latency(m, inner, size),
                           parallel::all_reduce_latency(m, inner, size),
                           per_byte,
                           per_byte,
                           false,
                           true};
  };
  rates.tensor = link(1, r.parallel.tensor);
  rates.data = link(r.parallel.tensor, r.parallel.data);
  rates.lane_per_group = true, rates.cores = 3;
  return rates;
}

std::optional<step::SimulatedStep> simulate_layout(const ModelSpec& model, const RunSpec& r,
                                                   const parallel::Machine& m) {
  RunSpec rank = r;
  if (r.parallel.data * std::uint64_t{r.parallel.tensor} > 1) rank.parallel.data_rank = 1;
  if (r.parallel.tensor > 1) rank.parallel.tensor_rank = 1;
  if (!trains_by_program(model, rank)) return std::nullopt;
  // The operations are those of every trainer. Those of a device differ in scratch, which has no cost.
  TrainerTraits traits;
  traits.head_chunk_tokens = 1024;
  try {
    return step::simulate_step(step::build_program(model, rank, traits), rates_of(m, rank));
  } catch (const Error&) {  // such as Adafactor on TP ranks
    return std::nullopt;
  }
}

}  // namespace trainhost::planning
