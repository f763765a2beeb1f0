// Adapters of PEFT: merged as PEFT merges them, trained further as PEFT does, and refused where they do not
// belong to the run.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include "tests/tools/trainhost/adapter_runs.hpp"

using namespace trainhost::test;

BOOST_AUTO_TEST_SUITE(adapters)

// As PEFT reads them: of several patterns the first that matches the end of a name.
BOOST_AUTO_TEST_CASE(alpha_and_rank_by_pattern_are_those_of_each_merged_matrix) {
  TemporaryDirectory tmp;
  int number = 0;
  const auto merged = [&](const json& changes) {
    const fs::path out = tmp / ("m" + std::to_string(number++));
    const Outcome r = run_program({"merge", changed_adapter(tmp, changes).string(), "--model",
                                   (kGoldenRuns / "gqa-tied").string(), "-o", out.string()});
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    return read_tensors(out / "model.safetensors");
  };
  const auto base = read_tensors(kGoldenRuns / "gqa-tied/model.safetensors"), plain = merged(json::object()),
             changed = merged({{"rank_pattern", {{"_proj", 7}, {"down_proj", 3}}},
                               {"alpha_pattern",
                                {{"layers\\.[01]\\.self_attn.q_proj", 24}, {"q_proj", 6}, {"up_proj", 36}}}});
  const std::map<std::string, double> factors = {{"0.self_attn.q_proj", 2},   {"1.self_attn.q_proj", 2},
                                                 {"2.self_attn.q_proj", 0.5}, {"0.mlp.up_proj", 3},
                                                 {"0.mlp.down_proj", 1},      {"2.self_attn.v_proj", 1}};
  for (const auto& [matrix, factor] : factors) {
    const std::string name = "model.layers." + matrix + ".weight";
    double most = 0, off = 0;
    for (std::size_t i = 0; i < base.at(name).size(); ++i) {
      const double change = plain.at(name)[i] - base.at(name)[i];
      most = std::max(most, std::abs(change));
      off = std::max(off, std::abs(changed.at(name)[i] - base.at(name)[i] - factor * change));
    }
    BOOST_TEST(most > 1e-3, name);
    BOOST_TEST(off <= 1e-6, name << " " << off);
  }
  const auto refused = [&](const json& changes, const std::string& text) {
    const Outcome r = run_program({"merge", changed_adapter(tmp, changes).string(), "--model",
                                   (kGoldenRuns / "gqa-tied").string(), "-o", (tmp / "none").string()});
    BOOST_TEST(r.code == 2, text);
    BOOST_TEST(r.err.find(text) != std::string::npos, r.err);
  };
  refused({{"rank_pattern", {{"q_proj", 4}}}}, "q_proj.lora_A.weight is [3, 96], expected [4, 96]");
  refused({{"rank_pattern", {{"q_proj(", 4}}}}, "rank_pattern: \"q_proj(\" is no regular expression");
  refused({{"rank_pattern", {{"q_proj", 0}}}}, "rank_pattern: expected a positive number for \"q_proj\"");
  refused({{"alpha_pattern", json::array({1})}}, "alpha_pattern: expected an object");
}

BOOST_DATA_TEST_CASE(a_merged_adapter_of_peft_has_the_weights_that_peft_merges,
                     boost::unit_test::data::make({"lora", "dora", "lora-pattern", "lora-modules",
                                                   "lora-head", "lora-vocabulary", "lora-modules-untied",
                                                   "dora-head", "dora-vocabulary", "lora-tied", "dora-tied"}),
                     kind) {
  TemporaryDirectory tmp;
  const json expected = json::parse(read_file(kGoldenRuns / kind / "expected.json"))["merged_weights"];
  const fs::path out = tmp.path() / "merged";
  const std::string base = (kGoldenRuns / base_of(kind)).string();
  const Outcome r =
      run_program({"merge", (kGoldenRuns / kind).string(), "--model", base, "-o", out.string()});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  // Five of three layers; or three and o in two of them, gate and up in one; or q and v.
  const char* count = kind == std::string("lora-pattern")          ? "13 matrices"
                      : kind == std::string("lora-modules")        ? "6 matrices"
                      : kind == std::string("lora-head")           ? "7 matrices"
                      : kind == std::string("lora-vocabulary")     ? "4 matrices"
                      : kind == std::string("lora-modules-untied") ? "4 matrices"
                      : kind == std::string("dora-head")           ? "7 matrices"
                      : kind == std::string("dora-vocabulary")     ? "4 matrices"
                      : kind == std::string("lora-tied")           ? "4 matrices"
                      : kind == std::string("dora-tied") ? "5 matrices"  // with magnitudes they differ
                                                         : "15 matrices";
  BOOST_TEST(r.out.find(count) != std::string::npos, r.out);
  for (const auto& [name, want] : expected.items()) {
    double squares = 0, sum = 0;
    for (const float v : stored_tensor(out / "model.safetensors", name)) squares += double(v) * v, sum += v;
    const double l2 = want["l2"], of_peft = want["sum"];
    BOOST_TEST(std::abs(std::sqrt(squares) - l2) <= 1e-6 * (1 + l2), name);
    BOOST_TEST(std::abs(sum - of_peft) <= 1e-5 * (1 + std::abs(sum)), name);
  }
  const Outcome again =
      run_program({"merge", (kGoldenRuns / kind).string(), "--model", base, "-o", out.string()});
  BOOST_TEST(again.code == 2);
}

