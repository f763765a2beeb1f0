// Runs that train adapters, as a user starts them: memory as predicted in every combination, resume with the
// same bits, the PEFT folder, merging, and what is refused.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tests/support/files.hpp"
#include "tests/support/golden_run.hpp"
#include "tests/support/process.hpp"
#include "tests/tools/trainhost/planned_memory.hpp"

using namespace trainhost::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const fs::path kRuns = fs::path(TRAINHOST_SOURCE_DIR) / "tests/golden/runs";

std::vector<std::string> lora_run(const fs::path& dir, std::vector<std::string> settings,
                                  std::vector<std::string> more = {}) {
  std::vector<std::string> w = {"train", "--json", "-q"};
  const std::vector<std::string> model = small_model_options();
  w.insert(w.end(), model.begin(), model.end());
  settings.insert(settings.begin(), {"output.dir=" + dir.string(), "train.steps=3", "lora.rank=4",
                                     "train.backend=cpu", "train.threads=2"});
  for (const std::string& s : settings) w.insert(w.end(), {"--set", s});
  w.insert(w.end(), more.begin(), more.end());
  return w;
}

/// The golden run whose weights an adapter of PEFT belongs to (tests/interop/peft_lora.py).
std::string base_of(const std::string& kind) {
  return kind == "lora-vocabulary" || kind == "lora-modules-untied" ? "mha" : "gqa-tied";
}

/// A run over the weights of `base` that starts from the adapter in `folder`.
std::vector<std::string> continued(const fs::path& folder, const fs::path& out,
                                   const std::vector<std::string>& more = {},
                                   const std::string& base = "gqa-tied") {
  std::vector<std::string> w = {"train", (kRuns / base / "run.toml").string(), "--json", "-q"};
  std::vector<std::string> settings = {"model.adapter=" + folder.string(),
                                       "output.dir=" + out.string(),
                                       "train.backend=cpu",
                                       "train.precision=fp32",
                                       "train.micro_batch=2",
                                       "train.grad_accum=1",
                                       "data.seq_len=64",
                                       "train.steps=20",
                                       "optimizer.schedule=constant",
                                       "optimizer.warmup_steps=0",
                                       "optimizer.grad_clip=0.5"};
  settings.insert(settings.end(), more.begin(), more.end());
  for (const std::string& s : settings) w.insert(w.end(), {"--set", s});
  return w;
}

/// Trains an adapter with these settings into `dir`. The plan is exact, and its memory is what was measured.
void uses_the_memory_of_its_plan(const fs::path& dir, const std::vector<std::string>& settings) {
  const Outcome r = run_program(lora_run(dir, settings));
  std::string what;
  for (const std::string& s : settings) what += s + " ";
  BOOST_REQUIRE_MESSAGE(r.code == 0, what << r.err);
  memory_is_that_of_the_plan(done_of(r.out), what);
}

/// The adapter of PEFT with other values of adapter_config.json; null removes a key.
fs::path changed_adapter(const TemporaryDirectory& tmp, const json& changes) {
  json config = json::parse(read_file(kRuns / "lora/adapter_config.json"));
  config.merge_patch(changes);
  tmp.write("changed/adapter_config.json", config.dump(2));
  fs::copy_file(kRuns / "lora/adapter_model.safetensors", tmp / "changed/adapter_model.safetensors",
                fs::copy_options::overwrite_existing);
  return tmp / "changed";
}

struct FileTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
};
void write_tensors(const fs::path& file, const std::vector<FileTensor>& tensors) {
  json header;
  std::string data;
  for (const FileTensor& t : tensors) {
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(t.values.data()), 4 * t.values.size());
    header[t.name] = {{"dtype", "F32"}, {"shape", t.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t size = text.size();
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(&size), 8) << text << data;
}

/// A tensor of a safetensors file.
std::vector<float> tensor(const fs::path& file, const std::string& name) {
  return read_tensors(file).at(name);
}

}  // namespace

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
  const Outcome first = run_program(continued(kRuns / "lora", tmp / "first", {"train.steps=1"}));
  BOOST_REQUIRE_MESSAGE(first.code == 0, first.err);
  std::vector<std::string> fresh = continued(kRuns / "lora", tmp / "a", {"train.steps=3"});
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
  BOOST_TEST((tensor(tmp / "m/model.safetensors", name) == before.at("base_model.model." + name)));
  BOOST_TEST(
      (tensor(tmp / "m/model.safetensors", name) != tensor(kRuns / "gqa-tied/model.safetensors", name)));
}

