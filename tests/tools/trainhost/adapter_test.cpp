// Runs that train adapters, as a user starts them: memory as predicted in every combination, resume with the
// same bits, and what is refused.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include "tests/tools/trainhost/adapter_runs.hpp"

using namespace trainhost::test;

BOOST_AUTO_TEST_SUITE(adapters)

BOOST_AUTO_TEST_CASE(memory_is_predicted_to_the_byte_for_every_kind_of_adapter) {
  std::mt19937 rng(7);
  const auto any = [&](std::vector<std::string> values) { return values[rng() % values.size()]; };
  for (int i = 0; i < 24; ++i) {
    TemporaryDirectory tmp;
    const std::vector<std::string> settings = {
        "model.model_type=" + any({"llama", "mistral", "qwen2", "qwen3"}),
        "model.tie_word_embeddings=" + any({"true", "false"}),
        "lora.rank=" + any({"1", "3", "8", "40"}),
        "lora.targets=" + any({"[\"q_proj\", \"v_proj\"]", "[\"all-linear\"]", "[\"down_proj\"]",
                               "[\"k_proj\", \"o_proj\", \"up_proj\"]", "[\"gate_proj\"]"}),
        "lora.rslora=" + any({"true", "false"}),
        "lora.dropout=" + any({"0", "0.1"}),
        "lora.dora=" + any({"true", "false"}),
        any({"lora.double_quant=false", "lora.base=nf4"}),
        "train.precision=" + any({"fp32", "bf16"}),
        "train.recompute=" + any({"none", "selective", "full"}),
        "train.grad_accum=" + any({"1", "2"}),
        "optimizer.name=" + any({"adamw", "sgd", "sgd-momentum", "lion", "adafactor", "muon", "adamw-8bit"}),
        "train.steps=2"};
    uses_the_memory_of_its_plan(tmp.path() / "out", settings);
  }
}

// B is 0 and the magnitudes are the norms of the rows, those of the dequantized ones of NF4: the first loss
// is that of the model.
BOOST_AUTO_TEST_CASE(a_new_adapter_with_magnitudes_has_no_effect) {
  TemporaryDirectory tmp;
  for (const char* base : {"lora.double_quant=false", "lora.base=nf4"}) {
    const auto losses = [&](const std::string& dora) {
      const Outcome r = run_program(lora_run(
          tmp.path() / (base + dora), {"lora.dora=" + dora, "train.precision=fp32", base, "optimizer.lr=0.01",
                                       "lora.targets=[\"all-linear\"]", "lora.dropout=0.1"}));
      BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
      std::vector<double> out;
      std::istringstream in(r.out);
      for (std::string line; std::getline(in, line);)
        if (const json j = json::parse(line); j["event"] == "step") out.push_back(j["loss"]);
      return out;
    };
    const std::vector<double> lora = losses("false"), dora = losses("true");
    BOOST_TEST(std::abs(lora[0] - dora[0]) <= 2e-6 * lora[0], base);
    BOOST_TEST(lora[2] != dora[2], base);
  }
}

BOOST_AUTO_TEST_CASE(adapters_need_less_memory_than_training_all_weights) {
  TemporaryDirectory tmp;
  std::vector<std::string> all = lora_run(tmp.path() / "all", {"train.precision=fp32"});
  std::erase(all, "lora.rank=4");
  all.erase(std::ranges::adjacent_find(
      all, [](const auto& a, const auto& b) { return a == "--set" && b == "--set"; }));
  const Outcome full = run_program(all),
                lora = run_program(lora_run(tmp.path() / "lora", {"train.precision=fp32"}));
  BOOST_REQUIRE_MESSAGE(full.code == 0 && lora.code == 0, full.err << lora.err);
  const auto bytes = [](const Outcome& r) {
    return done_of(r.out)["memory"]["measured_bytes"].get<std::uint64_t>();
  };
  BOOST_TEST(bytes(lora) < bytes(full));
}

BOOST_AUTO_TEST_CASE(resume_gives_the_same_bits_from_a_checkpoint_without_the_frozen_weights) {
  TemporaryDirectory tmp;
  const std::vector<std::string> settings = {"train.steps=6", "output.checkpoint_every=2",
                                             "lora.targets=[\"all-linear\"]", "lora.dropout=0.2",
                                             "lora.dora=true"};
  const Outcome whole = run_program(lora_run(tmp.path() / "whole", settings));
  BOOST_REQUIRE_MESSAGE(whole.code == 0, whole.err);
  std::vector<std::string> four = settings;
  four[0] = "train.steps=4", four.push_back("optimizer.schedule=constant");
  std::vector<std::string> six = four;
  six[0] = "train.steps=6";
  const auto file = [&](const char* run) {
    return read_file(tmp.path() / run / "adapter/adapter_model.safetensors");
  };
  BOOST_REQUIRE(run_program(lora_run(tmp.path() / "a", six)).code == 0);
  BOOST_REQUIRE(run_program(lora_run(tmp.path() / "b", four)).code == 0);
  const Outcome rest = run_program(lora_run(tmp.path() / "b", six, {"--resume"}));
  BOOST_REQUIRE_MESSAGE(rest.code == 0, rest.err);
  BOOST_TEST((file("a") == file("b")));
  BOOST_TEST(!fs::exists(tmp.path() / "a/model"));
  const fs::path state = tmp.path() / "a/checkpoints/step-6";
  for (const char* name : {"weights.safetensors", "moment1.safetensors", "moment2.safetensors"}) {
    const auto tensors = read_tensors(state / name);
    BOOST_TEST(tensors.size() == 42u, name);  // A, B and magnitudes of seven matrices of two layers
    for (const auto& [tensor, values] : tensors)
      BOOST_TEST(tensor.find(".lora_") != std::string::npos, tensor);
  }
  // Another seed gives other random weights; another rank, another adapter.
  for (const char* change : {"train.seed=2", "lora.rank=5", "lora.alpha=3", "lora.targets=[\"q_proj\"]",
                             "lora.dropout=0.1", "lora.dora=false"}) {
    std::vector<std::string> other = six;
    other.push_back(change);
    const Outcome r = run_program(lora_run(tmp.path() / "a", other, {"--resume", "--set", "train.steps=8"}));
    BOOST_TEST(r.code == 2, change);
    BOOST_TEST(r.err.find(std::string(change).substr(0, 9)) != std::string::npos, r.err);
  }
}

BOOST_AUTO_TEST_CASE(what_can_only_be_planned_is_refused_with_its_key) {
  TemporaryDirectory tmp;
  for (const auto& [setting, key] : std::vector<std::pair<std::string, std::string>>{
           {"lora.base=int8", "lora.base = \"int8\""}, {"lora.base=fp8", "lora.base = \"fp8\""}}) {
    const Outcome r = run_program(lora_run(tmp.path() / "out", {setting}));
    BOOST_TEST(r.code == 2, setting);
    BOOST_TEST(r.err.find(key) != std::string::npos, r.err);
    BOOST_TEST(r.err.find("can be planned, but not trained") != std::string::npos, r.err);
    BOOST_TEST(!fs::exists(tmp.path() / "out"));
  }
  const Outcome verify = run_program({"verify", "--set", "lora.rank=4"});
  BOOST_TEST(verify.code == 2);
  BOOST_TEST(verify.err.find("[lora]") != std::string::npos, verify.err);
}

BOOST_AUTO_TEST_SUITE_END()
