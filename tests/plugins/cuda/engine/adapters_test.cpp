// Training adapters on the CUDA trainer: loss, norm and gradients compared with a reference in double, by the
// change of the adapters in one step of SGD with learning rate 1; evaluation and generation.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "tests/plugins/cuda/engine/engine_fixture.hpp"
#include "tests/support/adapters_reference.hpp"

namespace trainhost {
namespace {

using namespace test;
using reference::Ids;

const auto kAdaptedModels = boost::unit_test::data::make(small_models());

std::uint32_t scope_of(const TensorInfo& t) {
  return t.part == AdapterPart::kNone ? TH_SCOPE_WEIGHTS : TH_SCOPE_ADAPTER;
}

void load_with_adapters(PluginSession& s, const ModelSpec& m, const RunSpec& r, const Weights& w) {
  for (const TensorInfo& t : all_tensors(m, r)) {
    const Vec& v = w.at(t.name);
    s.load(t, std::vector<float>(v.begin(), v.end()), scope_of(t));
  }
}

BOOST_AUTO_TEST_SUITE(cuda_adapters)

BOOST_DATA_TEST_CASE(a_step_changes_adapters_by_their_gradients, kAdaptedModels, z) {
  std::uint32_t variant = z.seq;
  const Recompute recomputes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  for (const std::uint32_t mask : kAdapterTargets) {
    ++variant;
    emu::reset();
    const std::uint32_t accumulate = 1 + variant % 2;
    RunSpec r = lora_run(z, 4 / accumulate, accumulate, mask, 1 + variant % 4);
    r.optimizer = Optimizer::kSgd, r.weight_decay = 0, r.recompute = recomputes[variant % 3];
    const Weights base = random_weights(z.spec, 3), adapters = random_adapters(z.spec, r, 4);
    const Ids ids = random_tokens(4 * z.seq, z.spec.vocab, 1),
              targets = random_targets(4 * z.seq, z.spec.vocab, 2);
    Weights dw;
    const double loss =
        reference::Model(z.spec, z.seq).loss(merged(z.spec, r, base, adapters), ids, targets, &dw);
    CudaHost host("auto");
    PluginSession s(cuda_engine(), host, z.spec, r);
    load_with_adapters(s, z.spec, r, united(base, adapters));
    s.init(0);
    BOOST_TEST_CONTEXT("targets " << mask << ", rank " << r.lora_rank << ", accumulate " << accumulate) {
      BOOST_TEST(std::abs(s.evaluate(Ids(ids.begin(), ids.begin() + z.seq),
                                     Ids(targets.begin(), targets.begin() + z.seq))
                              .loss -
                          reference::Model(z.spec, z.seq)
                              .loss(merged(z.spec, r, base, adapters), Ids(ids.begin(), ids.begin() + z.seq),
                                    Ids(targets.begin(), targets.begin() + z.seq))) <= 1e-4);
      const th_step_out out = s.step(ids, targets, 1.0, 0);
      BOOST_TEST(std::abs(out.loss - loss) <= 1e-5 * loss, out.loss << " against " << loss);
      const auto saved = s.save(TH_SCOPE_ADAPTER);
      const Weights expected = adapter_gradients(z.spec, r, dw, adapters);
      BOOST_TEST(saved.size() == expected.size());
      for (const auto& [name, g] : expected) {
        double worst = 0;
        for (std::size_t i = 0; i < g.size(); ++i)
          worst = std::max(worst, std::abs(adapters.at(name)[i] - saved.at(name)[i] - g[i]));
        BOOST_TEST(worst <= 1e-5, name << " is " << worst << " off");
      }
      BOOST_TEST(emu::problems().empty());
    }
  }
}

BOOST_AUTO_TEST_CASE(the_golden_run_of_peft_is_reproduced_and_stays_near_in_bf16) {
  const std::string runs = std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/";
  const nlohmann::json expected = nlohmann::json::parse(golden_detail::slurp(runs + "lora/expected.json"));
  const nlohmann::json run = expected["run"];
  for (const char* precision : {"fp32", "bf16"}) {
    emu::reset();
    GoldenRun g = read_golden(runs + "gqa-tied");
    for (auto& [name, values] : read_tensors(runs + "lora/adapter_model.safetensors"))
      g.weights[name] = values;
    g.run.micro_batch = run["micro_batch"], g.run.accumulate = 1, g.run.seq_len = run["seq_len"];
    g.run.beta1 = run["betas"][0], g.run.beta2 = run["betas"][1], g.run.eps = run["eps"];
    g.run.weight_decay = run["weight_decay"], g.run.clip_norm = run["grad_clip"];
    g.run.mode = RunMode::kLora, g.run.lora_rank = 3, g.run.lora_alpha = 12 * std::sqrt(3.0);
    g.run.lora_targets = TH_LORA_Q | TH_LORA_V | TH_LORA_O | TH_LORA_UP | TH_LORA_DOWN;
    g.run = in_precision(g.run, precision);
    CudaHost host("auto");
    PluginSession s(cuda_engine(), host, g.model, g.run);
    for (const TensorInfo& t : all_tensors(g.model, g.run)) s.load(t, g.weights.at(t.name), scope_of(t));
    s.init(0);
    const bool exact = std::string(precision) == "fp32";
    for (std::uint32_t t = 0; t < 3; ++t) {
      std::vector<std::int32_t> ids, targets;
      g.samples(std::uint64_t{t} * g.run.micro_batch, g.run.micro_batch, ids, targets);
      const th_step_out out = s.step(ids, targets, run["lr"], t);
      const double loss = expected["loss"][t], norm = expected["grad_norm"][t];
      BOOST_TEST(std::abs(out.loss - loss) <= (exact ? 2e-5 : 5e-3), precision << ", step " << t);
      BOOST_TEST(std::abs(out.grad_norm - norm) <= (exact ? 1e-3 : 3e-2) * norm, precision << ", step " << t);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
