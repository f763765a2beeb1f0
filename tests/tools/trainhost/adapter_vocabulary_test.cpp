// Adapters of the embedding and the LM head, also where both are one tensor: training, the PEFT folder,
// merging.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include "tests/tools/trainhost/adapter_runs.hpp"

using namespace trainhost::test;

BOOST_AUTO_TEST_SUITE(adapters)

// Memory, checkpoints, the PEFT folder, resume, and what is merged.
BOOST_AUTO_TEST_CASE(adapters_of_embedding_and_head_are_trained_saved_and_merged) {
  TemporaryDirectory tmp;
  std::mt19937 rng(11);
  const auto any = [&](std::vector<std::string> values) { return values[rng() % values.size()]; };
  for (int i = 0; i < 10; ++i)
    uses_the_memory_of_its_plan(
        tmp / ("m" + std::to_string(i)),
        {"model.tie_word_embeddings=" + any({"true", "false"}),
         "lora.targets=" + any({"[\"lm_head\"]", "[\"embed_tokens\"]", "[\"q_proj\", \"lm_head\"]",
                                "[\"embed_tokens\", \"all-linear\", \"lm_head\"]"}),
         any({"lora.rank_pattern=[\"lm_head = 7\"]", "lora.rslora=true"}),
         any({"lora.double_quant=false", "lora.base=nf4"}), "lora.dropout=" + any({"0", "0.1"}),
         "train.precision=" + any({"fp32", "bf16"}), "train.recompute=" + any({"none", "selective", "full"}),
         "train.grad_accum=" + any({"1", "2"}),
         "optimizer.name=" + any({"adamw", "sgd", "lion", "adafactor", "muon", "adamw-8bit"}),
         "train.steps=2"});
  for (const bool tied : {false, true}) {
    const std::string name = tied ? "tied" : "untied", file = "adapter/adapter_model.safetensors";
    const std::vector<std::string> settings = {
        "train.steps=6",
        "output.checkpoint_every=2",
        "optimizer.schedule=constant",
        "optimizer.lr=0.01",
        std::string("model.tie_word_embeddings=") + (tied ? "true" : "false"),
        "lora.targets=[\"q_proj\", \"lm_head\", \"embed_tokens\"]"};
    std::vector<std::string> four = settings;
    four[0] = "train.steps=4";
    BOOST_REQUIRE(run_program(lora_run(tmp / (name + "-a"), settings)).code == 0);
    BOOST_REQUIRE(run_program(lora_run(tmp / (name + "-b"), four)).code == 0);
    const Outcome rest = run_program(lora_run(tmp / (name + "-b"), settings, {"--resume"}));
    BOOST_REQUIRE_MESSAGE(rest.code == 0, rest.err);
    BOOST_TEST((read_file(tmp / (name + "-a") / file) == read_file(tmp / (name + "-b") / file)));
    const json config = json::parse(read_file(tmp / (name + "-a/adapter/adapter_config.json")));
    BOOST_TEST(config["target_modules"] == json({"q_proj", "lm_head", "embed_tokens"}));
    const auto tensors = read_tensors(tmp / (name + "-a") / file);
    BOOST_TEST(tensors.size() == 8u);
    BOOST_TEST(tensors.contains("base_model.model.model.embed_tokens.lora_embedding_B"));
    BOOST_TEST(tensors.contains("base_model.model.lm_head.lora_A.weight"));
  }
}

// Embedding and LM head of the base are one tensor, those of the model with the adapter are not.
BOOST_AUTO_TEST_CASE(generation_with_an_adapter_of_a_tied_head_is_that_of_the_merged_model) {
  TemporaryDirectory tmp;
  std::vector<std::string> base =
      lora_run(tmp / "base", {"model.tie_word_embeddings=true", "train.precision=fp32"});
  std::erase(base, "lora.rank=4");
  base.erase(std::ranges::adjacent_find(
      base, [](const auto& a, const auto& b) { return a == "--set" && b == "--set"; }));
  const Outcome trained = run_program(base);
  BOOST_REQUIRE_MESSAGE(trained.code == 0, trained.err);
  std::vector<std::string> fine = {"train", "--json", "-q"};
  tmp.write("text.txt", "One day a cat sat on a mat and slept. One day a dog ran after the cat.");
  for (const std::string& s :
       {"model.path=" + (tmp / "base/model").string(), "data.train=" + (tmp / "text.txt").string(),
        std::string("data.tokenizer=bytes"), std::string("lora.targets=[\"lm_head\", \"embed_tokens\"]"),
        std::string("lora.rank=4"), std::string("optimizer.lr=0.1"), std::string("train.steps=5"),
        std::string("data.seq_len=32"), std::string("train.backend=cpu"),
        "output.dir=" + (tmp / "out").string()})
    fine.insert(fine.end(), {"--set", s});
  const Outcome adapted = run_program(fine);
  BOOST_REQUIRE_MESSAGE(adapted.code == 0, adapted.err);
  const Outcome merged = run_program({"merge", (tmp / "out").string(), "-o", (tmp / "merged").string()});
  BOOST_REQUIRE_MESSAGE(merged.code == 0, merged.err);
  const auto text_of = [](const fs::path& dir) {
    const Outcome r = run_program({"generate", dir.string(), "--prompt", "One day", "--temperature", "1",
                                   "--tokens", "20", "--context", "32", "-q"});
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    return r.out;
  };
  BOOST_TEST(text_of(tmp / "out") == text_of(tmp / "merged"));
  BOOST_TEST(text_of(tmp / "out") != text_of(tmp / "base"));
}