BOOST_AUTO_TEST_CASE(an_adapter_is_merged_only_into_the_weights_that_it_was_trained_on) {
  TemporaryDirectory tmp;
  const fs::path run = tmp.path() / "run", base = kGoldenRuns / "gqa-tied";
  const Outcome trained =
      run_program({"train", (base / "run.toml").string(), "-q", "--set", "output.dir=" + run.string(),
                   "--set", "lora.rank=2", "--set", "train.precision=fp32", "--set", "train.backend=cpu"});
  BOOST_REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const json config = json::parse(read_file(run / "adapter/adapter_config.json"));
  BOOST_TEST(config["peft_type"] == "LORA");
  BOOST_TEST(config["r"] == 2);
  BOOST_TEST(config["target_modules"] == json({"q_proj", "v_proj"}));
  // The base is named by the adapter.
  const Outcome merged =
      run_program({"merge", (run / "adapter").string(), "-o", (tmp.path() / "m").string()});
  BOOST_REQUIRE_MESSAGE(merged.code == 0, merged.err);
  const std::string k = "model.layers.0.self_attn.k_proj.weight",
                    q = "model.layers.0.self_attn.q_proj.weight";
  BOOST_TEST(
      (stored_tensor(tmp.path() / "m/model.safetensors", k) == stored_tensor(base / "model.safetensors", k)));
  BOOST_TEST(
      (stored_tensor(tmp.path() / "m/model.safetensors", q) != stored_tensor(base / "model.safetensors", q)));
  const Outcome other = run_program({"merge", (run / "adapter").string(), "--model",
                                     (tmp.path() / "m").string(), "-o", (tmp.path() / "n").string()});
  BOOST_TEST(other.code == 2);
  BOOST_TEST(other.err.find("trained on other weights") != std::string::npos, other.err);
  const Outcome shape = run_program({"merge", (run / "adapter").string(), "--model",
                                     (kGoldenRuns / "mha").string(), "-o", (tmp.path() / "n").string()});
  BOOST_TEST(shape.code == 2);
  BOOST_TEST(!fs::exists(tmp.path() / "n"));
}