// PEFT's ensure_weight_tying: one tensor is trained, and written under both names.
BOOST_AUTO_TEST_CASE(a_tied_embedding_is_trained_once_written_twice_trained_further_and_merged) {
  TemporaryDirectory tmp;
  std::vector<std::string> fresh =
      continued(kRuns / "lora", tmp / "a", {"train.steps=2", "optimizer.lr=0.01"});
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
  BOOST_TEST((trained != tensor(kRuns / "gqa-tied/model.safetensors", embedding)));

  const Outcome further = run_program(
      continued(tmp / "a/adapter", tmp / "b", {"train.steps=1", "optimizer.lr=0", "optimizer.min_lr=0"}));
  BOOST_REQUIRE_MESSAGE(further.code == 0, further.err);
  BOOST_TEST((read_tensors(tmp / "b/adapter" / file) == tensors));
  const Outcome merged = run_program({"merge", (tmp / "a/adapter").string(), "-o", (tmp / "m").string()});
  BOOST_REQUIRE_MESSAGE(merged.code == 0, merged.err);
  BOOST_TEST((tensor(tmp / "m/model.safetensors", embedding) == trained));
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

// As PEFT reads them: of several patterns the first that matches the end of a name.
BOOST_AUTO_TEST_CASE(alpha_and_rank_by_pattern_are_those_of_each_merged_matrix) {
  TemporaryDirectory tmp;
  int number = 0;
  const auto merged = [&](const json& changes) {
    const fs::path out = tmp / ("m" + std::to_string(number++));
    const Outcome r = run_program({"merge", changed_adapter(tmp, changes).string(), "--model",
                                   (kRuns / "gqa-tied").string(), "-o", out.string()});
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    return read_tensors(out / "model.safetensors");
  };
  const auto base = read_tensors(kRuns / "gqa-tied/model.safetensors"), plain = merged(json::object()),
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
                                   (kRuns / "gqa-tied").string(), "-o", (tmp / "none").string()});
    BOOST_TEST(r.code == 2, text);
    BOOST_TEST(r.err.find(text) != std::string::npos, r.err);
  };
  refused({{"rank_pattern", {{"q_proj", 4}}}}, "q_proj.lora_A.weight is [3, 96], expected [4, 96]");
  refused({{"rank_pattern", {{"q_proj(", 4}}}}, "rank_pattern: \"q_proj(\" is no regular expression");
  refused({{"rank_pattern", {{"q_proj", 0}}}}, "rank_pattern: expected a positive number for \"q_proj\"");
  refused({{"alpha_pattern", json::array({1})}}, "alpha_pattern: expected an object");
}

// Embedding and LM head are one tensor: PEFT writes the factors twice, and the matrix itself.
BOOST_AUTO_TEST_CASE(an_adapter_of_the_embedding_is_merged) {
  TemporaryDirectory tmp;
  const std::string weight = "model.embed_tokens.weight", prefix = "base_model.model.";
  const std::vector<float> base = tensor(kRuns / "gqa-tied/model.safetensors", weight);
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
    return run_program(
        {"merge", folder.string(), "--model", (kRuns / "gqa-tied").string(), "-o", (tmp / out).string()});
  };
  const Outcome r = merge("m");
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const std::vector<float> merged = tensor(tmp / "m/model.safetensors", weight);
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
  BOOST_TEST((tensor(tmp / "n/model.safetensors", weight) == merged));
  BOOST_TEST((tensor(tmp / "n/model.safetensors", "lm_head.weight") == merged));
  BOOST_TEST(json::parse(read_file(tmp / "n/config.json"))["tie_word_embeddings"] == false);
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
  refused({targets + "\"lm_head\"]", "lora.dora=true"}, "\"lm_head\" is not supported with lora.dora = true");
  refused({key + "[\"gate_proj\"]"}, "a trainer computes their gradients together");
  refused({key + "[\"down_proj\"]", "lora.base=nf4"}, "'down_proj' in lora.modules_to_save is in NF4");
  refused({key + "[\"norm\"]", "train.freeze=[\"*norm*\"]"}, "train.freeze has no effect on adapters");
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

