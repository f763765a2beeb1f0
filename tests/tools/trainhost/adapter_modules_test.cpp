// Modules that are trained whole beside adapters (lora.modules_to_save): training, the PEFT folder, merging.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include "tests/tools/trainhost/adapter_runs.hpp"

using namespace trainhost::test;

BOOST_AUTO_TEST_SUITE(adapters)

// Modules of the model that are trained with the adapters: memory, checkpoints, the PEFT folder and what is
// merged.
BOOST_AUTO_TEST_CASE(modules_to_save_are_trained_saved_and_merged) {
  TemporaryDirectory tmp;
  std::mt19937 rng(3);
  const auto any = [&](std::vector<std::string> values) { return values[rng() % values.size()]; };
  for (int i = 0; i < 6; ++i) {
    const bool tied = i % 2 == 1;
    const std::vector<std::string> settings = {
        tied ? "model.tie_word_embeddings=true" : "model.tie_word_embeddings=false",
        "lora.modules_to_save=" +
            (tied ? any({"[\"embed_tokens\"]", "[\"norm\", \"embed_tokens\", \"lm_head\"]"})
                  : any({"[\"lm_head\", \"embed_tokens\"]", "[\"norm\"]", "[\"lm_head\"]"})),
        any({"lora.double_quant=false", "lora.base=nf4"}),
        "lora.dropout=" + any({"0", "0.1"}),
        "train.precision=" + any({"fp32", "bf16"}),
        "train.recompute=" + any({"none", "full"}),
        "optimizer.name=" + any({"adamw", "lion", "adafactor", "adamw-8bit"}),
        "train.steps=2"};
    uses_the_memory_of_its_plan(tmp.path() / ("m" + std::to_string(i)), settings);
  }
  const std::vector<std::string> settings = {"train.steps=6", "output.checkpoint_every=2",
                                             "optimizer.schedule=constant", "model.tie_word_embeddings=false",
                                             "lora.modules_to_save=[\"lm_head\", \"norm\"]"};
  BOOST_REQUIRE(run_program(lora_run(tmp.path() / "a", settings)).code == 0);
  std::vector<std::string> four = settings;
  four[0] = "train.steps=4";
  BOOST_REQUIRE(run_program(lora_run(tmp.path() / "b", four)).code == 0);
  const Outcome rest = run_program(lora_run(tmp.path() / "b", settings, {"--resume"}));
  BOOST_REQUIRE_MESSAGE(rest.code == 0, rest.err);
  const fs::path adapter = tmp.path() / "a/adapter/adapter_model.safetensors";
  BOOST_TEST((read_file(adapter) == read_file(tmp.path() / "b/adapter/adapter_model.safetensors")));
  const auto tensors = read_tensors(adapter);
  BOOST_TEST(tensors.size() == 8u + 1 + 5);  // q and v of two layers; head; five norms
  BOOST_TEST(tensors.contains("base_model.model.lm_head.weight"));
  BOOST_TEST(tensors.contains("base_model.model.model.layers.1.input_layernorm.weight"));
  const json config = json::parse(read_file(tmp.path() / "a/adapter/adapter_config.json"));
  BOOST_TEST((config["modules_to_save"] == json{"lm_head", "norm"}));
  const auto checkpoint = read_tensors(tmp.path() / "a/checkpoints/step-6/weights.safetensors");
  BOOST_TEST(checkpoint.size() == tensors.size());
  BOOST_TEST(checkpoint.contains("lm_head.weight"));
}

BOOST_AUTO_TEST_CASE(an_adapter_with_modules_to_save_is_trained_further_and_merged) {
  TemporaryDirectory tmp;
  // gqa-tied has one tensor for embedding and head, so norms.
  const Outcome first = run_program(continued(kGoldenRuns / "lora", tmp / "first", {"train.steps=1"}));
  BOOST_REQUIRE_MESSAGE(first.code == 0, first.err);
  std::vector<std::string> fresh = continued(kGoldenRuns / "lora", tmp / "a", {"train.steps=3"});
  std::erase_if(fresh, [](const std::string& s) { return s.starts_with("model.adapter="); });
  fresh.erase(std::ranges::adjacent_find(
      fresh, [](const auto& a, const auto& b) { return a == "--set" && b == "--set"; }));
  fresh.insert(fresh.end(), {"--set", "lora.rank=3", "--set", "lora.modules_to_save=[\"norm\"]", "--set",
                             "optimizer.lr=0.01"});
  const Outcome a = run_program(fresh);
  BOOST_REQUIRE_MESSAGE(a.code == 0, a.err);
  const Outcome b = run_program(
      continued(tmp / "a/adapter", tmp / "b", {"train.steps=1", "optimizer.lr=0", "optimizer.min_lr=0"}));
  BOOST_REQUIRE_MESSAGE(b.code == 0, b.err);
  const auto before = read_tensors(tmp / "a/adapter/adapter_model.safetensors"),
             after = read_tensors(tmp / "b/adapter/adapter_model.safetensors");
  BOOST_TEST((before == after));  // a learning rate of 0 changes nothing
  const Outcome merged = run_program({"merge", (tmp / "a/adapter").string(), "-o", (tmp / "m").string()});
  BOOST_REQUIRE_MESSAGE(merged.code == 0, merged.err);
  const std::string name = "model.layers.1.input_layernorm.weight";
  BOOST_TEST((stored_tensor(tmp / "m/model.safetensors", name) == before.at("base_model.model." + name)));
  BOOST_TEST((stored_tensor(tmp / "m/model.safetensors", name) !=
              stored_tensor(kGoldenRuns / "gqa-tied/model.safetensors", name)));
}