// One adapter of both, from the run file: resumed bit for bit, planned exactly, and refused where it has no
// meaning.
BOOST_AUTO_TEST_CASE(one_adapter_of_embedding_and_head_is_trained_resumed_and_refused_in_other_models) {
  TemporaryDirectory tmp;
  const std::vector<std::string> tied = {"lora.targets=[\"q_proj\", \"embed_tokens\"]",
                                         "lora.ensure_weight_tying=true", "lora.dora=true"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = tied;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Outcome whole = run_program(lora_run(tmp / "whole", with({"train.steps=4"})));
  BOOST_REQUIRE_MESSAGE(whole.code == 0, whole.err);
  const Outcome half =
      run_program(lora_run(tmp / "half", with({"train.steps=2", "optimizer.schedule=constant"})));
  BOOST_REQUIRE_MESSAGE(half.code == 0, half.err);
  const json config = json::parse(read_file(tmp / "whole/adapter/adapter_config.json"));
  BOOST_TEST(config["ensure_weight_tying"] == true);
  BOOST_TEST(config["target_modules"] == json({"q_proj", "embed_tokens"}));
  const auto tensors = read_tensors(tmp / "whole/adapter/adapter_model.safetensors");
  for (const char* name : {"model.embed_tokens.lora_magnitude_vector", "lm_head.lora_magnitude_vector",
                           "lm_head.lora_A.weight", "lm_head.lora_B.weight"})
    BOOST_TEST(tensors.contains(std::string("base_model.model.") + name), name);
  const auto refused = [&](const std::vector<std::string>& settings, const std::string& text) {
    const Outcome r = run_program(lora_run(tmp / "none", settings));
    BOOST_TEST(r.code == 2, text);
    BOOST_TEST(r.err.find(text) != std::string::npos, r.err);
  };
  refused(
      {"lora.ensure_weight_tying=true", "model.tie_word_embeddings=false", "lora.targets=[\"embed_tokens\"]"},
      "embedding and LM head of the model are two tensors");
  refused({"lora.ensure_weight_tying=true"}, "neither embedding nor LM head has an adapter");
}

// Embedding and LM head are one tensor: PEFT writes the factors twice, and the matrix itself.
BOOST_AUTO_TEST_CASE(an_adapter_of_the_embedding_is_merged) {
  TemporaryDirectory tmp;
  const std::string weight = "model.embed_tokens.weight", prefix = "base_model.model.";
  const std::vector<float> base = stored_tensor(kGoldenRuns / "gqa-tied/model.safetensors", weight);
  const std::uint64_t vocab = 320, hidden = 96, rank = 2;
  std::vector<float> a(rank * vocab), b(hidden * rank), a_of_head(rank * hidden), b_of_head(vocab * rank);
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  for (std::uint64_t k = 0; k < rank; ++k) {
    for (std::uint64_t v = 0; v < vocab; ++v) b_of_head[v * rank + k] = a[k * vocab + v] = normal(rng);
    for (std::uint64_t h = 0; h < hidden; ++h) a_of_head[k * hidden + h] = b[h * rank + k] = normal(rng);
  }
  const fs::path folder = changed_adapter(tmp, {{"r", rank},
                                                {"lora_alpha", 3},
                                                {"use_rslora", false},
                                                {"target_modules", {"embed_tokens"}},
                                                {"ensure_weight_tying", true}});
  const std::string embedding = prefix + "model.embed_tokens.", head = prefix + "lm_head.";
  write_tensors(folder / "adapter_model.safetensors",
                {{embedding + "lora_embedding_A", {rank, vocab}, a},
                 {embedding + "lora_embedding_B", {hidden, rank}, b},
                 {embedding + "base_layer.weight", {vocab, hidden}, base},
                 {head + "lora_A.weight", {rank, hidden}, a_of_head},
                 {head + "lora_B.weight", {vocab, rank}, b_of_head},
                 {head + "base_layer.weight", {vocab, hidden}, base}});
  const auto merge = [&](const char* out) {
    return run_program({"merge", folder.string(), "--model", (kGoldenRuns / "gqa-tied").string(), "-o",
                        (tmp / out).string()});
  };
  const Outcome r = merge("m");
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const std::vector<float> merged = stored_tensor(tmp / "m/model.safetensors", weight);
  double off = 0;
  for (std::uint64_t v = 0; v < vocab; ++v)
    for (std::uint64_t h = 0; h < hidden; ++h) {
      double expected = base[v * hidden + h];
      for (std::uint64_t k = 0; k < rank; ++k) expected += 1.5 * b[h * rank + k] * a[k * vocab + v];
      off = std::max(off, std::abs(merged[v * hidden + h] - expected));
    }
  BOOST_TEST(off <= 1e-6);
  // Without ensure_weight_tying they are adapters of their own, and the merged model has both matrices.
  json config = json::parse(read_file(folder / "adapter_config.json"));
  config["ensure_weight_tying"] = false;
  tmp.write("changed/adapter_config.json", config.dump());
  const Outcome apart = merge("n");
  BOOST_REQUIRE_MESSAGE(apart.code == 0, apart.err);
  BOOST_TEST((stored_tensor(tmp / "n/model.safetensors", weight) == merged));
  BOOST_TEST((stored_tensor(tmp / "n/model.safetensors", "lm_head.weight") == merged));
  BOOST_TEST(json::parse(read_file(tmp / "n/config.json"))["tie_word_embeddings"] == false);
}

BOOST_AUTO_TEST_SUITE_END()
