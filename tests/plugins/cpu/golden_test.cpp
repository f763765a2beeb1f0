// The golden runs (float64 results from PyTorch) through the C tables of the CPU plugin: every loss, every
// gradient norm and the norms of the final weights, with every recompute policy and several micro-batch
// sizes.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "core/model/adapters.hpp"
#include "core/model/optimizer_state.hpp"
#include "core/model/trainable.hpp"
#include "tests/support/golden_run.hpp"
#include "tests/support/plugin_session.hpp"

namespace trainhost {
namespace {

using namespace test;

struct Case {
  const char* name;
  Recompute recompute;
  std::uint32_t micro_batch;  // 0 = as in the run
};
std::ostream& operator<<(std::ostream& o, const Case& c) {
  return o << c.name << ", recompute " << name(c.recompute) << ", micro-batch " << c.micro_batch;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* n : {"mha", "gqa-tied", "contract"})
    for (Recompute r : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
      for (std::uint32_t micro : {0u, 1u, 2u, 4u}) all.push_back({n, r, micro});
  return all;
}

BOOST_AUTO_TEST_SUITE(cpu_golden)

BOOST_DATA_TEST_CASE(golden_runs_are_reproduced, boost::unit_test::data::make(cases()), c) {
  GoldenRun g = read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/" + c.name);
  const std::uint32_t sequences = g.run.micro_batch * g.run.accumulate;
  if (c.micro_batch) {
    if (sequences % c.micro_batch != 0 || c.micro_batch == g.run.micro_batch)
      return;  // not divisible, or as in the run
    g.run.micro_batch = c.micro_batch, g.run.accumulate = sequences / c.micro_batch;
  }
  g.run.recompute = c.recompute;
  CountingHost host(2);
  {
    PluginSession session(cpu_plugin(), host, g.model, g.run);
    session.load_all(g.weights);
    session.init(0);
    const double loss_tolerance = std::string(c.name) == "contract" ? 1e-3 : 2e-5;
    double worst = 0;
    for (std::uint32_t t = 0; t < g.steps; ++t) {
      std::vector<std::int32_t> ids, targets;
      g.samples(std::uint64_t{t} * sequences, sequences, ids, targets);
      const th_step_out out = session.step(ids, targets, g.lr[t], t);
      worst = std::max(worst, std::abs(out.loss - g.loss[t]));
      BOOST_TEST(std::abs(out.loss - g.loss[t]) <= loss_tolerance,
                 "step " << t << ": loss " << out.loss << " against " << g.loss[t]);
      BOOST_TEST(std::abs(out.grad_norm - g.grad_norm[t]) <= 1e-3 * g.grad_norm[t],
                 "step " << t << ": norm " << out.grad_norm << " against " << g.grad_norm[t]);
      BOOST_TEST(out.tokens_counted == std::uint64_t{sequences} * g.run.seq_len);
    }
    BOOST_TEST_MESSAGE("largest loss difference " << worst);
    for (const auto& [name, values] : session.save()) {
      double squares = 0;
      for (float v : values) squares += static_cast<double>(v) * v;
      BOOST_TEST(std::abs(std::sqrt(squares) - g.final_l2.at(name)) <= 1e-3 * g.final_l2.at(name), name);
    }
  }
  BOOST_TEST(host.now == 0u);
}

/// [columns, rows] of a matrix [rows, columns].
std::vector<float> transposed(const std::vector<float>& values, std::uint64_t rows) {
  std::vector<float> out;
  for (std::uint64_t c = 0; c < values.size() / rows; ++c)
    for (std::uint64_t r = 0; r < rows; ++r) out.push_back(values[r * (values.size() / rows) + c]);
  return out;
}

/// The targets of a run of PEFT, and its modules_to_save.
void set_targets(const std::string& kind, const ModelSpec& m, RunSpec& r) {
  r.lora_targets = TH_LORA_Q | TH_LORA_V | TH_LORA_O | TH_LORA_UP | TH_LORA_DOWN;
  if (kind.substr(1).starts_with("ora-head")) r.lora_targets = TH_LORA_Q | TH_LORA_V | TH_LORA_HEAD;
  if (kind.ends_with("-tied")) r.lora_targets = TH_LORA_Q | TH_LORA_EMBED | TH_LORA_TIED;
  if (kind == "lora-modules-untied") {
    r.lora_targets = TH_LORA_Q | TH_LORA_V;
    r.trainable = rules_of_modules(std::vector<std::string>{"embed_tokens", "lm_head"});
  }
  if (!kind.ends_with("-vocabulary")) return;
  set_adapters(
      m,
      [](const AdaptableMatrix& x) -> AdapterSize {
        if (x.target == TH_LORA_HEAD) return {5, 12 * std::sqrt(5.0)};
        return {x.target & (TH_LORA_Q | TH_LORA_EMBED) ? 3u : 0u, 12 * std::sqrt(3.0)};
      },
      r);
}

// Adapters of PEFT over the weights of gqa-tied (tests/interop/peft_lora.py), of qlora in NF4; untied: of
// mha.
BOOST_DATA_TEST_CASE(twenty_steps_of_lora_agree_with_peft,
                     boost::unit_test::data::make({"lora", "lora-dropout", "qlora", "dora", "dora-dropout",
                                                   "qdora", "lora-head", "lora-head-dropout",
                                                   "lora-vocabulary", "lora-modules-untied", "dora-head",
                                                   "dora-head-dropout", "dora-vocabulary", "lora-tied",
                                                   "dora-tied"}),
                     name_of_run) {
  const std::string runs = std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/";
  const std::string kind = name_of_run;
  const bool dora = kind.find("dora") != kind.npos;
  const nlohmann::json expected = nlohmann::json::parse(golden_detail::slurp(runs + kind + "/expected.json"));
  const nlohmann::json run = expected["run"];
  for (Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    const bool untied = kind.ends_with("-vocabulary") || kind == "lora-modules-untied";
    GoldenRun g = read_golden(runs + (untied ? "mha" : "gqa-tied"));
    const std::string of_kind = dora ? "dora" : "lora";
    const std::string adapter = kind.substr(1).starts_with("ora-head") ? of_kind + "-head"
                                : untied || kind.ends_with("-tied")    ? kind
                                                                       : of_kind;
    for (auto& [name, values] : read_tensors(runs + adapter + "/adapter_model.safetensors"))
      g.weights[name] = values;
    g.run.micro_batch = run["micro_batch"], g.run.accumulate = 1, g.run.seq_len = run["seq_len"];
    g.run.beta1 = run["betas"][0], g.run.beta2 = run["betas"][1], g.run.eps = run["eps"];
    g.run.weight_decay = run["weight_decay"], g.run.clip_norm = run["grad_clip"], g.run.recompute = recompute;
    g.run.mode = kind.starts_with("q") ? RunMode::kQlora : RunMode::kLora, g.run.lora_rank = 3;
    g.run.memory.dora = dora;
    g.run.memory.double_quantized = g.run.mode == RunMode::kQlora;
    g.run.memory.lora_dropout = run.value("lora_dropout", 0.0), g.run.seed = run.value("seed", 1u);
    g.run.lora_alpha = 12 * std::sqrt(3.0);  // rsLoRA
    set_targets(kind, g.model, g.run);
    CountingHost host(2);
    PluginSession session(cpu_plugin(), host, g.model, g.run);
    session.load_all(g.weights);
    const auto name_in_peft = [](const TensorInfo& t) {
      return t.part == AdapterPart::kNone ? "base_model.model." + t.name : t.name;
    };
    for (const TensorInfo& t : trained_tensors(g.model, g.run)) {
      const std::vector<float>& values = g.weights.at(name_in_peft(t));
      session.load(t, is_transposed_in_files(t) ? transposed(values, t.dim[1]) : values, TH_SCOPE_ADAPTER);
    }
    session.init(0);
    const std::uint64_t batches = (g.tokens.size() - 1) / (std::uint64_t{g.run.micro_batch} * g.run.seq_len);
    for (std::uint32_t t = 0; t < run["steps"].get<std::uint32_t>(); ++t) {
      std::vector<std::int32_t> ids, targets;
      g.samples(t % batches * g.run.micro_batch, g.run.micro_batch, ids, targets);
      const th_step_out out = session.step(ids, targets, run["lr"], t);
      const double loss = expected["loss"][t], norm = expected["grad_norm"][t];
      BOOST_TEST(std::abs(out.loss - loss) <= 2e-5,
                 "step " << t << ": loss " << out.loss << " against " << loss);
      BOOST_TEST(std::abs(out.grad_norm - norm) <= 1e-3 * norm,
                 "step " << t << ": norm " << out.grad_norm << " against " << norm);
    }
    BOOST_TEST(session.save().size() == tensors(g.model).size());  // the frozen weights
    const auto saved = session.save(TH_SCOPE_ADAPTER);
    BOOST_TEST(session.save(TH_SCOPE_MOMENT1).size() == saved.size());
    BOOST_TEST(saved.size() == expected["final_weights"].size());
    for (const TensorInfo& t : trained_tensors(g.model, g.run)) {
      double squares = 0;
      for (float v : saved.at(t.name)) squares += static_cast<double>(v) * v;
      const double l2 = expected["final_weights"][name_in_peft(t)]["l2"];
      BOOST_TEST(std::abs(std::sqrt(squares) - l2) <= 1e-3 * l2, t.name);
    }
  }
}

const std::vector<std::string> kNames = {"lion", "adafactor", "muon", "adamw-8bit"};
const auto kOptimizers = boost::unit_test::data::make(kNames);

/// Largest difference of a loss, and relative one of a norm. Codes of 8 bits amplify rounding: a moment in
/// the middle of two of them becomes either, and the smallest ones change by factors.
double loss_tolerance(Optimizer o) { return o == Optimizer::kAdamW8bit ? 2e-4 : 2e-5; }
double norm_tolerance(Optimizer o) { return o == Optimizer::kAdamW8bit ? 5e-3 : 1e-3; }

// Optimizers of other packages over the weights of gqa-tied (tests/interop/optimizers.py).
BOOST_DATA_TEST_CASE(twenty_steps_agree_with_the_optimizers_of_other_packages, kOptimizers, optimizer_name) {
  const Optimizer optimizer = optimizer_from(optimizer_name).value();
  const std::string runs = std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/";
  const nlohmann::json expected =
      nlohmann::json::parse(golden_detail::slurp(runs + "optimizers/expected.json"))[name(optimizer)];
  const nlohmann::json run = expected["run"];
  GoldenRun g = read_golden(runs + "gqa-tied");
  g.run.optimizer = optimizer;
  g.run.micro_batch = run["micro_batch"], g.run.accumulate = 1, g.run.seq_len = run["seq_len"];
  g.run.beta1 = run["betas"][0], g.run.beta2 = run["betas"][1], g.run.eps = run["eps"];
  g.run.weight_decay = run["weight_decay"], g.run.clip_norm = run["grad_clip"];
  CountingHost host(2);
  PluginSession session(cpu_plugin(), host, g.model, g.run);
  session.load_all(g.weights);
  session.init(0);
  double worst = 0;
  for (std::uint32_t t = 0; t < run["steps"].get<std::uint32_t>(); ++t) {
    std::vector<std::int32_t> ids, targets;
    g.samples(std::uint64_t{t} * g.run.micro_batch, g.run.micro_batch, ids, targets);
    const th_step_out out = session.step(ids, targets, run["lr"], t);
    const double loss = expected["loss"][t], norm = expected["grad_norm"][t];
    worst = std::max(worst, std::abs(out.loss - loss));
    BOOST_TEST(std::abs(out.loss - loss) <= loss_tolerance(optimizer),
               "step " << t << ": loss " << out.loss << " against " << loss);
    BOOST_TEST(std::abs(out.grad_norm - norm) <= norm_tolerance(optimizer) * norm,
               "step " << t << ": norm " << out.grad_norm << " against " << norm);
  }
  BOOST_TEST_MESSAGE(name(optimizer) << ": largest loss difference " << worst);
  for (const auto& [name, values] : session.save()) {
    double squares = 0;
    for (float v : values) squares += static_cast<double>(v) * v;
    const double l2 = expected["final_weights"][name];
    BOOST_TEST(std::abs(std::sqrt(squares) - l2) <= 1e-4 * l2, name);
  }
}

// Of the first block after one step; a value beside the middle of two codes may have either.
BOOST_AUTO_TEST_CASE(codes_and_scales_of_8_bit_moments_are_those_of_bitsandbytes) {
  const std::string runs = std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/";
  const nlohmann::json expected =
      nlohmann::json::parse(golden_detail::slurp(runs + "optimizers/expected.json"))["adamw-8bit"];
  const nlohmann::json run = expected["run"], block = expected["first_block"];
  GoldenRun g = read_golden(runs + "gqa-tied");
  g.run.optimizer = Optimizer::kAdamW8bit, g.run.micro_batch = run["micro_batch"], g.run.accumulate = 1;
  g.run.beta1 = run["betas"][0], g.run.beta2 = run["betas"][1], g.run.clip_norm = run["grad_clip"];
  CountingHost host(2);
  PluginSession session(cpu_plugin(), host, g.model, g.run);
  session.load_all(g.weights);
  session.init(0);
  std::vector<std::int32_t> ids, targets;
  g.samples(0, g.run.micro_batch, ids, targets);
  session.step(ids, targets, run["lr"], 0);
  for (const std::size_t i : {0u, 1u}) {
    const Tensors moment = session.save(i == 0 ? TH_SCOPE_MOMENT1 : TH_SCOPE_MOMENT2);
    const std::string name = block["of"];
    const double scale = block["moments"][i]["absmax"];
    BOOST_TEST(std::abs(moment.at(name + ".absmax")[0] - scale) <= 1e-5 * scale);
    std::size_t different = 0;
    for (std::size_t k = 0; k < 256; ++k)
      different += moment.at(name)[k] != block["moments"][i]["values"][k].get<float>();
    BOOST_TEST(different <= 2u, "moment " << i + 1);
  }
}

// State as save() sends it, loaded into another session: the next update has the same bits. The memory is the
// plan's.
BOOST_DATA_TEST_CASE(a_resumed_run_has_the_same_bits_in_the_planned_memory,
                     kOptimizers* boost::unit_test::data::make({false, true}) *
                         boost::unit_test::data::make({false, true}),
                     optimizer_name, adapters, bf16) {
  const Optimizer optimizer = optimizer_from(optimizer_name).value();
  GoldenRun g = read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/gqa-tied");
  RunSpec& r = g.run;
  r.optimizer = optimizer, r.micro_batch = 1, r.accumulate = 1;
  if (bf16) r.compute = r.weight = DType::kBF16, r.master = DType::kF32;
  if (adapters)
    r.mode = RunMode::kLora, r.lora_rank = 40, r.lora_alpha = 40,
    r.lora_targets = TH_LORA_Q | TH_LORA_V | TH_LORA_DOWN;
  const std::uint32_t weights = adapters ? TH_SCOPE_ADAPTER : TH_SCOPE_WEIGHTS;
  const auto step = [&](PluginSession& s, std::uint32_t t) {
    std::vector<std::int32_t> ids, targets;
    g.samples(t, 1, ids, targets);
    s.step(ids, targets, 1e-3, t);
  };
  const auto begin = [&](PluginSession& s) {
    s.load_all(g.weights);
    s.init(5);
  };
  CountingHost host(2), other_host(3);
  const MemoryReport plan = cpu_plugin().plan(host, g.model, r);
  PluginSession one(cpu_plugin(), host, g.model, r), other(cpu_plugin(), other_host, g.model, r);
  begin(one);
  const Tensors start = one.save(weights);
  for (std::uint32_t t = 0; t < 3; ++t) step(one, t);
  BOOST_TEST(host.peak == plan.total_bytes());
  for (const TensorInfo& t : trained_tensors(g.model, r))
    other.load(t, one.save(weights).at(t.name), weights);
  if (adapters) other.load_all(g.weights);
  for (int moment = 1; moment <= moment_count(optimizer); ++moment) {
    const std::uint32_t scope = moment == 1 ? TH_SCOPE_MOMENT1 : TH_SCOPE_MOMENT2;
    const Tensors saved = one.save(scope);
    const std::vector<TensorInfo> wanted = state_tensors(g.model, r, moment);
    BOOST_TEST(saved.size() == wanted.size());
    for (const TensorInfo& t : wanted) {
      BOOST_TEST(saved.at(t.name).size() == t.elements(), t.name);
      other.load(t, saved.at(t.name), scope, 333);
    }
  }
  other.init(0);
  step(one, 3), step(other, 3);
  BOOST_TEST((one.save(weights) == other.save(weights)));
  for (const std::uint32_t scope : {TH_SCOPE_MOMENT1, TH_SCOPE_MOMENT2})
    BOOST_TEST((one.save(scope) == other.save(scope)), "scope " << scope);
  for (const auto& [name, values] : one.save(weights))
    BOOST_TEST((values != start.at(name)), name << " is not trained");
}

BOOST_AUTO_TEST_CASE(state_that_the_optimizer_does_not_have_is_refused) {
  GoldenRun g = read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/gqa-tied");
  g.run.optimizer = Optimizer::kAdamW8bit;
  CountingHost host(1);
  PluginSession s(cpu_plugin(), host, g.model, g.run);
  const TensorInfo embed = tensors(g.model).front();
  const auto [code, message] =
      refusal([&] { s.load(embed, std::vector<float>(embed.elements(), 1.5f), TH_SCOPE_MOMENT1); });
  BOOST_TEST(code == TH_E_ARG);
  BOOST_TEST(message.find("model.embed_tokens.weight: 8-bit moments are numbers of [-1, 1], not 1.5") == 0u,
             message);
  g.run.optimizer = Optimizer::kLion;
  PluginSession lion(cpu_plugin(), host, g.model, g.run);
  BOOST_TEST(refusal([&] {
               lion.load(embed, std::vector<float>(embed.elements()), TH_SCOPE_MOMENT2);
             }).second.find("the run has no such optimizer state") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