// PEFT's ensure_weight_tying: one tensor is trained, and written under both names.
BOOST_AUTO_TEST_CASE(a_tied_embedding_is_trained_once_written_twice_trained_further_and_merged) {
  TemporaryDirectory tmp;
  std::vector<std::string> fresh =
      continued(kGoldenRuns / "lora", tmp / "a", {"train.steps=2", "optimizer.lr=0.01"});
  std::erase_if(fresh, [](const std::string& s) { return s.starts_with("model.adapter="); });
  fresh.erase(std::ranges::adjacent_find(
      fresh, [](const auto& a, const auto& b) { return a == "--set" && b == "--set"; }));
  fresh.insert(fresh.end(), {"--set", "lora.rank=3", "--set", "lora.modules_to_save=[\"embed_tokens\"]"});
  const Outcome a = run_program(fresh);
  BOOST_REQUIRE_MESSAGE(a.code == 0, a.err);
  const json config = json::parse(read_file(tmp / "a/adapter/adapter_config.json"));
  BOOST_TEST(config["ensure_weight_tying"] == true);
  BOOST_TEST((config["modules_to_save"] == json{"embed_tokens", "lm_head"}));
  const std::string embedding = "model.embed_tokens.weight", file = "adapter_model.safetensors";
  const auto tensors = read_tensors(tmp / "a/adapter" / file);
  const std::vector<float>& trained = tensors.at("base_model.model." + embedding);
  BOOST_TEST((trained == tensors.at("base_model.model.lm_head.weight")));
  BOOST_TEST((trained != stored_tensor(kGoldenRuns / "gqa-tied/model.safetensors", embedding)));

  const Outcome further = run_program(
      continued(tmp / "a/adapter", tmp / "b", {"train.steps=1", "optimizer.lr=0", "optimizer.min_lr=0"}));
  BOOST_REQUIRE_MESSAGE(further.code == 0, further.err);
  BOOST_TEST((read_tensors(tmp / "b/adapter" / file) == tensors));
  const Outcome merged = run_program({"merge", (tmp / "a/adapter").string(), "-o", (tmp / "m").string()});
  BOOST_REQUIRE_MESSAGE(merged.code == 0, merged.err);
  BOOST_TEST((stored_tensor(tmp / "m/model.safetensors", embedding) == trained));
  // Without ensure_weight_tying they are two tensors that are trained apart.
  json untied = config;
  untied.erase("ensure_weight_tying");
  tmp.write("a/adapter/adapter_config.json", untied.dump());
  const Outcome refused = run_program({"merge", (tmp / "a/adapter").string(), "-o", (tmp / "n").string()});
  BOOST_TEST(refused.code == 2);
  BOOST_TEST(refused.err.find("without ensure_weight_tying") != std::string::npos, refused.err);
  const Outcome other = run_program(continued(tmp / "a/adapter", tmp / "c", {"train.steps=1"}));
  BOOST_TEST(other.code == 2);
  BOOST_TEST(other.err.find("ensure_weight_tying = true in PEFT") != std::string::npos, other.err);
}

BOOST_AUTO_TEST_CASE(modules_that_cannot_be_trained_beside_adapters_are_errors) {
  TemporaryDirectory tmp;
  const auto refused = [&](std::vector<std::string> settings, const std::string& text) {
    const Outcome r = run_program(lora_run(tmp.path() / "out", std::move(settings)));
    BOOST_TEST(r.code == 2, text);
    BOOST_TEST(r.err.find(text) != std::string::npos, "expected '" << text << "', got " << r.err);
  };
  const std::string key = "lora.modules_to_save=";
  refused({key + "[\"lm_haed\"]", "model.tie_word_embeddings=false"},
          "the nearest parameter is lm_head.weight");
  refused({key + "[\"lm_head\"]", "model.tie_word_embeddings=true"},
          "the LM head of this model is its embedding: name embed_tokens");
  refused({key + "[\"q_proj\"]"}, "'q_proj' in lora.modules_to_save has an adapter too");
  const std::string targets = "lora.targets=[\"q_proj\", ";
  refused({key + "[\"lm_head\"]", targets + "\"lm_head\"]", "model.tie_word_embeddings=false"},
          "'lm_head' in lora.modules_to_save has an adapter too");
  refused({key + "[\"embed_tokens\"]", targets + "\"lm_head\"]", "model.tie_word_embeddings=true"},
          "'embed_tokens' in lora.modules_to_save has an adapter too");
  refused({targets + "\"embed_token\"]"}, "unknown matrix 'embed_token'; did you mean 'embed_tokens'?");
  refused({key + "[\"gate_proj\"]"}, "a trainer computes their gradients together");
  refused({key + "[\"down_proj\"]", "lora.base=nf4"}, "'down_proj' in lora.modules_to_save is in NF4");
  refused({key + "[\"norm\"]", "train.freeze=[\"*norm*\"]"}, "train.freeze has no effect on adapters");
}

BOOST_AUTO_TEST_SUITE_END()
