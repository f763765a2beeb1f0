// The transformer estimator compared with the placed program: states to the byte, activations within a bound.
// Also the plugin through the host: families, errors, notes.
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <map>
#include <random>
#include <string>

#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/parallel/rank_memory.hpp"
#include "core/placement/memory_plan.hpp"
#include "tests/plugins/estimators/report_notes.hpp"
#include "tests/support/shipped.hpp"

using namespace trainhost;
namespace tp = trainhost::plugin;
using trainhost::test::has_note;

namespace {

struct Case {
  ModelSpec model;
  RunSpec run;
};

/// A model of realistic size; planning allocates none of it.
Case random_case(std::mt19937& g) {
  auto between = [&](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(g() % (high - low + 1));
  };
  Case c;
  ModelSpec& m = c.model;
  const char* const families[] = {"llama", "mistral", "qwen2", "qwen3"};
  m.family = families[between(0, 3)];
  m.kv_heads = between(1, 4), m.heads = m.kv_heads * between(1, 4), m.head_dim = 128,
  m.hidden = 128 * between(8, 40), m.layers = between(16, 40);
  m.intermediate = m.hidden * between(2, 4), m.vocab = 1000 * between(32, 128);
  m.tied = between(0, 1), m.qkv_bias = m.family == "qwen2", m.qk_norm = m.family == "qwen3";
  c.run.micro_batch = between(1, 4), c.run.seq_len = 512 * between(1, 8),
  c.run.accumulate = between(2, 4);  // of one micro-batch fewer gradients exist at the peak
  c.run.optimizer = static_cast<Optimizer>(between(1, 3)),
  c.run.recompute = static_cast<Recompute>(between(1, 3));
  c.run.memory.cross_entropy = CrossEntropy::kFused;
  return c;
}

/// Transient memory: activations, logits and buffers of the backward pass, without the constant workspace.
std::uint64_t moving(const MemoryReport& r) {
  std::uint64_t sum = 0;
  for (const MemoryEntry& n : r.entries)
    if (n.component == Component::kActivations || n.component == Component::kLogits ||
        n.component == Component::kWorkspace)
      if (n.name != "library workspace") sum += n.at_peak();
  return sum;
}

ModelSpec llama_7b() {
  ModelSpec m;
  m.vocab = 32000, m.hidden = 4096, m.layers = 32, m.heads = m.kv_heads = 32, m.head_dim = 128,
  m.intermediate = 11008;
  return m;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(transformer)

BOOST_AUTO_TEST_CASE(states_equal_those_of_the_placed_program_and_activations_are_close) {
  std::mt19937 g(7);
  double least[4] = {9, 9, 9, 9}, most[4] = {};  // by recompute policy
  for (int i = 0; i < 200; ++i) {
    const Case c = random_case(g);
    TrainerTraits traits;
    traits.trainer = "test", traits.head_chunk_tokens = 1024;
    const MemoryReport exact = test::shipped().estimator("llama").estimate(c.model, c.run, &traits);
    const MemoryReport ours = test::shipped().estimator("transformer").estimate(c.model, c.run, &traits);
    for (Component k :
         {Component::kWeights, Component::kMasterWeights, Component::kGradients, Component::kOptimizerState})
      BOOST_REQUIRE_EQUAL(ours.component_bytes(k), exact.component_bytes(k));
    const double near = double(moving(ours)) / double(moving(exact));
    const auto policy = std::size_t(c.run.recompute);
    least[policy] = std::min(least[policy], near), most[policy] = std::max(most[policy], near);
  }
  for (std::size_t p = 1; p < 4; ++p)
    std::printf("recompute %zu: transient memory, estimate / program's: %.3f to %.3f\n", p, least[p],
                most[p]);
  // Without recompute: the same tensors. Else the program frees earlier inside a layer than a usual
  // implementation does.
  BOOST_TEST((least[1] > 0.99 && most[1] < 1.03));
  BOOST_TEST((least[2] > 0.90 && most[2] < 1.10));
  BOOST_TEST((least[3] > 0.99 && most[3] < 1.45));
}

BOOST_AUTO_TEST_CASE(every_known_family_matches_under_any_parallelism) {
  ModelSpec m;
  RunSpec spread;
  spread.parallel.tensor = 8, spread.parallel.zero = 3;
  for (std::string_view family : model::known_families()) {
    m.family = family;
    BOOST_TEST(test::shipped().estimator("transformer").match(m, {}) == 500, family);
    BOOST_TEST(test::shipped().estimator("transformer").match(m, spread) == 500, family);
  }
  m.family = "mamba";
  BOOST_TEST(test::shipped().estimator("transformer").match(m, {}) == 0);
  m.family = "llama";
  BOOST_TEST(test::shipped().estimator("llama").match(m, {}) == 1000);
  BOOST_TEST(test::shipped().estimator("llama").match(m, spread) == 0);
  // The manifest has the same list.
  test::shipped().probe_all();
  const std::span<const std::string_view> known = model::known_families();
  const std::vector<std::string> said = test::shipped().find("transformer")->manifest.families;
  BOOST_TEST(std::equal(said.begin(), said.end(), known.begin(), known.end()));
}

BOOST_AUTO_TEST_CASE(the_plugin_returns_entries_notes_and_errors) {
  RunSpec r;
  r.parallel.pipeline = 4, r.accumulate = 8, r.parallel.zero = 1, r.parallel.data = 8;
  const MemoryReport report = test::shipped().estimator("transformer").estimate(llama_7b(), r, nullptr);
  const model::Architecture a = model::from_model(llama_7b());
  BOOST_TEST(report.tier_bytes(Tier::kDevice) ==
             parallel::stage_numbers(a, r, parallel::worst_stage(a, r)).tier(Tier::kDevice));
  BOOST_TEST((report.claim == Claim::kApproximation));
  BOOST_TEST(has_note(report, "Stage 3: "));
  BOOST_TEST(has_note(report, "Exact, tensor by tensor"));
  BOOST_TEST(!has_note(report, "'llama' plans this run exactly"));
  BOOST_TEST(has_note(test::shipped().estimator("transformer").estimate(llama_7b(), {}, nullptr),
                      "'llama' plans this run exactly"));

  // The note has the bytes of the program only if they are cheap to compute; a program that cannot be built
  // does not make the estimate fail.
  ModelSpec shallow = llama_7b();
  shallow.layers = 4;
  BOOST_TEST(!has_note(test::shipped().estimator("transformer").estimate(llama_7b(), {}, nullptr),
                       "'llama' plans this run exactly: "));
  BOOST_TEST(has_note(test::shipped().estimator("transformer").estimate(shallow, {}, nullptr),
                      "'llama' plans this run exactly: "));
  TrainerTraits unusable;
  unusable.trainer = "test", unusable.alignment = 3;
  BOOST_CHECK_THROW(test::shipped().estimator("llama").estimate(shallow, {}, &unusable), tp::PluginError);
  BOOST_TEST(has_note(test::shipped().estimator("transformer").estimate(shallow, {}, &unusable),
                      "'llama' plans this run exactly. "));

  r.parallel.tensor = 3;
  BOOST_CHECK_EXCEPTION(
      test::shipped().estimator("transformer").estimate(llama_7b(), r, nullptr), tp::PluginError,
      [](const tp::PluginError& e) {
        return std::string(e.what()).find("parallel.tensor = 3 does not divide 32 heads; use 2 or 4") !=
                   std::string::npos &&
               e.code() == Exit::kUsage;
      });
}

BOOST_AUTO_TEST_CASE(a_model_with_linear_attention_has_a_note_on_its_kernels_and_its_adapters) {
  const ModelSpec& hybrid = *model::find_planned_preset("qwen3.5-4b");
  const auto plan = [](const ModelSpec& m, const RunSpec& r) {
    return test::shipped().estimator("transformer").estimate(m, r, nullptr);
  };
  RunSpec r;
  BOOST_TEST(has_note(plan(hybrid, r), "kernels of flash-linear-attention"));
  BOOST_TEST(!has_note(plan(llama_7b(), r), "kernels of flash-linear-attention"));
  BOOST_TEST(!has_note(plan(hybrid, r), "not among the targets of adapters"));
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = 1;
  BOOST_TEST(has_note(plan(hybrid, r), "not among the targets of adapters"));
  // Nemotron-H has MLPs without gates.
  const ModelSpec& plain = *model::find_planned_preset("nemotron-nano-9b-v2");
  BOOST_TEST(plan(plain, r).component_bytes(Component::kAdapters) > 0u);
  r.lora_targets = 16;  // gate_proj
  BOOST_CHECK_EXCEPTION(plan(plain, r), tp::PluginError, [](const tp::PluginError& e) {
    return std::string(e.what()).starts_with("lora.targets: no matrix of the model has an adapter");
  });
  r = {}, r.mode = RunMode::kInference;
  BOOST_TEST(!has_note(plan(hybrid, r), "kernels of flash-linear-attention"));
}

/// Report of llama_7b() with options of the plugin.
static MemoryReport with_options(const RunSpec& r, const std::map<std::string, std::string>& options,
                                 const ModelSpec& m = llama_7b()) {
  tp::HostOptions o;
  o.plugin_options[""] = options;
  tp::Registry plugins({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, std::move(o));
  return plugins.estimator("transformer").estimate(m, r, nullptr);
}

BOOST_AUTO_TEST_CASE(dpo_keeps_its_logits_whatever_computes_the_loss) {
  RunSpec r;
  r.seq_len = 512;
  r.memory.cross_entropy = CrossEntropy::kPlain;
  const std::string framework = "llama-factory";
  const auto logits = [&](const std::map<std::string, std::string>& options) {
    return with_options(r, options).component_bytes(Component::kLogits);
  };
  const std::uint64_t plain = logits({{"framework", framework}, {"method", "dpo"}});
  BOOST_TEST(plain == 2 * 512 * 32000u * 12);
  for (const std::string loss : {"liger", "cut"}) {
    r.memory.cross_entropy = CrossEntropy::kFused;  // as the plugin's interface has it
    BOOST_TEST(logits({{"framework", framework}, {"cross_entropy", loss}}) < plain / 2, loss);
    const std::map<std::string, std::string> dpo{
        {"framework", framework}, {"method", "dpo"}, {"cross_entropy", loss}};
    BOOST_TEST(logits(dpo) == plain, loss);
    BOOST_TEST(has_note(with_options(r, dpo), "plan.cross_entropy = \"" + loss + "\" has no effect"));
  }
}

BOOST_AUTO_TEST_CASE(experts_are_said_to_be_cast_only_where_they_are) {
  RunSpec r;
  r.mode = RunMode::kQlora;
  r.lora_rank = 8, r.lora_targets = 1;
  r.memory.frozen = DType::kNF4;
  const ModelSpec m = *model::find_planned_preset("mixtral-8x7b-v0.1");
  const auto note = [&](DType compute, const std::string& framework) {
    r.compute = compute;
    return with_options(r, {{"framework", framework}}, m);
  };
  const char* const cast = "prepare_model_for_kbit_training() of peft casts them";
  BOOST_TEST(has_note(note(DType::kBF16, "axolotl"), cast));
  BOOST_TEST(has_note(note(DType::kBF16, "deepspeed"), "they are in bf16. plan.quant_experts"));
  BOOST_TEST(has_note(note(DType::kF32, "deepspeed"), "they are in f32. plan.quant_experts"));
  BOOST_TEST(!has_note(note(DType::kF32, "deepspeed"), cast));
}

// Each replica has a shard of its own: two of four ranks hold what four of them hold without replicas.
BOOST_AUTO_TEST_CASE(replicas_shard_over_a_part_of_the_ranks) {
  RunSpec r;
  r.parallel.zero = 3;
  const auto weights = [&](std::uint32_t data, const char* replicas) {
    r.parallel.data = data;
    return with_options(r, {{"framework", "torchtitan"}, {"fsdp_replicas", replicas}})
        .component_bytes(Component::kWeights);
  };
  BOOST_TEST(weights(8, "2") == weights(4, "1"));
  BOOST_TEST(weights(8, "1") < weights(8, "2"));
}

BOOST_AUTO_TEST_CASE(a_release_says_what_it_changes_in_the_closed_form) {
  const std::map<std::string, std::string> options{{"framework", "transformers"},
                                                   {"framework_version", "4.57"}};
  RunSpec r;
  constexpr const char* kNone = "plan.framework_version = \"4.57\" is without effect in the closed form.";
  BOOST_TEST(has_note(with_options(r, options), kNone));
  BOOST_TEST(!has_note(with_options(r, {{"framework", "transformers"}}), "plan.framework_version"));
  r.mode = RunMode::kQlora, r.lora_rank = 8, r.lora_targets = 1, r.memory.frozen = DType::kNF4;
  BOOST_TEST(has_note(with_options(r, options), kNone));
  BOOST_TEST(has_note(with_options(r, options, *model::find_planned_preset("mixtral-8x7b-v0.1")),
                      "changes quantized experts only in the closed form"));
  r.parallel.data = 2, r.parallel.zero = 3;
  BOOST_TEST(
      has_note(with_options(r, options), "changes the shares of packed weights only in the closed form"));
}

BOOST_AUTO_TEST_SUITE_END()
