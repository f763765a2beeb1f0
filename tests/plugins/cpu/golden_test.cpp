// The golden runs (float64 results from PyTorch) through the C tables of the CPU plugin: every loss, every
// gradient norm and the norms of the final weights, with every recompute policy and several micro-batch
// sizes.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "core/model/adapters.hpp"
#include "tests/support/golden_run.hpp"
#include "tests/support/plugin_session.hpp"

namespace trainhost {
namespace {

using namespace test;

const Plugin& cpu_plugin() {
  static const Plugin p(TRAINHOST_BINARY_DIR "/lib/trainhost/plugins/cpu.so");
  return p;
}

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

// Adapters of PEFT over the weights of gqa-tied (tests/interop/peft_lora.py).
BOOST_DATA_TEST_CASE(twenty_steps_of_lora_agree_with_peft,
                     boost::unit_test::data::make({"lora", "lora-dropout"}), kind) {
  const std::string runs = std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/";
  const nlohmann::json expected = nlohmann::json::parse(golden_detail::slurp(runs + kind + "/expected.json"));
  const nlohmann::json run = expected["run"];
  for (Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    GoldenRun g = read_golden(runs + "gqa-tied");
    for (auto& [name, values] : read_tensors(runs + "lora/adapter_model.safetensors"))
      g.weights[name] = values;
    g.run.micro_batch = run["micro_batch"], g.run.accumulate = 1, g.run.seq_len = run["seq_len"];
    g.run.beta1 = run["betas"][0], g.run.beta2 = run["betas"][1], g.run.eps = run["eps"];
    g.run.weight_decay = run["weight_decay"], g.run.clip_norm = run["grad_clip"], g.run.recompute = recompute;
    g.run.mode = RunMode::kLora, g.run.lora_rank = 3;
    g.run.memory.lora_dropout = run.value("lora_dropout", 0.0), g.run.seed = run.value("seed", 1u);
    g.run.lora_alpha = 12 * std::sqrt(3.0);  // rsLoRA
    g.run.lora_targets = TH_LORA_Q | TH_LORA_V | TH_LORA_O | TH_LORA_UP | TH_LORA_DOWN;
    CountingHost host(2);
    PluginSession session(cpu_plugin(), host, g.model, g.run);
    session.load_all(g.weights);
    for (const TensorInfo& t : adapter_tensors(g.model, g.run))
      session.load(t, g.weights.at(t.name), TH_SCOPE_ADAPTER);
    session.init(0);
    for (std::uint32_t t = 0; t < run["steps"].get<std::uint32_t>(); ++t) {
      std::vector<std::int32_t> ids, targets;
      g.samples(std::uint64_t{t} * g.run.micro_batch, g.run.micro_batch, ids, targets);
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
    for (const auto& [name, values] : saved) {
      double squares = 0;
      for (float v : values) squares += static_cast<double>(v) * v;
      const double l2 = expected["final_weights"][name]["l2"];
      BOOST_TEST(std::abs(std::sqrt(squares) - l2) <= 1e-3 * l2, name);
    }
  }
}

// Optimizers of other packages over the weights of gqa-tied (tests/interop/optimizers.py).
BOOST_DATA_TEST_CASE(twenty_steps_agree_with_the_optimizers_of_other_packages,
                     boost::unit_test::data::make({std::string("lion")}), optimizer_name) {
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
    BOOST_TEST(std::abs(out.loss - loss) <= 2e-5,
               "step " << t << ": loss " << out.loss << " against " << loss);
    BOOST_TEST(std::abs(out.grad_norm - norm) <= 1e-3 * norm,
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

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