// The settings of tests/interop/peft_lora.py, whose losses are of float64.
BOOST_DATA_TEST_CASE(an_adapter_of_peft_is_trained_further_as_peft_does,
                     boost::unit_test::data::make({"lora", "dora", "lora-pattern", "lora-modules",
                                                   "lora-head", "lora-vocabulary", "lora-modules-untied",
                                                   "dora-head", "dora-vocabulary", "lora-tied", "dora-tied"}),
                     kind) {
  TemporaryDirectory tmp;
  const bool tied = std::string(kind).ends_with("-tied");
  const json expected = json::parse(read_file(kGoldenRuns / kind / "expected.json"));
  const std::string base = base_of(kind);
  const Outcome r = run_program(continued(kGoldenRuns / kind, tmp / "out", {}, base));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  std::istringstream in(r.out);
  std::size_t steps = 0;
  for (std::string line; std::getline(in, line);) {
    const json j = json::parse(line);
    if (j["event"] != "step") continue;
    const double loss = expected["loss"][steps++];
    BOOST_TEST(std::abs(j["loss"].get<double>() - loss) <= 2e-5, "step " << steps << " " << line);
  }
  BOOST_TEST(steps == 20u);
  const auto written = read_tensors(tmp / "out/adapter/adapter_model.safetensors");
  for (const auto& [name, values] : written) {
    double squares = 0;
    for (const float v : values) squares += double(v) * v;
    std::string of = name;
    if (tied && name.ends_with("lm_head.lora_A.weight"))  // copies, transposed
      of = "base_model.model.model.embed_tokens.lora_embedding_B";
    if (tied && name.ends_with("lm_head.lora_B.weight"))
      of = "base_model.model.model.embed_tokens.lora_embedding_A";
    if (of != name)
      for (std::size_t i = 0, rows = 3; i < values.size(); ++i) {
        const bool a = name.ends_with("lora_A.weight");
        const std::size_t n = values.size() / rows, from = a ? i % n * rows + i / n : i % rows * n + i / rows;
        BOOST_REQUIRE(values[i] == written.at(of)[from]);
      }
    const double l2 = expected["final_weights"][of]["l2"];
    BOOST_TEST(std::abs(std::sqrt(squares) - l2) <= 1e-3 * l2, name);
  }
  const json config = json::parse(read_file(tmp / "out/adapter/adapter_config.json"));
  BOOST_TEST(config["r"] == 3);
  BOOST_TEST(config["lora_alpha"] == 12);
  BOOST_TEST(config["use_rslora"] == true);
  BOOST_TEST(config["use_dora"] == std::string(kind).starts_with("dora"));
  BOOST_TEST(written.size() == expected["final_weights"].size() + (tied ? 2 : 0));
  if (kind == std::string("lora-pattern")) {
    const Outcome plan =
        run_program({"plan", "--set", "model.path=" + (kGoldenRuns / "gqa-tied").string(), "--set",
                     "model.adapter=" + (kGoldenRuns / kind).string(), "--set", "data.seq_len=64"});
    BOOST_TEST(plan.out.find("11,104 trained") != std::string::npos, plan.out);
    BOOST_TEST(plan.out.find("LoRA of ranks 2 to 5") != std::string::npos, plan.out);
    // Kinds of matrices that are adapted in every layer by their ends, others by their names.
    const std::string second = "model.layers.1.", third = "model.layers.2.";
    BOOST_TEST(config["target_modules"] ==
               json({"q_proj", "v_proj", "model.layers.0.self_attn.o_proj", third + "self_attn.o_proj",
                     third + "mlp.gate_proj", third + "mlp.up_proj", "down_proj"}));
    BOOST_TEST(config["rank_pattern"][second + "self_attn.q_proj"] == 2);
    BOOST_TEST(config["rank_pattern"].size() == 5u);
    BOOST_TEST(config["alpha_pattern"][second + "mlp.down_proj"] == 20);
    BOOST_TEST(config["alpha_pattern"].size() == 3u);
  } else if (kind == std::string("lora-modules")) {
    BOOST_TEST(config["target_modules"] == json({"q_proj", "v_proj"}));
    BOOST_TEST(config["ensure_weight_tying"] == true);
    BOOST_TEST(config["modules_to_save"] == json({"norm", "embed_tokens", "model.embed_tokens", "lm_head"}));
  } else if (tied) {
    BOOST_TEST(config["target_modules"] == json({"q_proj", "embed_tokens"}));
    BOOST_TEST(config["ensure_weight_tying"] == true);
  } else if (std::string(kind).ends_with("-head")) {
    BOOST_TEST(config["target_modules"] == json({"q_proj", "v_proj", "lm_head"}));
  } else if (std::string(kind).ends_with("-vocabulary")) {
    BOOST_TEST(config["target_modules"] == json({"q_proj", "lm_head", "embed_tokens"}));
    BOOST_TEST(config["rank_pattern"] == json({{"lm_head", 5}}));
  } else if (kind == std::string("lora-modules-untied")) {
    BOOST_TEST(config["modules_to_save"] == json({"embed_tokens", "lm_head"}));
  } else {
    BOOST_TEST(config["target_modules"] == json({"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"}));
  }

  // It goes on with its own result, whose base it names.
  const Outcome on = run_program({"train", "-q", "--set", "model.adapter=" + (tmp / "out/adapter").string(),
                                  "--set", "data.train=" + (kGoldenRuns / base / "tokens.bin").string(),
                                  "--set", "data.seq_len=64", "--set", "train.steps=1", "--set",
                                  "train.backend=cpu", "--set", "output.dir=" + (tmp / "on").string()});
  BOOST_TEST(on.code == 0, on.err);
  const Outcome lists = run_program({"generate", (tmp / "out").string(), "--prompt", "a"});
  if (base == "mha")
    BOOST_TEST(lists.code == 0, lists.err);  // its tokens are bytes
  else
    BOOST_TEST(lists.err.find("tokenizer") != std::string::npos, lists.err);  // 320 tokens, and no tokenizer
}