BOOST_DATA_TEST_CASE(a_merged_adapter_of_peft_has_the_weights_that_peft_merges,
                     boost::unit_test::data::make({"lora", "dora", "lora-pattern", "lora-modules",
                                                   "lora-head", "lora-vocabulary", "lora-modules-untied"}),
                     kind) {
  TemporaryDirectory tmp;
  const json expected = json::parse(read_file(kRuns / kind / "expected.json"))["merged_weights"];
  const fs::path out = tmp.path() / "merged";
  const std::string base = (kRuns / base_of(kind)).string();
  const Outcome r = run_program({"merge", (kRuns / kind).string(), "--model", base, "-o", out.string()});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  // Five of three layers; or three and o in two of them, gate and up in one; or q and v.
  const char* count = kind == std::string("lora-pattern")          ? "13 matrices"
                      : kind == std::string("lora-modules")        ? "6 matrices"
                      : kind == std::string("lora-head")           ? "7 matrices"
                      : kind == std::string("lora-vocabulary")     ? "4 matrices"
                      : kind == std::string("lora-modules-untied") ? "4 matrices"
                                                                   : "15 matrices";
  BOOST_TEST(r.out.find(count) != std::string::npos, r.out);
  for (const auto& [name, want] : expected.items()) {
    double squares = 0, sum = 0;
    for (const float v : tensor(out / "model.safetensors", name)) squares += double(v) * v, sum += v;
    const double l2 = want["l2"], of_peft = want["sum"];
    BOOST_TEST(std::abs(std::sqrt(squares) - l2) <= 1e-6 * (1 + l2), name);
    BOOST_TEST(std::abs(sum - of_peft) <= 1e-5 * (1 + std::abs(sum)), name);
  }
  const Outcome again = run_program({"merge", (kRuns / kind).string(), "--model", base, "-o", out.string()});
  BOOST_TEST(again.code == 2);
}

BOOST_AUTO_TEST_CASE(an_adapter_is_merged_only_into_the_weights_that_it_was_trained_on) {
  TemporaryDirectory tmp;
  const fs::path run = tmp.path() / "run", base = kRuns / "gqa-tied";
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
  BOOST_TEST((tensor(tmp.path() / "m/model.safetensors", k) == tensor(base / "model.safetensors", k)));
  BOOST_TEST((tensor(tmp.path() / "m/model.safetensors", q) != tensor(base / "model.safetensors", q)));
  const Outcome other = run_program({"merge", (run / "adapter").string(), "--model",
                                     (tmp.path() / "m").string(), "-o", (tmp.path() / "n").string()});
  BOOST_TEST(other.code == 2);
  BOOST_TEST(other.err.find("trained on other weights") != std::string::npos, other.err);
  const Outcome shape = run_program({"merge", (run / "adapter").string(), "--model", (kRuns / "mha").string(),
                                     "-o", (tmp.path() / "n").string()});
  BOOST_TEST(shape.code == 2);
  BOOST_TEST(!fs::exists(tmp.path() / "n"));
}

