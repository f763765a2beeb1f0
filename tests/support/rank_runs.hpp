// Runs of a trainer on several ranks, with threads as ranks, for tests that compare them with a run of one
// rank with the same global batch.
#pragma once
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <vector>

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
  bool sequence = false;  // sequence parallelism
  double dropout = 0;
  bool one_micro_batch = false;  // of each rank; else two or three
  std::uint32_t targets = 0x7f;  // of adapters
};
inline std::ostream& operator<<(std::ostream& o, const RankCase& c) {
  return o << c.model.what << ", " << c.ranks << " x " << c.tensor << " ranks, ZeRO " << c.zero
           << ", recompute " << name(c.recompute) << ", " << name(c.optimizer) << (c.bf16 ? ", bf16" : "")
           << (c.mode == RunMode::kLora    ? ", LoRA"
               : c.mode == RunMode::kQlora ? ", QLoRA"
                                           : "")
           << (c.targets != 0x7f ? ", outside layers" : "") << (c.dora ? ", DoRA" : "")
           << (c.dropout > 0 ? ", dropout" : "") << (c.sequence ? ", sequence parallelism" : "")
           << (c.one_micro_batch ? ", one micro-batch" : "");
}

/// Number of different models, ranks, ZeRO stages, recompute policies, and modes of training among the cases
/// that are compared with one process to 1e-5.
inline std::size_t combinations_of(const std::vector<RankCase>& cases) {
  std::set<
      std::tuple<std::string, std::uint32_t, std::uint32_t, std::uint32_t, Recompute, bool, RunMode, bool>>
      all;
  for (const RankCase& c : cases)
    if (!c.bf16 && c.optimizer == Optimizer::kAdamW)
      all.emplace(c.model.what, c.ranks, c.tensor, c.zero, c.recompute, c.sequence, c.mode, c.dora);
  return all.size();
}

/// Sequences of a micro-batch, on `own` sequences per step: every rank has two or three micro-batches, or
/// one. The masks of dropout are numbered by micro-batch, so there all numbers of ranks have the same ones.
inline std::uint32_t micro_batch_of(const RankCase& c, std::uint32_t own) {
  return c.one_micro_batch   ? own
         : c.dropout > 0     ? 1
         : own % 4 != 0      ? std::max(1u, own / 3)
         : own == kSequences ? 4
                             : 2;
}

/// `rank` of ranks * c.tensor; of a run of one rank with ranks = 0.
inline RunSpec run_of(const RankCase& c, std::uint32_t ranks, std::uint32_t rank) {
  RunSpec r;
  const std::uint32_t own = kSequences / std::max(1u, ranks);
  r.seq_len = c.model.seq, r.micro_batch = micro_batch_of(c, own), r.accumulate = own / r.micro_batch;
  r.recompute = c.recompute, r.optimizer = c.optimizer;
  r.mode = c.mode;
  if (c.mode != RunMode::kFull)
    r.lora_rank = 2, r.lora_targets = c.targets, r.lora_alpha = 4, r.memory.dora = c.dora,
    r.memory.lora_dropout = c.dropout;
  if (c.bf16) r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  if (ranks == 0) return r;
  r.parallel.data = ranks, r.parallel.data_rank = rank / c.tensor + 1;
  r.parallel.tensor = c.tensor, r.parallel.tensor_rank = rank % c.tensor + 1;
  r.parallel.sequence = c.sequence;
  if (ranks > 1) r.parallel.zero = c.zero;
  return r;
}

/// A rank of the CPU trainer, with the memory that it uses. A rank of another trainer has the same functions.
template <int kThreads>
struct CpuRankOf : CountingHost {
  explicit CpuRankOf(std::uint32_t) : CountingHost(kThreads) {}
  static const Plugin& plugin() { return cpu_plugin(); }
  std::int32_t device_number() const { return 0; }
  std::uint64_t used() const { return peak; }
  std::uint64_t planned(const ModelSpec& m, const RunSpec& run) const {
    return cpu_plugin().plan(*this, m, run).total_bytes();
  }
  bool all_freed() const { return now == 0; }
};
using CpuRank = CpuRankOf<1>;

inline std::uint32_t ranks_of(const RankCase& c, std::uint32_t data) { return std::max(1u, data * c.tensor); }

/// Calls f(session, rank, number) on every rank of a run of data * c.tensor ranks; on one with data = 0.
template <class Rank, class F>
void on_ranks(const RankCase& c, std::uint32_t data, F&& f, std::uint64_t timeout_ms = 60000) {
  const std::uint32_t ranks = ranks_of(c, data);
  ThreadRanks together(ranks, timeout_ms);
  together.each([&](std::uint32_t number) {
    Rank rank(number);
    if (ranks > 1) rank.ranks = together.rank(number);
    {
      PluginSession session(Rank::plugin(), rank, c.model.spec, run_of(c, data, number),
                            rank.device_number());
      f(session, rank, number);
    }
    if (!rank.all_freed()) throw std::runtime_error("memory was not freed");
  });
}