BOOST_AUTO_TEST_CASE(an_adapter_that_does_not_belong_to_the_run_is_refused_before_anything_is_written) {
  TemporaryDirectory tmp;
  const auto refused = [&](const fs::path& adapter, const std::vector<std::string>& more,
                           const std::string& text) {
    const Outcome r = run_program(continued(adapter, tmp / "out", more));
    BOOST_TEST(r.code == 2, text);
    BOOST_TEST(r.err.find(text) != std::string::npos, "expected '" << text << "', got " << r.err);
    BOOST_TEST(!fs::exists(tmp / "out"), text);
  };
  const fs::path lora = kGoldenRuns / "lora";
  refused(lora, {"lora.rank=4"}, "lora.rank = 4, but the adapter in");
  refused(lora, {"lora.alpha=3"}, "has 12");
  refused(lora, {"lora.rslora=false"}, "lora.rslora = false");
  refused(lora, {"lora.dora=true"}, "lora.dora = true, but the adapter in");
  refused(kGoldenRuns / "dora", {"lora.dora=false"}, "lora.dora = false, but the adapter in");
  refused(changed_adapter(tmp, {{"use_dora", true}}), {}, "lora_magnitude_vector");
  refused(changed_adapter(tmp, {{"use_dora", 1}}), {}, "use_dora: expected true or false");
  refused(lora, {"lora.targets=[\"q_proj\"]"}, "has q_proj, v_proj, o_proj, up_proj, down_proj");
  refused(tmp / "absent", {}, "model.adapter");
  refused(kGoldenRuns / "mha", {}, "adapter_config.json");
  refused(changed_adapter(tmp, {{"r", 4}}), {}, "with a different shape");
  refused(changed_adapter(tmp, {{"target_modules", {"q_proj"}}}), {}, "not part of the model");
  refused(changed_adapter(tmp, {{"target_modules", {"qkv"}}}), {}, "has no matrix of the model");
  const json of_head = {"q_proj", "v_proj", "o_proj", "up_proj", "down_proj", "lm_head"};
  refused(changed_adapter(tmp, {{"target_modules", of_head}}), {},
          "missing: base_model.model.lm_head.lora_A.weight");
  refused(changed_adapter(tmp, {{"target_modules", of_head}, {"ensure_weight_tying", true}}), {},
          "missing: base_model.model.model.embed_tokens.lora_embedding_A");
  refused(changed_adapter(tmp, {{"target_modules", of_head}, {"use_dora", true}}), {},
          "base_model.model.lm_head.lora_magnitude_vector");
  refused(lora, {"lora.ensure_weight_tying=true"}, "neither embedding nor LM head has an adapter");
  refused(kGoldenRuns / "lora-tied", {"lora.ensure_weight_tying=false"},
          "lora.ensure_weight_tying = false, but the adapter in");
  refused(kGoldenRuns / "lora-head", {"lora.ensure_weight_tying=true"},
          "lora.ensure_weight_tying = true, but the adapter in");
  refused(changed_adapter(tmp, {{"target_modules", ".*q_proj"}}), {}, "not part of the model");
  refused(changed_adapter(tmp, {{"target_modules", ".*q_proj("}}), {}, "is no regular expression");
  refused(changed_adapter(tmp, {{"layers_to_transform", {0}}}), {}, "not part of the model");
  refused(changed_adapter(tmp, {{"layers_to_transform", {-1}}}), {}, "layers_to_transform: expected numbers");
  refused(changed_adapter(tmp, {{"rank_pattern", {{"q_proj", 4}}}}), {}, "computes both in one product");
  refused(changed_adapter(tmp, {{"rank_pattern", {{"o_proj", 4}}}}), {}, "with a different shape");
  refused(changed_adapter(tmp, {{"peft_type", "IA3"}}), {}, "peft_type = \"IA3\"");
  refused(changed_adapter(tmp, {{"r", 0}}), {}, "r: expected a whole number");
  refused(changed_adapter(tmp, {{"lora_alpha", "x"}}), {}, "lora_alpha: expected a positive number");
  refused(changed_adapter(tmp, {{"lora_alpha", 1e19}}), {}, "lora_alpha: expected a positive number");
  refused(changed_adapter(tmp, {{"lora_dropout", 1}}), {}, "lora_dropout: expected");
  tmp.write("changed/adapter_config.json", "{");
  refused(tmp / "changed", {}, "adapter_config.json");
  // The base of another shape, and no base at all.
  const Outcome mha = run_program(
      {"train", "-q", "--set", "model.config=" + (kGoldenRuns / "mha/config.json").string(), "--set",
       "model.adapter=" + lora.string(), "--set", "output.dir=" + (tmp / "out").string()});
  BOOST_TEST(mha.code == 2);
  BOOST_TEST(mha.err.find("lora_A.weight") != std::string::npos, mha.err);
  const Outcome alone = run_program({"train", "-q", "--set", "model.adapter=" + lora.string()});
  BOOST_TEST(alone.code == 2);
  BOOST_TEST(alone.err.find("no folder here") != std::string::npos, alone.err);
  BOOST_TEST(!fs::exists(tmp / "out"));
}

BOOST_AUTO_TEST_SUITE_END()
