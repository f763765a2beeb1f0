// Training adapters on the CUDA trainer: loss, norm and gradients compared with a reference in double, by the
// change of the adapters in one step of SGD with learning rate 1; the golden runs of peft, with dropout and
// over NF4, in every mode; the same bits and transfers in every recompute policy.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "core/base/bf16.hpp"
#include "core/model/trainable.hpp"
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

BOOST_DATA_TEST_CASE(a_step_changes_adapters_by_their_gradients,
                     kAdaptedModels* boost::unit_test::data::make({false, true}), z, dora) {
  std::uint32_t variant = z.seq;
  const Recompute recomputes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  std::vector<std::uint32_t> masks(std::begin(kAdapterTargets), std::end(kAdapterTargets));
  masks.push_back(0);  // another size in every product
  for (const std::uint32_t mask : sets_outside_layers(z.spec)) masks.push_back(mask);
  for (const std::uint32_t mask : masks) {
    ++variant;
    emu::reset();
    const std::uint32_t accumulate = 1 + variant % 2;
    RunSpec r = lora_run(z, 4 / accumulate, accumulate, mask, 1 + variant % 4);
    r.memory.dora = dora;
    if (mask == 0) set_different_adapters(z.spec, r);
    if (variant % 3 == 0) r.mode = RunMode::kQlora, r.memory.double_quantized = variant % 2;
    r.optimizer = Optimizer::kSgd, r.weight_decay = 0, r.recompute = recomputes[variant % 3];
    const Weights given = random_weights(z.spec, 3), adapters = random_adapters(z.spec, r, 4),
                  base = reference_weights(z.spec, r, in_nf4(z.spec, r, given));
    const ModelSpec m = reference_model(z.spec, r);
    const Ids ids = random_tokens(4 * z.seq, z.spec.vocab, 1),
              targets = random_targets(4 * z.seq, z.spec.vocab, 2);
    Weights dw;
    const double loss = reference::Model(m, z.seq).loss(merged(m, r, base, adapters), ids, targets, &dw);
    CudaHost host(kModes[variant % 3]);
    PluginSession s(cuda_engine(), host, z.spec, r);
    load_with_adapters(s, z.spec, r, united(given, adapters));
    s.init(0);
    BOOST_TEST_CONTEXT("targets " << mask << ", rank " << r.lora_rank << ", accumulate " << accumulate
                                  << ", mode " << host.mode) {
      BOOST_TEST(std::abs(s.evaluate(Ids(ids.begin(), ids.begin() + z.seq),
                                     Ids(targets.begin(), targets.begin() + z.seq))
                              .loss -
                          reference::Model(m, z.seq).loss(
                              merged(m, r, base, adapters), Ids(ids.begin(), ids.begin() + z.seq),
                              Ids(targets.begin(), targets.begin() + z.seq))) <= 1e-4);
      const th_step_out out = s.step(ids, targets, 1.0, 0);
      BOOST_TEST(std::abs(out.loss - loss) <= 1e-5 * loss, out.loss << " against " << loss);
      const auto saved = s.save(TH_SCOPE_ADAPTER);
      const Weights expected = adapter_gradients(m, r, base, dw, adapters);
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

// Modules trained whole beside adapters of q and v, in every mode: each tensor changes by its gradient, and
// TH_SCOPE_ADAPTER has both.
BOOST_DATA_TEST_CASE(a_step_changes_modules_beside_adapters_by_their_gradients, kAdaptedModels, z) {
  std::uint32_t variant = 0;
  for (const std::vector<std::string>& modules :
       {std::vector<std::string>{"norm"}, std::vector<std::string>{"down_proj"},
        std::vector<std::string>{"lm_head", "embed_tokens"}}) {
    emu::reset();
    RunSpec r = lora_run(z, 2, 2, TH_LORA_Q | TH_LORA_V, 3);
    r.trainable = rules_of_modules(modules);
    r.optimizer = Optimizer::kSgd, r.weight_decay = 0;
    const Weights base = random_weights(z.spec, 3), adapters = random_adapters(z.spec, r, 4),
                  given = united(base, adapters);
    const Ids ids = random_tokens(4 * z.seq, z.spec.vocab, 1),
              targets = random_targets(4 * z.seq, z.spec.vocab, 2);
    Weights dw;
    reference::Model(z.spec, z.seq).loss(merged(z.spec, r, base, adapters), ids, targets, &dw);
    Weights expected = adapter_gradients(z.spec, r, base, dw, adapters);
    for (const TensorInfo& t : tensors(z.spec))
      if (is_trained(r, t.name)) expected[t.name] = dw.at(t.name);
    const char* mode = kModes[variant++ % std::size(kModes)];
    CudaHost host(mode);
    PluginSession s(cuda_engine(), host, z.spec, r);
    load_with_adapters(s, z.spec, r, given);
    s.init(0);
    s.step(ids, targets, 1.0, 0);
    const auto saved = s.save(TH_SCOPE_ADAPTER);
    BOOST_TEST_CONTEXT(mode << ", " << modules.front()) {
      BOOST_TEST(saved.size() == expected.size());
      for (const auto& [name, g] : expected) {
        double worst = 0;
        for (std::size_t i = 0; i < g.size(); ++i)
          worst = std::max(worst, std::abs(given.at(name)[i] - saved.at(name)[i] - g[i]));
        BOOST_TEST(worst <= 1e-5, name << " is " << worst << " off");
      }
      BOOST_TEST(emu::problems().empty());
    }
  }
}

/// A golden run of peft (tests/interop/peft_lora.py) in one mode and precision.
struct PeftRun {
  const char *kind, *mode, *precision;
  std::uint32_t steps;
};
std::ostream& operator<<(std::ostream& o, const PeftRun& c) {
  return o << c.kind << ", " << c.mode << ", " << c.precision;
}
std::vector<PeftRun> peft_runs() {
  std::vector<PeftRun> all;
  for (const char* kind : {"lora", "lora-dropout", "qlora", "dora", "dora-dropout", "qdora", "lora-head",
                           "lora-head-dropout", "dora-head", "dora-head-dropout", "lora-tied", "dora-tied"})
    for (const char* mode : kModes) {
      const bool resident = mode == kModes[0];
      if (resident) all.push_back({kind, mode, "fp32", 4}), all.push_back({kind, mode, "bf16", 2});
      if (!resident && std::string(kind) != "lora") all.push_back({kind, mode, "fp32", 2});
    }
  return all;
}

BOOST_DATA_TEST_CASE(the_golden_runs_of_peft_are_reproduced_and_stay_near_in_bf16,
                     boost::unit_test::data::make(peft_runs()), c) {
  emu::reset();
  const std::string runs = std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/", kind = c.kind;
  const nlohmann::json expected = nlohmann::json::parse(golden_detail::slurp(runs + kind + "/expected.json"));
  const nlohmann::json run = expected["run"];
  GoldenRun g = read_golden(runs + "gqa-tied");
  const bool of_head = kind.substr(1).starts_with("ora-head"), tied = kind.ends_with("-tied"),
             dora = kind.find("dora") != kind.npos, nf4 = kind.starts_with("q");
  const std::string of_kind = dora ? "dora" : "lora", adapter = of_head ? of_kind + "-head"
                                                                : tied  ? kind
                                                                        : of_kind;
  for (auto& [name, values] : read_tensors(runs + adapter + "/adapter_model.safetensors"))
    g.weights[name] = values;
  RunSpec& r = g.run;
  r.micro_batch = run["micro_batch"], r.accumulate = 1, r.seq_len = run["seq_len"];
  r.beta1 = run["betas"][0], r.beta2 = run["betas"][1], r.eps = run["eps"];
  r.weight_decay = run["weight_decay"], r.clip_norm = run["grad_clip"];
  r.mode = nf4 ? RunMode::kQlora : RunMode::kLora, r.lora_rank = 3;
  r.memory.double_quantized = nf4, r.memory.dora = dora;
  r.memory.lora_dropout = run.value("lora_dropout", 0.0), r.seed = run.value("seed", 1u);
  r.lora_alpha = 12 * std::sqrt(3.0);  // rsLoRA
  r.lora_targets = of_head ? TH_LORA_Q | TH_LORA_V | TH_LORA_HEAD
                   : tied  ? TH_LORA_Q | TH_LORA_EMBED | TH_LORA_TIED
                           : TH_LORA_Q | TH_LORA_V | TH_LORA_O | TH_LORA_UP | TH_LORA_DOWN;
  r = in_precision(r, c.precision);
  CudaHost host(c.mode);
  {
    PluginSession s(cuda_engine(), host, g.model, r);
    for (const TensorInfo& t : all_tensors(g.model, r)) {
      std::vector<float> values = g.weights.at(t.name);
      if (is_transposed_in_files(t))
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = g.weights.at(t.name)[i % t.dim[1] * t.dim[0] + i / t.dim[1]];
      s.load(t, values, scope_of(t));
    }
    s.init(0);
    const bool exact = std::string(c.precision) == "fp32";
    for (std::uint32_t t = 0; t < c.steps; ++t) {
      std::vector<std::int32_t> ids, targets;
      g.samples(std::uint64_t{t} * r.micro_batch, r.micro_batch, ids, targets);
      const th_step_out out = s.step(ids, targets, run["lr"], t);
      const double loss = expected["loss"][t], norm = expected["grad_norm"][t];
      BOOST_TEST(std::abs(out.loss - loss) <= (exact ? 2e-5 : 5e-3), "step " << t);
      BOOST_TEST(std::abs(out.grad_norm - norm) <= (exact ? 1e-3 : 3e-2) * norm, "step " << t);
    }
    const bool hybrid = std::string(c.mode) == "hybrid";
    const th_counters n = counters(s);
    BOOST_TEST(n.h2d_count + n.d2h_count == (hybrid ? 3 * c.steps : 0u));
    BOOST_TEST(n.sync_count == 0u);
    BOOST_TEST(s.metric("sync_mismatch") == 0.0);
    BOOST_TEST(s.save(TH_SCOPE_MOMENT1).size() == s.save(TH_SCOPE_ADAPTER).size());
  }
  BOOST_TEST(host.all_freed());
  BOOST_TEST(emu::problems().empty());
}

// Dropout with several micro-batches: the second one of an update and every later update replay a captured
// graph, and forward i + 1 runs before backward i in mode hybrid.
BOOST_DATA_TEST_CASE(adapters_have_the_same_masks_and_weights_in_every_mode_and_policy,
                     kAdaptedModels* boost::unit_test::data::make({false, true}) *
                         boost::unit_test::data::make({0x1ffu, 0x7fu | kTargetEmbedding | kTiedAdapter}),
                     z, dora, adapted) {
  if ((adapted & kTiedAdapter) && !z.spec.tied) return;
  const Ids ids = random_tokens(6 * z.seq, z.spec.vocab, 1),
            targets = random_targets(6 * z.seq, z.spec.vocab, 2);
  const bool nf4 = z.spec.tied;
  Tensors first;
  std::vector<double> losses;
  for (const char* mode : kModes)
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      if (std::string(mode) != "resident" && recompute == Recompute::kFull) continue;
      emu::reset();
      RunSpec r = lora_run(z, 2, 3, adapted, 3);
      r.recompute = recompute, r.memory.lora_dropout = 0.3, r.memory.dora = dora;
      if (nf4) r.mode = RunMode::kQlora, r.memory.double_quantized = true;
      CudaHost host(mode);
      PluginSession s(cuda_engine(), host, z.spec, r);
      load_with_adapters(s, z.spec, r, united(random_weights(z.spec, 3), random_adapters(z.spec, r, 4)));
      s.init(0);
      std::vector<double> now;
      for (std::uint64_t t = 0; t < 2; ++t) now.push_back(s.step(ids, targets, 0.01, t).loss);
      const Tensors adapters = s.save(TH_SCOPE_ADAPTER);
      if (losses.empty()) losses = now, first = adapters;
      BOOST_TEST_CONTEXT(mode << ", recompute " << name(recompute) << ", NF4 " << nf4) {
        if (std::string(mode) == "resident") BOOST_TEST((adapters == first && now == losses));  // bit for bit
        for (std::size_t t = 0; t < 2; ++t) BOOST_TEST(std::abs(now[t] - losses[t]) <= 2e-5 * losses[t]);
        // The frozen weights are those that were loaded.
        const Weights base = in_nf4(z.spec, r, random_weights(z.spec, 3));
        for (const auto& [name, values] : s.save())
          BOOST_TEST((values == std::vector<float>(base.at(name).begin(), base.at(name).end())), name);
        BOOST_TEST(emu::problems().empty());
      }
    }
}

// The magnitudes of a new run are the norms of the rows, over NF4 those of the quantized matrices.
BOOST_DATA_TEST_CASE(initial_magnitudes_are_norms_of_rows,
                     kAdaptedModels* boost::unit_test::data::make({false, true}), z, nf4) {
  for (const char* mode : kModes)
    for (const bool bf16 : {false, true}) {
      emu::reset();
      RunSpec r = lora_run(z, 2, 1, 0x1ff, 3);
      r.memory.dora = true;
      if (nf4) r.mode = RunMode::kQlora;
      if (bf16) r = in_precision(r, "bf16");
      Weights base = random_weights(z.spec, 3), adapters = random_adapters(z.spec, r, 4);
      CudaHost host(mode);
      PluginSession s(cuda_engine(), host, z.spec, r);
      for (const TensorInfo& t : all_tensors(z.spec, r)) {
        if (t.part == AdapterPart::kMagnitude) continue;
        Vec& v = t.part == AdapterPart::kNone ? base.at(t.name) : adapters.at(t.name);
        s.load(t, std::vector<float>(v.begin(), v.end()), scope_of(t));
        // Frozen weights are stored in bf16 alone.
        if (bf16 && t.part == AdapterPart::kNone && !nf4::is_quantized(r, t))
          for (double& x : v) x = f32_from_bf16(bf16_from_f32(static_cast<float>(x)));
      }
      s.init(0);
      const auto saved = s.save(TH_SCOPE_ADAPTER);
      BOOST_TEST_CONTEXT(mode << (bf16 ? ", bf16" : "")) {
        const ModelSpec m = reference_model(z.spec, r);
        const Weights whole = reference_weights(z.spec, r, in_nf4(z.spec, r, base));
        for (const auto& [name, norms] : norms_of_rows(m, r, whole, adapters))
          for (std::size_t i = 0; i < norms.size(); ++i)
            BOOST_TEST(std::abs(saved.at(name)[i] - norms[i]) <= 1e-6 * norms[i], name);
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