// The settings of tests/interop/peft_lora.py, whose losses are of float64.
BOOST_DATA_TEST_CASE(an_adapter_of_peft_is_trained_further_as_peft_does,
                     boost::unit_test::data::make({"lora", "dora", "lora-pattern", "lora-modules",
                                                   "lora-head", "lora-vocabulary", "lora-modules-untied"}),
                     kind) {
  TemporaryDirectory tmp;
  const json expected = json::parse(read_file(kRuns / kind / "expected.json"));
  const std::string base = base_of(kind);
  const Outcome r = run_program(continued(kRuns / kind, tmp / "out", {}, base));
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
  for (const auto& [name, values] : read_tensors(tmp / "out/adapter/adapter_model.safetensors")) {
    double squares = 0;
    for (const float v : values) squares += double(v) * v;
    const double l2 = expected["final_weights"][name]["l2"];
    BOOST_TEST(std::abs(std::sqrt(squares) - l2) <= 1e-3 * l2, name);
  }
  const json config = json::parse(read_file(tmp / "out/adapter/adapter_config.json"));
  BOOST_TEST(config["r"] == 3);
  BOOST_TEST(config["lora_alpha"] == 12);
  BOOST_TEST(config["use_rslora"] == true);
  BOOST_TEST(config["use_dora"] == (kind == std::string("dora")));
  if (kind == std::string("lora-pattern")) {
    const Outcome plan =
        run_program({"plan", "--set", "model.path=" + (kRuns / "gqa-tied").string(), "--set",
                     "model.adapter=" + (kRuns / kind).string(), "--set", "data.seq_len=64"});
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
  } else if (kind == std::string("lora-head")) {
    BOOST_TEST(config["target_modules"] == json({"q_proj", "v_proj", "lm_head"}));
  } else if (kind == std::string("lora-vocabulary")) {
    BOOST_TEST(config["target_modules"] == json({"q_proj", "lm_head", "embed_tokens"}));
    BOOST_TEST(config["rank_pattern"] == json({{"lm_head", 5}}));
  } else if (kind == std::string("lora-modules-untied")) {
    BOOST_TEST(config["modules_to_save"] == json({"embed_tokens", "lm_head"}));
  } else {
    BOOST_TEST(config["target_modules"] == json({"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"}));
  }

  // It goes on with its own result, whose base it names.
  const Outcome on = run_program({"train", "-q", "--set", "model.adapter=" + (tmp / "out/adapter").string(),
                                  "--set", "data.train=" + (kRuns / base / "tokens.bin").string(), "--set",
                                  "data.seq_len=64", "--set", "train.steps=1", "--set", "train.backend=cpu",
                                  "--set", "output.dir=" + (tmp / "on").string()});
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
  const fs::path lora = kRuns / "lora";
  refused(lora, {"lora.rank=4"}, "lora.rank = 4, but the adapter in");
  refused(lora, {"lora.alpha=3"}, "has 12");
  refused(lora, {"lora.rslora=false"}, "lora.rslora = false");
  refused(lora, {"lora.dora=true"}, "lora.dora = true, but the adapter in");
  refused(kRuns / "dora", {"lora.dora=false"}, "lora.dora = false, but the adapter in");
  refused(changed_adapter(tmp, {{"use_dora", true}}), {}, "lora_magnitude_vector");
  refused(changed_adapter(tmp, {{"use_dora", 1}}), {}, "use_dora: expected true or false");
  refused(lora, {"lora.targets=[\"q_proj\"]"}, "has q_proj, v_proj, o_proj, up_proj, down_proj");
  refused(tmp / "absent", {}, "model.adapter");
  refused(kRuns / "mha", {}, "adapter_config.json");
  refused(changed_adapter(tmp, {{"r", 4}}), {}, "with a different shape");
  refused(changed_adapter(tmp, {{"target_modules", {"q_proj"}}}), {}, "not part of the model");
  refused(changed_adapter(tmp, {{"target_modules", {"qkv"}}}), {}, "has no matrix of the model");
  const json of_head = {"q_proj", "v_proj", "o_proj", "up_proj", "down_proj", "lm_head"};
  refused(changed_adapter(tmp, {{"target_modules", of_head}}), {},
          "missing: base_model.model.lm_head.lora_A.weight");
  refused(changed_adapter(tmp, {{"target_modules", of_head}, {"ensure_weight_tying", true}}), {},
          "target_modules has lm_head with ensure_weight_tying");
  refused(changed_adapter(tmp, {{"target_modules", of_head}, {"use_dora", true}}), {},
          "target_modules has lm_head with use_dora");
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
  const Outcome mha =
      run_program({"train", "-q", "--set", "model.config=" + (kRuns / "mha/config.json").string(), "--set",
                   "model.adapter=" + lora.string(), "--set", "output.dir=" + (tmp / "out").string()});
  BOOST_TEST(mha.code == 2);
  BOOST_TEST(mha.err.find("lora_A.weight") != std::string::npos, mha.err);
  const Outcome alone = run_program({"train", "-q", "--set", "model.adapter=" + lora.string()});
  BOOST_TEST(alone.code == 2);
  BOOST_TEST(alone.err.find("no folder here") != std::string::npos, alone.err);
  BOOST_TEST(!fs::exists(tmp / "out"));
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
