// Runs of the CPU trainer on several ranks, with threads as ranks, for tests that compare them with a run of
// one rank with the same global batch.
#pragma once
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "core/model/adapters.hpp"
#include "core/model/optimizer_state.hpp"
#include "core/model/tensor_parts.hpp"
#include "tests/support/plugin_session.hpp"
#include "tests/support/small_models.hpp"
#include "tests/support/thread_ranks.hpp"

namespace trainhost::test {

inline constexpr std::uint32_t kSequences = 12;  // of a step, of all ranks

/// A run of `ranks` data-parallel ranks with `tensor` tensor-parallel ones each, and how it deviates from the
/// plainest one.
struct RankCase {
  NamedModel model;
  std::uint32_t ranks, zero;
  Recompute recompute = Recompute::kNone;
  Optimizer optimizer = Optimizer::kAdamW;
  bool bf16 = false;
  RunMode mode = RunMode::kFull;
  bool dora = false;
  std::uint32_t tensor = 1;
};
inline std::ostream& operator<<(std::ostream& o, const RankCase& c) {
  return o << c.model.what << ", " << c.ranks << " x " << c.tensor << " ranks, ZeRO " << c.zero
           << ", recompute " << name(c.recompute) << ", " << name(c.optimizer) << (c.bf16 ? ", bf16" : "")
           << (c.mode == RunMode::kLora    ? ", LoRA"
               : c.mode == RunMode::kQlora ? ", QLoRA"
                                           : "")
           << (c.dora ? ", DoRA" : "");
}

/// `rank` of ranks * c.tensor; of a run of one rank with ranks = 0.
inline RunSpec run_of(const RankCase& c, std::uint32_t ranks, std::uint32_t rank) {
  RunSpec r;
  r.seq_len = c.model.seq, r.micro_batch = 1, r.accumulate = kSequences / std::max(1u, ranks);
  r.recompute = c.recompute, r.optimizer = c.optimizer;
  r.mode = c.mode;
  if (c.mode != RunMode::kFull)
    r.lora_rank = 2, r.lora_targets = 0x7f, r.lora_alpha = 4, r.memory.dora = c.dora;
  if (c.bf16) r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  if (ranks == 0) return r;
  r.parallel.data = ranks, r.parallel.data_rank = rank / c.tensor + 1;
  r.parallel.tensor = c.tensor, r.parallel.tensor_rank = rank % c.tensor + 1;
  if (ranks > 1) r.parallel.zero = c.zero;
  return r;
}

/// What a run of some steps gives.
struct RankResult {
  std::vector<double> loss, norm;
  Tensors weights, first_moments;
  std::vector<std::uint64_t> peaks;  // of each rank
  double bytes = 0;                  // that rank 0 sent, as the trainer counts it
};

inline RankResult train(const RankCase& c, std::uint32_t data, std::uint32_t steps) {
  const std::uint32_t ranks = std::max(1u, data * c.tensor);
  const ModelSpec& m = c.model.spec;
  Tensors weights;
  for (const auto& [name, values] : random_weights(m, 7)) weights[name].assign(values.begin(), values.end());
  RankResult out;
  out.peaks.resize(ranks);
  ThreadRanks together(ranks);
  std::vector<Tensors> moments(ranks), saved(ranks);
  std::vector<std::vector<std::pair<double, double>>> steps_of(ranks);
  together.each([&](std::uint32_t rank) {
    const RunSpec run = run_of(c, data, rank);
    CountingHost host(1);
    if (ranks > 1) host.ranks = together.rank(rank);
    {
      PluginSession session(cpu_plugin(), host, m, run);
      session.load_all(weights);
      session.init(0);
      for (std::uint32_t t = 0; t < steps; ++t) {
        const std::size_t n = std::size_t{kSequences} * run.seq_len, own = n / std::max(1u, data),
                          first = rank / c.tensor * own;
        const auto ids = random_tokens(n, m.vocab, 100 + t), targets = random_targets(n, m.vocab, 200 + t);
        const auto part = [&](const reference::Ids& all) {
          return std::vector<std::int32_t>(
              all.begin() + static_cast<std::ptrdiff_t>(data ? first : 0),
              all.begin() + static_cast<std::ptrdiff_t>((data ? first : 0) + own));
        };
        const th_step_out step = session.step(part(ids), part(targets), 1e-3, t);
        if (rank == 0) out.loss.push_back(step.loss), out.norm.push_back(step.grad_norm);
        const auto bits = std::pair{step.loss, step.grad_norm};
        steps_of[rank].push_back(bits);
      }
      if (moment_count(c.optimizer) > 0) moments[rank] = session.save(TH_SCOPE_MOMENT1);
      const std::uint32_t scope = trains_adapters(run) ? TH_SCOPE_ADAPTER : TH_SCOPE_WEIGHTS;
      if (rank == 0 || divides_weights(run.parallel)) saved[rank] = session.save(scope);
      if (rank == 0) {
        out.weights = saved[0];
        th_counters counters{};
        counters.struct_size = sizeof counters;
        th_error e = empty_error();
        check(cpu_plugin().trainer->counters(session.handle(), &counters, &e), e);
        out.bytes = static_cast<double>(counters.communication_bytes);
      }
    }
    out.peaks[rank] = host.peak;
    if (host.peak != cpu_plugin().plan(host, m, run).total_bytes())
      throw std::runtime_error("rank " + std::to_string(rank) + " used " + std::to_string(host.peak) +
                               " bytes, the plan is " +
                               std::to_string(cpu_plugin().plan(host, m, run).total_bytes()));
  });
  // Every rank sends the state of all of them.
  for (const Tensors& of_rank : moments)
    if (!(of_rank == moments[0])) throw std::runtime_error("the ranks have saved different state");
  out.first_moments = moments[0];
  for (const auto& of_rank : steps_of)
    if (of_rank != steps_of[0]) throw std::runtime_error("the ranks have different losses or norms");
  return out;
}

inline double largest_difference(const Tensors& a, const Tensors& b) {
  double worst = 0, scale = 0;
  for (const auto& [name, values] : a) {
    BOOST_REQUIRE(values.size() == b.at(name).size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      BOOST_REQUIRE_MESSAGE(std::isfinite(b.at(name)[i]), name << '[' << i << "] has no state");
      worst = std::max(worst, static_cast<double>(std::abs(values[i] - b.at(name)[i])));
      scale = std::max(scale, static_cast<double>(std::abs(values[i])));
    }
  }
  return scale > 0 ? worst / scale : 0;
}

}  // namespace trainhost::test