/// What a run of some steps gives.
struct RankResult {
  std::vector<double> loss, norm;
  // Squares of the gradients of each layer, then of those outside the layers, in the last step; of several
  // ranks those that this rank counts, and from train() the sums of all ranks.
  std::vector<double> layer_squares;
  Tensors weights, first_moments;
  double bytes = 0;  // that rank 0 sent, as the trainer counts it
  // What this rank would write to a checkpoint.
  std::vector<PluginSession::OwnPiece> own_weights, own_moments;
};

/// Throws unless the ranks together write every element of `whole` once, with its value.
inline void require_written_once(const RankCase& c, std::uint32_t data, const std::vector<RankResult>& of,
                                 std::vector<PluginSession::OwnPiece> RankResult::*own,
                                 const std::vector<TensorInfo>& infos, const Tensors& whole) {
  std::map<std::string, std::vector<int>> times;
  for (const auto& [name, values] : whole) times[name].resize(values.size());
  for (std::uint32_t number = 0; number < of.size(); ++number) {
    std::map<std::string, std::uint64_t> next;  // one range of each tensor
    for (const PluginSession::OwnPiece& p : of[number].*own) {
      const auto info =
          std::find_if(infos.begin(), infos.end(), [&](const TensorInfo& t) { return t.name == p.name; });
      const std::string what = p.name + " of rank " + std::to_string(number);
      if (info == infos.end()) throw std::runtime_error(what + ": no such tensor");
      const TensorPart part = part_of_tensor(*info, run_of(c, data, number).parallel, number % c.tensor);
      const bool same = info->rank == 2 ? p.rows == part.part_rows && p.cols == part.part_cols
                                        : p.rows * p.cols == part.elements();
      if (!same || p.values.size() > part.elements() - p.first ||
          (next.count(p.name) && next[p.name] != p.first))
        throw std::runtime_error(what + ": a piece of another part");
      next[p.name] = p.first + p.values.size();
      part.for_runs(p.first, p.values.size(), [&](std::uint64_t at, std::uint64_t element, std::uint64_t n) {
        for (std::uint64_t i = 0; i < n; ++i) {
          ++times[p.name][element + i];
          if (whole.at(p.name)[element + i] != p.values[at - p.first + i])
            throw std::runtime_error(what + ": another value at element " + std::to_string(element + i));
        }
      });
    }
  }
  for (const auto& [name, all] : times)
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] != 1)
        throw std::runtime_error(name + ": element " + std::to_string(i) + " is written " +
                                 std::to_string(all[i]) + " times");
}

inline Tensors weights_of(const ModelSpec& m) {
  Tensors weights;
  for (const auto& [name, values] : random_weights(m, 7)) weights[name].assign(values.begin(), values.end());
  return weights;
}

