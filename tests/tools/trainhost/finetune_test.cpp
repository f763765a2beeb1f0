// trainhost finetune and train --model: a model folder is trained further, and the result is a model folder
// again. The folder is written here; that transformers loads the result is tested by
// tests/interop/hf_logits.py.
#include <boost/test/unit_test.hpp>

#include <nlohmann/json.hpp>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;
namespace fs = std::filesystem;
using json = nlohmann::json;

namespace {

/// A folder as `trainhost train` writes it, with files and config keys that only other software reads.
fs::path model_folder(const TemporaryDirectory& tmp) {
  const fs::path run = tmp / "first";
  const Outcome r = run_program({"train", "-q",
                                 "--set", "model.hidden_size=16",
                                 "--set", "model.intermediate_size=16",
                                 "--set", "model.num_hidden_layers=1",
                                 "--set", "model.num_attention_heads=2",
                                 "--set", "model.num_key_value_heads=2",
                                 "--set", "model.head_dim=8",
                                 "--set", "data.seq_len=16",
                                 "--set", "train.steps=2",
                                 "--set", "optimizer.warmup_steps=1",
                                 "--set", "output.dir=" + run.string()});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const fs::path model = tmp / "small";
  fs::rename(run / "model", model);
  json config = json::parse(read_file(model / "config.json"));
  config["torch_dtype"] = "bfloat16", config["eos_token_id"] = {3, 4}, config["of_other_software"] = "kept";
  tmp.write("small/config.json", config.dump());
  tmp.write("small/generation_config.json", "{\"temperature\": 0.25}");
  tmp.write("small/chat_template.jinja", "{{ messages }}");
  return model;
}

std::vector<std::string> arguments(const fs::path& model, const fs::path& text, const fs::path& out,
                                   const std::vector<std::string>& more = {}) {
  std::vector<std::string> a = {
      "finetune", model.string(),    text.string(), "--json",         "--set", "data.tokenizer=bytes",
      "--set",    "data.seq_len=16", "--set",       "train.epochs=1", "--set", "output.dir=" + out.string()};
  a.insert(a.end(), more.begin(), more.end());
  return a;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(finetune)

BOOST_AUTO_TEST_CASE(a_model_folder_becomes_a_model_folder) {
  TemporaryDirectory tmp;
  const fs::path model = model_folder(tmp), text = tmp.write("t.txt", std::string(16 * 40 + 1, 'a'));
  const Outcome r = run_program(arguments(model, text, tmp / "out"));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  // 40 sequences, 16 per step.
  BOOST_TEST(r.err.find("3 steps of 16 sequences; the data has 40 sequences") != r.err.npos, r.err);
  BOOST_TEST(r.err.find("weights: loaded from " + (model / "model.safetensors").string()) != r.err.npos,
             r.err);
  BOOST_TEST(r.err.find("optimizer.lr = 2e-05") != r.err.npos, r.err);
  const json config = json::parse(read_file(tmp / "out/model/config.json"));
  BOOST_TEST(config["of_other_software"] == "kept");
  BOOST_TEST(config["eos_token_id"] == json({3, 4}));
  BOOST_TEST(config["torch_dtype"] == "bfloat16");
  BOOST_TEST(read_file(tmp / "out/model/generation_config.json") == "{\"temperature\": 0.25}");
  BOOST_TEST(read_file(tmp / "out/model/chat_template.jinja") == "{{ messages }}");
  // Half the bytes of the f32 weights that it started from, but for the header.
  const double half = static_cast<double>(fs::file_size(model / "model.safetensors")) / 2;
  BOOST_TEST(std::abs(static_cast<double>(fs::file_size(tmp / "out/model/model.safetensors")) - half) < 2048);
  // The result is a start again, and the run file of the run describes it.
  BOOST_TEST(run_program(arguments(tmp / "out/model", text, tmp / "again")).code == 0);
  const Outcome repeated = run_program({"train", (tmp / "out/run.toml").string(), "-q", "--overwrite"});
  BOOST_TEST(repeated.code == 0, repeated.err);
  const Outcome by_train =
      run_program({"train", "--model", model.string(), "-q", "--set", "data.train=" + text.string(), "--set",
                   "data.tokenizer=bytes", "--set", "data.seq_len=16", "--set", "train.epochs=1", "--set",
                   "output.dir=" + (tmp / "by_train").string()});
  BOOST_REQUIRE_MESSAGE(by_train.code == 0, by_train.err);
  BOOST_TEST((read_file(tmp / "by_train/model/model.safetensors") ==
              read_file(tmp / "out/model/model.safetensors")));
}

BOOST_AUTO_TEST_CASE(adapters_of_a_model_folder_are_a_peft_folder) {
  TemporaryDirectory tmp;
  const fs::path model = model_folder(tmp), text = tmp.write("t.txt", std::string(16 * 40 + 1, 'a'));
  const Outcome r = run_program(arguments(model, text, tmp / "out", {"--lora", "--set", "lora.rank=2"}));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const json config = json::parse(read_file(tmp / "out/adapter/adapter_config.json"));
  BOOST_TEST(config["r"] == 2);  // of the command line, not that of --lora
  BOOST_TEST(config["lora_alpha"] == 32.0);
  BOOST_TEST(config["target_modules"].size() == 7u);
  BOOST_TEST(config["base_model_name_or_path"] == model.string());

  // The adapter is trained further: from the loss that it had reached.
  const Outcome more =
      run_program(arguments(model, text, tmp / "more", {"--adapter", (tmp / "out/adapter").string()}));
  BOOST_REQUIRE_MESSAGE(more.code == 0, more.err);
  BOOST_TEST(more.err.find("adapters: loaded from " + (tmp / "out/adapter").string()) != more.err.npos,
             more.err);
  BOOST_TEST(more.err.find("optimizer.lr = 0.0002") != more.err.npos, more.err);
  BOOST_TEST(read_file(tmp / "more/adapter/adapter_config.json") ==
             read_file(tmp / "out/adapter/adapter_config.json"));
  BOOST_TEST(read_file(tmp / "more/adapter/adapter_model.safetensors") !=
             read_file(tmp / "out/adapter/adapter_model.safetensors"));
  const Outcome both = run_program(arguments(model, text, tmp / "both", {"--lora", "--adapter", "x"}));
  BOOST_TEST(both.code == 2);

  // generate folds it into the weights that its config names, and merge writes the same model.
  const auto generated = [](const fs::path& dir) {
    return run_program({"generate", dir.string(), "--prompt", "aaaa", "--tokens", "12", "--temperature", "0",
                        "--backend", "cpu"});
  };
  const Outcome text_of_adapter = generated(tmp / "more");
  BOOST_REQUIRE_MESSAGE(text_of_adapter.code == 0, text_of_adapter.err);
  BOOST_REQUIRE(run_program({"merge", (tmp / "more").string(), "-o", (tmp / "merged").string()}).code == 0);
  BOOST_TEST(text_of_adapter.out == generated(tmp / "merged").out);
  BOOST_TEST(text_of_adapter.out == generated(tmp / "more/adapter").out);

  // Another base: the model that an unrelated run would leave.
  fs::remove_all(tmp / "other");
  fs::copy(tmp / "merged", tmp / "other");
  const Outcome other =
      run_program(arguments(tmp / "other", text, tmp / "x", {"--adapter", (tmp / "out/adapter").string()}));
  BOOST_TEST(other.code == 2);
  BOOST_TEST(other.err.find("was trained on other weights") != other.err.npos, other.err);
}

// What `data show` prints is what training reads: the records in the tokens of the model.
BOOST_AUTO_TEST_CASE(records_are_shown_in_the_tokens_of_the_model) {
  TemporaryDirectory tmp;
  tmp.write("m/tokenizer.json", "{}");
  const fs::path chat = tmp.write("chat.jsonl", "{\"text\": \"one\"}\n");
  const Outcome r = run_program({"data", "show", chat.string(), "--model", (tmp / "m").string()});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(r.err.find((tmp / "m/tokenizer.json").string()) != r.err.npos, r.err);
  const Outcome missing = run_program({"data", "show", chat.string(), "--model", (tmp / "n").string()});
  BOOST_TEST(missing.code == 2);
  BOOST_TEST(missing.err.find("does not exist") != missing.err.npos, missing.err);
}

BOOST_AUTO_TEST_CASE(a_model_folder_without_data_is_not_trained_on_the_built_in_text) {
  TemporaryDirectory tmp;
  const Outcome r = run_program({"train", "--model", model_folder(tmp).string()});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(r.err.find("--model") != r.err.npos, r.err);
  BOOST_TEST(r.err.find("data.train is not") != r.err.npos, r.err);
}

BOOST_AUTO_TEST_SUITE_END()
