// The calculon plugin through the host: loaded by the registry, with the options of a run file.
#include <boost/test/unit_test.hpp>

#include "core/plugin/registry.hpp"

using namespace trainhost;
namespace tp = trainhost::plugin;

namespace {

tp::Registry registry(std::map<std::string, std::string> table = {}) {
  tp::HostOptions options;
  options.plugin_options["calculon"] = std::move(table);
  return tp::Registry({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, std::move(options));
}

ModelSpec gpt() {
  ModelSpec m;
  m.family = "megatron-gpt", m.vocab = 51200, m.hidden = 6144, m.layers = 48, m.heads = m.kv_heads = 64,
  m.head_dim = 96, m.intermediate = 24576;
  return m;
}

RunSpec megatron_22b() {  // fig7/megatron-22B_full of Calculon's validation
  RunSpec r;
  r.seq_len = 2048, r.micro_batch = 4, r.parallel.tensor = 8, r.recompute = Recompute::kFull;
  r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  return r;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(calculon_plugin)

BOOST_AUTO_TEST_CASE(known_families_match_under_a_parallelism_that_calculon_can_express) {
  tp::Registry r = registry();
  const auto match = [&](const ModelSpec& m, const RunSpec& run) {
    return r.estimator("calculon").match(m, run);
  };
  ModelSpec m = gpt();
  m.family = "llama";
  BOOST_TEST(match(m, {}) == 50);
  RunSpec run = megatron_22b();
  BOOST_TEST(match(m, run) == 50);
  run.parallel.tensor = 7;
  BOOST_TEST(match(m, run) == 0);
  m.intermediate = 0;
  BOOST_TEST(match(m, {}) == 0);
  m = gpt(), m.family = "unknown";
  BOOST_TEST(match(m, {}) == 0);
}

// A ModelSpec of such a config may lack the MLP width: GPT-2 has null, which means 4*H.
BOOST_AUTO_TEST_CASE(dimensions_come_from_the_config_of_a_known_family) {
  ModelSpec m;
  m.family = "gpt2", m.hidden = 1, m.heads = m.kv_heads = 1;
  m.config_json =
      R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": null,
                      "n_positions": 1024})";
  tp::Registry r = registry();
  BOOST_TEST(r.estimator("calculon").match(m, {}) == 50);
  const MemoryReport report = r.estimator("calculon").estimate(m, {}, nullptr);
  const std::uint64_t block = 4ull * 768 * 768 + 2 * 768 * 3072 + 4 * 768;
  BOOST_TEST(report.component_bytes(Component::kWeights) == 4 * (12 * block + 50257 * 768));
}

// The other tests call the estimator by name with an unknown family.
BOOST_AUTO_TEST_CASE(a_validation_run_is_exact_through_the_plugin_and_the_embedding_is_optional) {
  tp::Registry bare = registry({{"embedding", "false"}}), with = registry();
  const MemoryReport a = bare.estimator("calculon").estimate(gpt(), megatron_22b(), nullptr);
  BOOST_TEST(a.tier_bytes(Tier::kDevice) == 51705331712u);
  BOOST_TEST(a.total_bytes() == 51705331712u);
  BOOST_TEST((a.claim == Claim::kApproximation));
  BOOST_TEST(!a.notes.empty());
  const MemoryReport b = with.estimator("calculon").estimate(gpt(), megatron_22b(), nullptr);
  BOOST_TEST(b.total_bytes() - a.total_bytes() == 2u * 51200 / 8 * 6144 * (2 + 4 + 8));
}

BOOST_AUTO_TEST_CASE(the_traits_of_the_trainer_decide_the_tier_named_tier_1) {
  TrainerTraits cpu;
  cpu.tier = Tier::kHost;
  tp::Registry r = registry();
  RunSpec run = megatron_22b();
  run.memory.weights_in = Tier::kHost;  // both tiers are the host's then, and add up
  const MemoryReport report = r.estimator("calculon").estimate(gpt(), run, &cpu);
  BOOST_TEST(report.tier_bytes(Tier::kDevice) == 0u);
  BOOST_TEST(report.tier_bytes(Tier::kHost) == report.total_bytes());
}

BOOST_AUTO_TEST_CASE(mistakes_are_usage_errors_with_their_key) {
  tp::Registry wrong = registry({{"attention_type", "multihaed"}});
  BOOST_CHECK_EXCEPTION(
      wrong.estimator("calculon").estimate(gpt(), megatron_22b(), nullptr), tp::PluginError,
      [](const tp::PluginError& e) {
        BOOST_TEST(std::string(e.what()).find("did you mean 'multihead'?") != std::string::npos, e.what());
        return e.status() == "argument" && e.code() == Exit::kUsage;
      });
  tp::Registry r = registry();
  RunSpec run = megatron_22b();
  run.parallel.tensor = 7;
  BOOST_CHECK_EXCEPTION(r.estimator("calculon").estimate(gpt(), run, nullptr), tp::PluginError,
                        [](const tp::PluginError& e) {
                          return std::string(e.what()).find("parallel.tensor = 7") != std::string::npos &&
                                 e.code() == Exit::kUsage;
                        });
}

BOOST_AUTO_TEST_SUITE_END()
