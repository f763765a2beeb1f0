// Made-up results of plan, sweep and search with realistic proportions and any size, for tests of their
// renderings.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "core/planning/plan_result.hpp"
#include "core/planning/search_result.hpp"
#include "core/planning/sweep_result.hpp"

namespace trainhost::test {

inline constexpr std::uint64_t kMiB = 1ull << 20, kGiB = 1ull << 30;

inline MemoryEntry sample_entry(std::uint32_t id, Tier t, Component c, std::uint64_t bytes, std::string name,
                                std::string formula, std::uint64_t at_peak = UINT64_MAX) {
  MemoryEntry n;
  n.id = id, n.tier = t, n.component = c;
  n.bytes = n.lo = n.hi = bytes;
  n.bytes_at_peak = at_peak == UINT64_MAX ? bytes : at_peak;
  n.has_at_peak = true;
  n.name = std::move(name), n.formula = std::move(formula);
  return n;
}

/// One estimate of `layers` layers; `scale` makes the other estimators differ.
inline planning::Estimate sample_estimate(const std::string& id, Claim claim, unsigned layers, double scale,
                                          std::uint64_t budget) {
  planning::Estimate e;
  e.report.source = id;
  e.report.claim = claim;
  const auto of = [&](double mib) {
    return static_cast<std::uint64_t>(mib * scale * static_cast<double>(kMiB)) + 12345;
  };
  std::uint32_t next = 1;
  const auto add = [&](Tier t, Component c, double mib, std::string name, std::string formula,
                       std::uint64_t at_peak = UINT64_MAX) {
    e.report.entries.push_back(
        sample_entry(next++, t, c, of(mib), std::move(name), std::move(formula), at_peak));
    e.report.entries.back().claim = claim;
  };
  add(Tier::kDevice, Component::kWeights, 15317, "model.*", "P*2 = 8,030,261,248*2");
  add(Tier::kDevice, Component::kMasterWeights, 30634, "master.*", "P*4");
  add(Tier::kDevice, Component::kGradients, 15317, "grad.*", "P*2");
  for (unsigned l = 0; l < layers; ++l)
    add(Tier::kDevice, Component::kActivations, 226.0, "layers[" + std::to_string(l) + "].mlp gate and up",
        "B*S*2*I*2 = 1*4096*2*14336*2");
  add(Tier::kDevice, Component::kLogits, 1002, "logits", "chunk*V*4");
  add(Tier::kDevice, Component::kWorkspace, 64, "matrix workspace", "64 MiB");
  add(Tier::kDevice, Component::kRuntime, 540, "context", "stated", 540 * kMiB);
  add(Tier::kHost, Component::kOptimizerState, 61268, "m, v", "P*8");
  add(Tier::kPinned, Component::kCommunication, 128, "ring", "2*64 MiB");
  for (Tier t : {Tier::kDevice, Tier::kPinned, Tier::kHost}) {
    std::uint64_t sum = 0;
    for (const MemoryEntry& n : e.report.entries) sum += n.tier == t ? n.bytes_at_peak : 0;
    e.report.tiers.push_back({t, sum, t == Tier::kDevice ? kBackward : kUpdate});
    e.total_bytes += sum;
    if (t == Tier::kDevice)
      e.compute_bytes = sum;
    else
      e.host_bytes += sum;
  }
  e.report.notes = {id + ": counts what its source counts; the rest is in the notes below"};
  e.fits = e.compute_bytes <= budget;
  return e;
}

inline planning::PlanResult sample_plan(unsigned layers = 32, std::uint64_t budget = 80 * kGiB) {
  planning::PlanResult v;
  v.model.name = "llama-3-8b";
  v.model.layers = layers, v.model.hidden = 4096, v.model.heads = 32, v.model.kv_heads = 8,
  v.model.head_dim = 128, v.model.intermediate = 14336, v.model.vocab = 128256;
  v.parameters.total = 8030261248;
  v.backend = "cuda", v.mode = "streamed";
  v.run_line = "bf16, 1 sequence of 4096 tokens x 8 accumulated, adamw, recompute selective";
  v.compute_tier = Tier::kDevice;
  v.budget_bytes = budget, v.budget_source = "h100-80gb";
  v.estimates = {sample_estimate("llama", Claim::kExact, layers, 1, budget),
                 sample_estimate("calculon", Claim::kApproximation, layers, 0.86, budget),
                 sample_estimate("memory-equation", Claim::kApproximation, layers, 1.31, budget),
                 sample_estimate("contract", Claim::kUpperBound, layers, 0.62, budget)};
  v.ranks = 8;
  v.notes = {"the plan is for the same step program with every buffer on the device",
             "attention_dropout = 0.1 adds a mask that no trainer here keeps"};
  if (!v.estimates.front().fits)
    for (auto [settings, sentence, price, words, need] :
         {std::tuple{"train.recompute = \"full\"", "each layer keeps only its input and recomputes the rest",
                     planning::Price::kTime, "about 33 % more arithmetic", budget - 3 * kGiB},
          {"data.seq_len = 2048", "half the tokens per sequence", planning::Price::kResult,
           "a shorter context", budget - 2 * kGiB},
          {"parallel.zero = 1", "optimizer states sharded over 8 ranks", planning::Price::kHardware,
           "8 devices", budget - 12 * kGiB}}) {
      planning::Change c;
      c.settings = settings, c.sentence = sentence, c.price = price, c.cost_text = words,
      c.compute_bytes = need, c.estimator = "llama";
      v.changes.push_back(std::move(c));
    }
  v.limits = {{"largest train.micro_batch", 2, "activations: layers[].mlp gate and up, 12.3 GiB"},
              {"longest data.seq_len", 9472, "activations: layers[].qkv"},
              {"fewest devices", 1, "weights and master weights"}};
  std::uint64_t fixed = 0;  // weights, masters and gradients
  for (Component c : {Component::kWeights, Component::kMasterWeights, Component::kGradients})
    fixed += v.estimates.front().report.component_bytes(c);
  const auto add_phase = [&](std::string name, std::uint64_t activations, std::uint64_t logits) {
    planning::StepPhase phase{std::move(name), 0, {}};
    phase.components = {{Component::kWeights, fixed / 4},
                        {Component::kMasterWeights, fixed / 2},
                        {Component::kGradients, fixed - fixed / 4 - fixed / 2},
                        {Component::kActivations, activations},
                        {Component::kLogits, logits}};
    for (const auto& part : phase.components) phase.bytes += part.second;
    v.timeline.push_back(std::move(phase));
  };
  for (unsigned l = 0; l < layers; ++l)
    add_phase("forward, layer " + std::to_string(l), (l + 1) * 226 * kMiB, 0);
  add_phase("head", layers * 226ull * kMiB, 1002 * kMiB);
  for (unsigned l = layers; l-- > 0;)
    add_phase("backward, layer " + std::to_string(l), (l + 1) * 226 * kMiB + 410 * kMiB, 0);
  for (unsigned l = 0; l < 6; ++l) add_phase("update, tensor group " + std::to_string(l), 120 * kMiB, 0);
  v.command = "trainhost plan --model=llama-3-8b --device=h100-80gb --estimator=all --html plan.html";
  return v;
}

inline planning::SweepResult sample_sweep(unsigned points = 12) {
  planning::SweepResult v;
  v.model = "llama-3-8b", v.run_line = "bf16, 1 sequence, adamw, recompute none, attention materialised";
  v.key = "data.seq_len", v.unit = "tokens";
  v.budget_bytes = 80 * kGiB, v.budget_source = "h100-80gb", v.budget_known = true;
  for (const auto& [id, claim, linear, square] : {std::tuple{"llama", Claim::kExact, 7.2, 0.0004},
                                                  {"memory-equation", Claim::kApproximation, 9.1, 0.0011},
                                                  {"contract", Claim::kUpperBound, 2.6, 0.0}}) {
    planning::SweepCurve c{id, claim, {}};
    for (unsigned i = 0; i < points; ++i) {
      planning::SweepPoint p;
      const double s = std::round(512 * std::exp2(5.0 * i / (points - 1)));
      p.x = s, p.label = std::to_string(static_cast<unsigned>(s));
      if (i == points - 1 && std::string(id) == "contract") {
        p.error = "data.seq_len 16384 exceeds max_position_embeddings 8192";
      } else {
        const auto mib = [&](double m) { return static_cast<std::uint64_t>(m * static_cast<double>(kMiB)); };
        p.components = {{Component::kWeights, mib(15317)},
                        {Component::kGradients, mib(15317)},
                        {Component::kActivations, mib(s * linear + s * s * square)},
                        {Component::kLogits, mib(s * 0.48)},
                        {Component::kRuntime, mib(540)}};
        for (const auto& part : p.components) p.total += part.second;
        p.compute = p.total;
        p.fits = p.compute <= v.budget_bytes;
      }
      c.points.push_back(std::move(p));
    }
    v.curves.push_back(std::move(c));
  }
  v.crossovers = {{"llama", "activations exceed weights at 2,127", 2127},
                  {"llama", "activations exceed weights and gradients together at 4,254", 4254},
                  {"memory-equation", "the quadratic term is the largest from 1,408 on", 1408}};
  v.notes = {"contract counts no logits"};
  v.command = "trainhost sweep --model=llama-3-8b --over data.seq_len=512..16384 --html sweep.html";
  return v;
}

inline planning::SearchResult sample_search(unsigned best = 60) {
  planning::SearchResult v;
  v.model = "gpt3-175b", v.device = "a100-80gb", v.devices = 4096;
  v.run_line = "bf16, adamw";
  v.budget_bytes = 80 * kGiB, v.global_batch = 4096, v.seq_len = 2048;
  v.layouts = 7131221, v.fitting = 1204331, v.evaluated = 48113, v.seconds = 0.83;
  const auto row = [&](unsigned i, double gib, double seconds) {
    planning::RankedLayout r;
    r.tensor = 1u << (i % 4), r.pipeline = 1u << (i % 6 / 2 + 1), r.data = v.devices / r.tensor / r.pipeline;
    r.zero = i % 3, r.micro_batch = 1 + i % 4, r.accumulate = 32, r.sequence = r.tensor > 1;
    r.recompute = i % 3 == 0 ? "none" : i % 3 == 1 ? "selective" : "full";
    if (i % 7 == 3) r.offload = "optimizer to cpu", r.host_bytes = 21 * kGiB;
    r.device_bytes = static_cast<std::uint64_t>(gib * static_cast<double>(kGiB));
    r.step_seconds = seconds, r.tokens_per_second = 4096.0 * 2048 / seconds,
    r.utilization = 12.9 / seconds * 0.62;
    r.seconds = {{"compute", seconds * 0.66},  {"memory", seconds * 0.07}, {"tensor", seconds * 0.09},
                 {"pipeline", seconds * 0.02}, {"data", seconds * 0.04},   {"bubble", seconds * 0.12}};
    r.settings = {"--set parallel.tensor=" + std::to_string(r.tensor),
                  "--set parallel.pipeline=" + std::to_string(r.pipeline),
                  "--set parallel.data=" + std::to_string(r.data),
                  "--set parallel.zero=" + std::to_string(r.zero)};
    return r;
  };
  for (unsigned i = 0; i < best; ++i)
    v.best.push_back(row(i, 78.5 - 60.0 * std::fmod(i * 0.618, 1.0) * std::min(1.0, 0.25 + 1.6 * i / best),
                         12.9 + 9.0 * i / best));
  // The Pareto front: by ascending memory, rows that are faster than all before.
  std::vector<planning::RankedLayout> by_memory = v.best;
  std::sort(by_memory.begin(), by_memory.end(),
            [](const auto& a, const auto& b) { return a.device_bytes < b.device_bytes; });
  for (const planning::RankedLayout& r : by_memory)
    if (v.pareto.empty() || r.step_seconds < v.pareto.back().step_seconds) v.pareto.push_back(r);
  v.assumptions = {"large matrix products achieve 62 % of the peak",
                   "all-reduce over links of 300 GB/s inside a node of 8, 25 GB/s per device between nodes",
                   "a bubble of (pipeline - 1) / (accumulate x interleave) of the time of the layers"};
  v.command = "trainhost search gpt3.toml --device=a100-80gb --devices=4096 --html search.html";
  return v;
}

}  // namespace trainhost::test
