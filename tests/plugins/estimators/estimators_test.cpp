// The estimator plugins as the host sees them: found beside the program, loaded through the registry.
#include <boost/test/unit_test.hpp>
#include <random>

#include "core/plan/memory_plan.hpp"
#include "core/plugin/registry.hpp"

using namespace trainhost;
namespace tp = trainhost::plugin;

namespace {

tp::Registry& registry() {
  static tp::Registry r({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, {});
  return r;
}

struct Case {
  ModelSpec model;
  RunSpec run;
  Profile profile;
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
  c.profile.trainer = "test";
  c.profile.alignment = 1u << (6 + upto(3));
  c.profile.head_chunk_tokens = upto(20), c.profile.threads = 1 + upto(4),
  c.profile.workspace_bytes = upto(5000);
  return c;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(estimators)

BOOST_AUTO_TEST_CASE(both_are_found_beside_the_program_and_load) {
  registry().probe_all();
  for (const char* id : {"llama", "contract"}) {
    const tp::Candidate* c = registry().find(id);
    BOOST_REQUIRE(c);
    BOOST_TEST((c->status == tp::Status::kOk), c->reason);
    BOOST_TEST(c->manifest.families.size() == 4u);
  }
  std::vector<std::string> ids = registry().ids("estimator");
  BOOST_TEST((std::find(ids.begin(), ids.end(), "llama") < std::find(ids.begin(), ids.end(), "contract")));
}

BOOST_AUTO_TEST_CASE(they_fit_the_trainable_families_and_no_other) {
  ModelSpec m;
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"}) {
    m.family = family;
    BOOST_TEST(registry().estimator("llama").match(m, {}) == 1000);
    BOOST_TEST(registry().estimator("contract").match(m, {}) == 100);
  }
  for (const char* family : {"gpt2", "gemma2", "mixtral", "", "LLAMA"}) {
    m.family = family;
    BOOST_TEST(registry().estimator("llama").match(m, {}) == 0);
    BOOST_TEST(registry().estimator("contract").match(m, {}) == 0);
  }
}

BOOST_AUTO_TEST_CASE(llama_gives_the_plans_own_account_to_the_byte) {
  std::mt19937 g(11);
  for (int i = 0; i < 100; ++i) {
    Case c = random_case(g);
    plan::Program program = plan::build_program(c.model, c.run, c.profile);
    plan::MemoryPlan placed = plan::place(program);
    MemoryReport r = registry().estimator("llama").estimate(c.model, c.run, &c.profile);
    BOOST_REQUIRE_EQUAL(r.total_bytes(), placed.arena_bytes);
    BOOST_REQUIRE_EQUAL(r.digest, placed.digest);
    BOOST_REQUIRE_EQUAL(r.component_bytes(Component::kFragmentation), placed.fragmentation());
    BOOST_REQUIRE((r.claim == Claim::kExact));
    BOOST_REQUIRE(r.notes == plan::account(program, placed).notes);
  }
}

BOOST_AUTO_TEST_CASE(llama_without_a_trainer_says_so) {
  std::mt19937 g(3);
  Case c = random_case(g);
  MemoryReport r = registry().estimator("llama").estimate(c.model, c.run, nullptr);
  plan::Program program = plan::build_program(c.model, c.run, {});
  BOOST_TEST(r.total_bytes() == plan::place(program).arena_bytes);
  BOOST_REQUIRE(!r.notes.empty());
  BOOST_TEST(r.notes.back().starts_with("No trainer was named"));
}

BOOST_AUTO_TEST_CASE(llama_refuses_a_family_by_name) {
  std::mt19937 g(5);
  Case c = random_case(g);
  c.model.family = "gpt2";
  BOOST_CHECK_EXCEPTION(registry().estimator("llama").estimate(c.model, c.run, nullptr), tp::PluginError,
                        [](const tp::PluginError& e) {
                          BOOST_TEST(std::string(e.what()).find("gpt2") != std::string::npos, e.what());
                          return e.status() == "unsupported" && e.code() == Exit::kUsage;
                        });
}

BOOST_AUTO_TEST_CASE(contract_arrives_with_its_bound_and_notes) {
  ModelSpec m;
  m.vocab = 32768, m.hidden = 1024, m.layers = 24, m.heads = 16, m.kv_heads = 4, m.head_dim = 64,
  m.intermediate = 4096;
  RunSpec run;
  run.seq_len = 1024;
  MemoryReport r = registry().estimator("contract").estimate(m, run, nullptr);
  BOOST_TEST(r.source == "contract");
  BOOST_TEST(r.total_bytes() == 7919648768u);
  BOOST_TEST((r.claim == Claim::kUpperBound));
  BOOST_TEST(r.notes.size() >= 3u);
  Profile gpu;
  gpu.tier = Tier::kDevice;
  BOOST_TEST(registry().estimator("contract").estimate(m, run, &gpu).tier_bytes(Tier::kDevice) ==
             7919648768u);
}

BOOST_AUTO_TEST_SUITE_END()