/// Trains, and requires of every rank that it uses the memory of its plan and has the results of the others.
template <class Rank = CpuRank>
RankResult train(const RankCase& c, std::uint32_t data, std::uint32_t steps) {
  const ModelSpec& m = c.model.spec;
  const Tensors weights = weights_of(m);
  std::vector<RankResult> of(ranks_of(c, data));
  on_ranks<Rank>(c, data, [&](PluginSession& session, Rank& rank, std::uint32_t number) {
    const RunSpec run = run_of(c, data, number);
    RankResult& out = of[number];
    session.load_all(weights);
    session.init(0);
    for (std::uint32_t t = 0; t < steps; ++t) {
      const std::size_t n = std::size_t{kSequences} * run.seq_len;
      const auto own = static_cast<std::ptrdiff_t>(n / std::max(1u, data)), first = number / c.tensor * own;
      const auto part = [&](const reference::Ids& all) {
        return std::vector<std::int32_t>(all.begin() + first, all.begin() + first + own);
      };
      const th_step_out step = session.step(part(random_tokens(n, m.vocab, 100 + t)),
                                            part(random_targets(n, m.vocab, 200 + t)), 1e-3, t);
      out.loss.push_back(step.loss), out.norm.push_back(step.grad_norm);
    }
    const std::string metric = ranks_of(c, data) > 1 ? "grad_norm_part." : "grad_norm.";
    for (std::uint32_t l = 0; l <= m.layers; ++l)
      out.layer_squares.push_back(std::pow(
          session.metric((metric + (l < m.layers ? "layer." + std::to_string(l) : "outside_layers")).c_str()),
          2));
    // Every rank sends the state and the weights of all of them.
    if (moment_count(c.optimizer) > 0) out.first_moments = session.save(TH_SCOPE_MOMENT1);
    const std::uint32_t trained = trains_adapters(run) ? TH_SCOPE_ADAPTER : TH_SCOPE_WEIGHTS;
    out.weights = session.save(trained);
    if (data > 0) {
      out.own_weights = session.save_own_part(trained);
      if (moment_count(c.optimizer) > 0) out.own_moments = session.save_own_part(TH_SCOPE_MOMENT1);
    }
    th_counters counters{};
    counters.struct_size = sizeof counters;
    th_error e = empty_error();
    check(Rank::plugin().trainer->counters(session.handle(), &counters, &e), e);
    out.bytes = static_cast<double>(counters.communication_bytes);
    if (rank.used() != rank.planned(m, run))
      throw std::runtime_error("rank " + std::to_string(number) + " used " + std::to_string(rank.used()) +
                               " bytes, the plan is " + std::to_string(rank.planned(m, run)));
  });
  for (const RankResult& r : of)
    if (r.loss != of[0].loss || r.norm != of[0].norm || !(r.weights == of[0].weights) ||
        !(r.first_moments == of[0].first_moments))
      throw std::runtime_error("the ranks have different results");
  if (data > 0) {
    const RunSpec run = run_of(c, data, 0);
    require_written_once(c, data, of, &RankResult::own_weights, all_tensors(m, run), of[0].weights);
    if (moment_count(c.optimizer) > 0)
      require_written_once(c, data, of, &RankResult::own_moments, state_tensors(m, run, 1),
                           of[0].first_moments);
  }
  for (std::size_t number = 1; number < of.size(); ++number)
    for (std::size_t l = 0; l < of[0].layer_squares.size(); ++l)
      of[0].layer_squares[l] += of[number].layer_squares[l];
  return of[0];
}

/// Requires norms of the gradients of each layer that agree.
inline void same_layer_norms(const RankResult& one, const RankResult& many, double tolerance) {
  BOOST_REQUIRE(one.layer_squares.size() == many.layer_squares.size());
  for (std::size_t l = 0; l < one.layer_squares.size(); ++l) {
    const double a = std::sqrt(one.layer_squares[l]), b = std::sqrt(many.layer_squares[l]);
    BOOST_TEST(std::abs(a - b) <= tolerance * a, "layer " << l << ": " << b << " against " << a);
  }
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

/// How near several ranks are to one process: relative, of losses and of state; norms ten times that of
/// losses. 0: not compared, as where a rounding error of a moment may choose the next of its codes.
struct Nearness {
  double loss, weights, moments;
};
inline void trains_alike(const RankResult& one, const RankResult& many, const Nearness& near) {
  BOOST_REQUIRE(one.loss.size() == many.loss.size());
  for (std::size_t t = 0; t < one.loss.size(); ++t) {
    BOOST_TEST(std::abs(many.loss[t] - one.loss[t]) <= near.loss * one.loss[t],
               "step " << t << ": " << many.loss[t] << " against " << one.loss[t]);
    BOOST_TEST(std::abs(many.norm[t] - one.norm[t]) <= 10 * near.loss * one.norm[t],
               "step " << t << ": norm " << many.norm[t] << " against " << one.norm[t]);
  }
  same_layer_norms(one, many, 10 * near.loss);
  if (near.weights > 0) BOOST_TEST(largest_difference(one.weights, many.weights) <= near.weights);
  if (near.moments > 0) BOOST_TEST(largest_difference(one.first_moments, many.first_moments) <= near.moments);
}
/// Of tensor-parallel ranks: in bf16 they round the parts of a sum before they add them, or operands of
/// products alone.
inline Nearness of_tensor_ranks(const RankCase& c) {
  if (c.bf16) return {3e-3, 0, 0};
  return c.optimizer == Optimizer::kAdamW8bit ? Nearness{1e-5, 0, 0} : Nearness{1e-5, 1e-4, 1e-4};
}

/// Loss of an evaluation, and logits after two tokens, of every rank.
template <class Rank = CpuRank>
std::vector<std::pair<double, std::vector<float>>> evaluate_and_generate(const RankCase& c,
                                                                         std::uint32_t data) {
  const ModelSpec& m = c.model.spec;
  std::vector<std::pair<double, std::vector<float>>> out(ranks_of(c, data));
  on_ranks<Rank>(c, data, [&](PluginSession& session, Rank&, std::uint32_t number) {
    session.load_all(weights_of(m));
    session.init(0);
    const std::size_t n = c.model.seq;
    out[number].first = session.evaluate(random_tokens(n, m.vocab, 1), random_targets(n, m.vocab, 2)).loss;
    session.next(1, 0);
    out[number].second = session.next(2, 1);
  });
  return out;
}

}  // namespace trainhost::test
