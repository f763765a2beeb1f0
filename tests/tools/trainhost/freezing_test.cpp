// Runs that train a part of the weights (train.freeze, train.only), as a user starts them: memory as
// predicted, resume with the same bits, and what is refused.
#include <boost/test/unit_test.hpp>
#include <random>

#include "tests/support/files.hpp"
#include "tests/support/golden_run.hpp"
#include "tests/support/process.hpp"
#include "tests/tools/trainhost/planned_memory.hpp"

using namespace trainhost::test;
namespace fs = std::filesystem;

BOOST_AUTO_TEST_SUITE(freezing)

BOOST_AUTO_TEST_CASE(memory_is_predicted_to_the_byte_for_every_kind_of_freezing) {
  std::mt19937 rng(11);
  const auto any = [&](std::vector<std::string> values) { return values[rng() % values.size()]; };
  for (int i = 0; i < 10; ++i) {
    TemporaryDirectory tmp;
    std::vector<std::string> w = {"train", "--json", "-q"};
    const std::vector<std::string> model = small_model_options();
    w.insert(w.end(), model.begin(), model.end());
    const std::vector<std::string> settings = {
        "output.dir=" + (tmp / "out").string(),
        "train.backend=cpu",
        "train.threads=2",
        "train.steps=2",
        "model.model_type=" + any({"llama", "qwen2", "qwen3"}),
        "model.tie_word_embeddings=" + any({"true", "false"}),
        any({"train.freeze=[\"model.embed_tokens*\"]", "train.freeze=[\"model.layers.0.*\"]",
             "train.freeze=[\"*.mlp.*\", \"model.norm.weight\"]", "train.only=[\"model.layers.1.*\"]",
             "train.only=[\"*norm*\"]", "train.only=[\"*.down_proj*\"]"}),
        "train.precision=" + any({"fp32", "bf16"}),
        "train.recompute=" + any({"none", "selective", "full"}),
        "train.grad_accum=" + any({"1", "2"}),
        "output.async_checkpoints=" + any({"true", "false"}),
        "output.checkpoint_every=1",
        "optimizer.name=" + any({"adamw", "sgd", "sgd-momentum"})};
    std::string what;
    for (const std::string& s : settings) w.insert(w.end(), {"--set", s}), what += s + " ";
    const Outcome r = run_program(w);
    BOOST_REQUIRE_MESSAGE(r.code == 0, what << r.err);
    memory_is_that_of_the_plan(done_of(r.out), what);
  }
}

BOOST_AUTO_TEST_CASE(a_run_that_freezes_weights_resumes_with_the_same_bits) {
  TemporaryDirectory tmp;
  const auto run = [&](const char* dir, const char* steps, std::vector<std::string> more = {}) {
    std::vector<std::string> w = {"train", "-q"};
    const std::vector<std::string> model = small_model_options();
    w.insert(w.end(), model.begin(), model.end());
    for (const std::string& s : {"output.dir=" + (tmp / dir).string(), std::string("train.steps=") + steps,
                                 std::string("optimizer.schedule=constant"),
                                 std::string("output.checkpoint_every=2"), std::string("train.backend=cpu"),
                                 std::string("train.only=[\"model.layers.1.*\", \"model.norm.weight\"]")})
      w.insert(w.end(), {"--set", s});
    w.insert(w.end(), more.begin(), more.end());
    return run_program(w);
  };
  BOOST_REQUIRE(run("a", "6").code == 0);
  BOOST_REQUIRE(run("b", "4").code == 0);
  const Outcome rest = run("b", "6", {"--resume"});
  BOOST_REQUIRE_MESSAGE(rest.code == 0, rest.err);
  const auto file = [&](const char* folder) { return read_file(tmp / folder / "model/model.safetensors"); };
  BOOST_TEST((file("a") == file("b")));
  const fs::path state = tmp / "a/checkpoints/step-6";
  const auto weights = read_tensors(state / "weights.safetensors"),
             moments = read_tensors(state / "moment1.safetensors");
  BOOST_TEST(moments.size() < weights.size());
  for (const auto& [name, values] : moments)
    BOOST_TEST((name == "model.norm.weight" || name.starts_with("model.layers.1.")), name);
  // What is frozen has its first values: those of a run that ends after no update of it.
  const Outcome other = run("b", "8", {"--resume", "--set", "train.freeze=[\"model.norm.weight\"]"});
  BOOST_TEST(other.code == 2);
  BOOST_TEST(other.err.find("train.trainable was -* +model.layers.1.*") != std::string::npos, other.err);
}

BOOST_AUTO_TEST_CASE(patterns_that_freeze_nothing_or_everything_are_errors) {
  TemporaryDirectory tmp;
  const auto refused = [&](const std::vector<std::string>& settings, const std::string& text) {
    std::vector<std::string> w = {"train", "-q", "--set", "output.dir=" + (tmp / "out").string()};
    for (const std::string& s : settings) w.insert(w.end(), {"--set", s});
    const Outcome r = run_program(w);
    BOOST_TEST(r.code == 2, text);
    BOOST_TEST(r.err.find(text) != std::string::npos, "expected '" << text << "', got " << r.err);
    BOOST_TEST(!fs::exists(tmp / "out"), text);
  };
  refused({"train.freeze=[\"model.layer.0.*\"]"},
          "'model.layer.0.*' matches no parameter of the model; the nearest is model.layers.0.");
  refused({"train.freeze=[\"model.embed_token.weight\"]"}, "the nearest is model.embed_tokens.weight");
  refused({"train.only=[\"lm_head*\"]", "model.tie_word_embeddings=true"},
          "the LM head of this model is its embedding");
  refused({"train.freeze=[\"*\"]"}, "train.freeze leaves no parameter to train");
  refused({"train.freeze=[\"*.q_proj.weight\"]"}, "a trainer computes their gradients together");
  refused({"train.freeze=[\"*norm*\"]", "lora.rank=4"}, "train.freeze has no effect on adapters");
  const Outcome verify = run_program({"verify", "--set", "train.freeze=[\"*norm*\"]"});
  BOOST_TEST(verify.code == 2);
  BOOST_TEST(verify.err.find("freezes some") != std::string::npos, verify.err);
  const Outcome plan =
      run_program({"plan", "--set", "train.freeze=[\"*norm*\"]", "--set", "parallel.pipeline=2"});
  BOOST_TEST(plan.code == 2);
}

BOOST_AUTO_TEST_SUITE_END()
