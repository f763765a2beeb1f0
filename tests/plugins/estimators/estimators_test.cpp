// The estimator plugins through the host: found next to the program and loaded by the registry.
#include <boost/test/unit_test.hpp>
#include <random>

#include "core/placement/memory_plan.hpp"
#include "tests/support/shipped.hpp"

using namespace trainhost;
namespace tp = trainhost::plugin;

namespace {

struct Case {
  ModelSpec model;
  RunSpec run;
  TrainerTraits traits;
};

Case random_case(std::mt19937& g) {
  auto upto = [&](std::uint32_t n) { return static_cast<std::uint32_t>(g() % n); };
  Case c;
  ModelSpec& m = c.model;
  const char* const families[] = {"llama", "mistral", "qwen2", "qwen3"};
  m.family = families[upto(4)];
  m.kv_heads = 1 + upto(3), m.heads = m.kv_heads * (1 + upto(3)), m.head_dim = 2 * (1 + upto(8));
  m.hidden = 1 + upto(70), m.layers = 1 + upto(4), m.intermediate = 1 + upto(90), m.vocab = 2 + upto(300);
  m.tied = upto(2), m.qkv_bias = m.family == "qwen2", m.qk_norm = m.family == "qwen3", m.mlp_bias = upto(2);
  c.run.micro_batch = 1 + upto(4), c.run.seq_len = 1 + upto(60), c.run.accumulate = 1 + upto(3);
  c.run.optimizer = static_cast<Optimizer>(1 + upto(3));
  c.run.recompute = static_cast<Recompute>(1 + upto(3));
  c.traits.trainer = "test";
  c.traits.alignment = 1u << (6 + upto(3));
  c.traits.head_chunk_tokens = upto(20), c.traits.threads = 1 + upto(4),
  c.traits.workspace_bytes = upto(5000);
  return c;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(estimators)

BOOST_AUTO_TEST_CASE(all_shipped_estimators_are_found_and_load) {
  test::shipped().probe_all();
  for (const char* id : {"llama", "contract"}) {
    const tp::Candidate* c = test::shipped().find(id);
    BOOST_REQUIRE(c);
    BOOST_TEST((c->status == tp::Status::kOk), c->reason);
    BOOST_TEST(c->manifest.families.size() == 4u);
  }
  for (const char* id : {"memory-equation", "vram-note"}) {
    const tp::Candidate* c = test::shipped().find(id);
    BOOST_REQUIRE(c);
    BOOST_TEST((c->status == tp::Status::kOk), c->reason);
  }
  std::vector<std::string> ids = test::shipped().ids("estimator");
  BOOST_TEST((std::find(ids.begin(), ids.end(), "llama") < std::find(ids.begin(), ids.end(), "contract")));
}

BOOST_AUTO_TEST_CASE(exact_estimators_match_only_the_trainable_families) {
  ModelSpec m;
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"}) {
    m.family = family;
    BOOST_TEST(test::shipped().estimator("llama").match(m, {}) == 1000);
    BOOST_TEST(test::shipped().estimator("contract").match(m, {}) == 100);
  }
  for (const char* family : {"gpt2", "gemma2", "mixtral", "", "LLAMA"}) {
    m.family = family;
    BOOST_TEST(test::shipped().estimator("llama").match(m, {}) == 0);
    BOOST_TEST(test::shipped().estimator("contract").match(m, {}) == 0);
  }
}

BOOST_AUTO_TEST_CASE(rules_of_thumb_match_every_countable_family_and_never_score_best) {
  ModelSpec m;
  m.vocab = 100, m.hidden = 8, m.layers = m.heads = 2;
  for (const char* id : {"memory-equation", "vram-note"}) {
    for (const char* family : {"llama", "qwen3", "gpt2", "gemma2", "mixtral"}) {
      m.family = family;
      BOOST_TEST(test::shipped().estimator(id).match(m, {}) == 50, id << " " << family);
    }
    for (const char* family : {"", "LLAMA", "bert"}) {
      m.family = family;
      BOOST_TEST(test::shipped().estimator(id).match(m, {}) == 0, id << " " << family);
    }
    ModelSpec bare = m;
    bare.family = "gpt2", bare.heads = 0;
    BOOST_TEST(test::shipped().estimator(id).match(bare, {}) == 0);
  }
  RunSpec inference;
  inference.mode = RunMode::kInference;
  m.family = "llama";
  BOOST_TEST(test::shipped().estimator("memory-equation").match(m, inference) == 0);
  BOOST_TEST(test::shipped().estimator("vram-note").match(m, inference) == 50);
}

BOOST_AUTO_TEST_CASE(options_reach_the_rules_of_thumb) {
  ModelSpec m;
  m.family = "unknown", m.vocab = 256000, m.hidden = 4608, m.layers = 46, m.heads = 32, m.kv_heads = 16,
  m.head_dim = 128;
  RunSpec lora;
  lora.mode = RunMode::kLora, lora.seq_len = 8192;
  auto with = [&](const char* id, std::map<std::string, std::string> options, const RunSpec& r) {
    tp::HostOptions host;
    host.plugin_options[id] = std::move(options);
    tp::Registry here({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, host);
    return here.estimator(id).estimate(m, r, nullptr);
  };
  const MemoryReport note = with("vram-note",
                                 {{"parameters", "27e9"},
                                  {"hidden_size", "4068"},
                                  {"vocab_size", "256128"},
                                  {"trainable_ratio", "0.02"}},
                                 lora);
  BOOST_TEST(note.total_bytes() == 70846191104u);
  BOOST_TEST((note.claim == Claim::kApproximation));

  m.layers = m.heads = 32, m.hidden = 4096;
  RunSpec full;
  full.seq_len = 2048, full.weight = full.grad = DType::kBF16, full.master = DType::kF32;
  const std::map<std::string, std::string> as_printed = {{"parameters", "7e9"},
                                                         {"attention", "materialised"}};
  BOOST_TEST(with("memory-equation", as_printed, full).total_bytes() == 140739572694u);
  auto fragmentation = as_printed;
  fragmentation["fragmentation"] = "0";
  BOOST_TEST(with("memory-equation", fragmentation, full).component_bytes(Component::kFragmentation) == 0u);
  full.parallel.data = 8;
  auto chunked = as_printed;
  chunked["chunk"] = "1MiB";
  BOOST_TEST(with("memory-equation", chunked, full).component_bytes(Component::kCommunication) == 2u << 20);
}

BOOST_AUTO_TEST_CASE(an_invalid_option_error_has_its_key_and_the_nearest_value) {
  ModelSpec m;
  m.family = "llama", m.vocab = 16, m.hidden = 8, m.layers = m.heads = m.kv_heads = 2, m.head_dim = 4,
  m.intermediate = 8;
  auto refused = [&](const char* id, const char* key, const char* value, const std::string& words) {
    tp::HostOptions host;
    host.plugin_options[id][key] = value;
    tp::Registry here({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, host);
    BOOST_CHECK_EXCEPTION(here.estimator(id).estimate(m, {}, nullptr), tp::PluginError,
                          [&](const tp::PluginError& e) {
                            BOOST_TEST(std::string(e.what()).find(words) != std::string::npos, e.what());
                            return e.code() == Exit::kUsage;
                          });
  };
  refused(
      "memory-equation", "attention", "flsh",
      "plugin.memory-equation.attention = flsh: expected auto, flash or materialised; did you mean 'flash'?");
  refused("memory-equation", "fragmentation", "7", "expected a number from 0 to 1");
  refused("memory-equation", "parameters", "many", "expected a positive integer");
  refused("vram-note", "trainable_ratio", "-1", "expected a number from 0 to 1");
  m.heads = 0;
  BOOST_CHECK_EXCEPTION(test::shipped().estimator("vram-note").estimate(m, {}, nullptr), tp::PluginError,
                        [](const tp::PluginError& e) {
                          return std::string(e.what()).find("num_attention_heads") != std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(llama_reports_the_breakdown_of_the_plan_to_the_byte) {
  std::mt19937 g(11);
  for (int i = 0; i < 100; ++i) {
    Case c = random_case(g);
    step::Program program = step::build_program(c.model, c.run, c.traits);
    placement::MemoryPlan placed = placement::place(program);
    MemoryReport r = test::shipped().estimator("llama").estimate(c.model, c.run, &c.traits);
    BOOST_REQUIRE_EQUAL(r.total_bytes(), placed.arena_bytes);
    BOOST_REQUIRE_EQUAL(r.digest, placed.digest);
    BOOST_REQUIRE_EQUAL(r.component_bytes(Component::kFragmentation), placed.fragmentation());
    BOOST_REQUIRE((r.claim == Claim::kExact));
    BOOST_REQUIRE(r.notes == placement::memory_breakdown(program, placed).notes);
  }
}

BOOST_AUTO_TEST_CASE(llama_without_a_trainer_adds_a_note) {
  std::mt19937 g(3);
  Case c = random_case(g);
  MemoryReport r = test::shipped().estimator("llama").estimate(c.model, c.run, nullptr);
  step::Program program = step::build_program(c.model, c.run, {});
  BOOST_TEST(r.total_bytes() == placement::place(program).arena_bytes);
  BOOST_REQUIRE(!r.notes.empty());
  BOOST_TEST(r.notes.back().starts_with("No trainer was named"));
}

BOOST_AUTO_TEST_CASE(llama_rejects_a_family_by_name) {
  std::mt19937 g(5);
  Case c = random_case(g);
  c.model.family = "gpt2";
  BOOST_CHECK_EXCEPTION(test::shipped().estimator("llama").estimate(c.model, c.run, nullptr), tp::PluginError,
                        [](const tp::PluginError& e) {
                          BOOST_TEST(std::string(e.what()).find("gpt2") != std::string::npos, e.what());
                          return e.status() == "unsupported" && e.code() == Exit::kUsage;
                        });
}

BOOST_AUTO_TEST_CASE(contract_reports_its_bound_and_notes) {
  ModelSpec m;
  m.vocab = 32768, m.hidden = 1024, m.layers = 24, m.heads = 16, m.kv_heads = 4, m.head_dim = 64,
  m.intermediate = 4096;
  RunSpec run;
  run.seq_len = 1024;
  MemoryReport r = test::shipped().estimator("contract").estimate(m, run, nullptr);
  BOOST_TEST(r.source == "contract");
  BOOST_TEST(r.total_bytes() == 7919648768u);
  BOOST_TEST((r.claim == Claim::kUpperBound));
  BOOST_TEST(r.notes.size() >= 3u);
  TrainerTraits gpu;
  gpu.tier = Tier::kDevice;
  BOOST_TEST(test::shipped().estimator("contract").estimate(m, run, &gpu).tier_bytes(Tier::kDevice) ==
             7919648768u);
}

BOOST_AUTO_TEST_SUITE_END()
