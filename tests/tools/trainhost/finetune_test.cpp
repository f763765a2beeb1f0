// trainhost finetune and train --model: a model folder is trained further, and the result is a model folder
// again. The folder is written here; that transformers loads the result is tested by
// tests/interop/hf_logits.py.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <nlohmann/json.hpp>
#include <sstream>

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

BOOST_DATA_TEST_CASE(adapters_of_a_model_folder_are_a_peft_folder,
                     boost::unit_test::data::make({"--lora", "--dora"}), kind) {
  TemporaryDirectory tmp;
  const fs::path model = model_folder(tmp), text = tmp.write("t.txt", std::string(16 * 40 + 1, 'a'));
  const Outcome r = run_program(arguments(model, text, tmp / "out", {kind, "--set", "lora.rank=2"}));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const json config = json::parse(read_file(tmp / "out/adapter/adapter_config.json"));
  BOOST_TEST(config["r"] == 2);  // of the command line, not that of --lora
  BOOST_TEST(config["lora_alpha"] == 32.0);
  BOOST_TEST(config["target_modules"].size() == 7u);
  BOOST_TEST(config["use_dora"] == (kind == std::string("--dora")));
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
  const Outcome both = run_program(arguments(model, text, tmp / "both", {kind, "--adapter", "x"}));
  BOOST_TEST(both.code == 2);
  BOOST_TEST(both.err.find(std::string("--adapter cannot be combined with ") + kind +
                           ", which creates an adapter (leave out") != both.err.npos,
             both.err);

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

/// The events of a run by their name.
std::vector<json> events_named(const std::string& out, const std::string& name) {
  std::vector<json> found;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);)
    if (json e = json::parse(line); e["event"] == name) found.push_back(std::move(e));
  return found;
}

/// Records without conversations need no chat template.
fs::path model_without_template(const TemporaryDirectory& tmp) {
  const fs::path model = model_folder(tmp);
  fs::remove(model / "chat_template.jinja");
  return model;
}

std::string questions(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += "{\"prompt\": \"Say " + std::to_string(i) + "? \", \"completion\": \"Yes, " + std::to_string(i) +
             std::string(static_cast<std::size_t>(i % 3), '!') + "\"}\n";
  return lines;
}

// The longest of four records has 15 tokens, so two of them share a sequence of 32.
BOOST_AUTO_TEST_CASE(packed_records_have_the_loss_of_padded_ones) {
  TemporaryDirectory tmp;
  const fs::path model = model_without_template(tmp), data = tmp.write("q.jsonl", questions(4));
  const auto loss = [&](const char* packing, const char* sequences, const std::string& expected) {
    const fs::path out = tmp / (std::string("out ") + packing);
    const Outcome r = run_program({"finetune",    model.string(),
                                   data.string(), "--json",
                                   "--set",       "data.tokenizer=bytes",
                                   "--set",       "data.seq_len=32",
                                   "--set",       "train.steps=1",
                                   "--set",       "train.precision=fp32",
                                   "--set",       "train.micro_batch=1",
                                   "--set",       std::string("train.grad_accum=") + sequences,
                                   "--set",       std::string("data.packing=") + packing,
                                   "--set",       "output.dir=" + out.string()});
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    BOOST_TEST(r.err.find(expected) != r.err.npos, r.err);
    const json memory = events_named(r.out, "done").at(0)["memory"];
    BOOST_TEST(memory["predicted_bytes"] == memory["measured_bytes"]);
    return events_named(r.out, "step").at(0)["loss"].get<double>();
  };
  const double packed = loss("true", "2", "4 documents in 2 sequences (packed)"),
               padded = loss("false", "4", "4 documents in 4 sequences,");
  BOOST_TEST(std::abs(packed - padded) < 1e-5 * padded);
}

BOOST_AUTO_TEST_CASE(sequences_have_the_length_of_the_longest_record_and_are_packed) {
  TemporaryDirectory tmp;
  const fs::path model = model_without_template(tmp), data = tmp.write("q.jsonl", questions(40));
  const std::vector<std::string> run = {"finetune",    model.string(),
                                        data.string(), "--json",
                                        "--set",       "data.tokenizer=bytes",
                                        "--set",       "train.epochs=1",
                                        "--set",       "output.dir=" + (tmp / "out").string()};
  const Outcome r = run_program(run);
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  // "Say 38? " and "Yes, 38!!"
  BOOST_TEST(r.err.find("data.seq_len = 16: the longest of 40 records has 17 tokens") != r.err.npos, r.err);
  BOOST_TEST(r.err.find("(packed)") != r.err.npos, r.err);
}

BOOST_AUTO_TEST_CASE(sources_are_mixed_by_weight_and_a_mixture_is_resumed) {
  TemporaryDirectory tmp;
  const fs::path model = model_without_template(tmp), a = tmp.write("a.jsonl", questions(5)),
                 b = tmp.write("b.jsonl", questions(30));
  const auto run = [&](const char* out, const char* steps, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"finetune",
                                    model.string(),
                                    a.string(),
                                    b.string(),
                                    "--json",
                                    "--set",
                                    "data.tokenizer=bytes",
                                    "--set",
                                    "data.weights=[3, 1]",
                                    "--set",
                                    "train.grad_accum=2",
                                    "--set",
                                    "optimizer.schedule=constant",
                                    "--set",
                                    "optimizer.warmup_steps=0",
                                    "--set",
                                    "output.checkpoint_every=3",
                                    "--set",
                                    "output.dir=" + (tmp / out).string(),
                                    "--steps",
                                    steps};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  };
  const Outcome whole = run("whole", "6");
  BOOST_REQUIRE_MESSAGE(whole.code == 0, whole.err);
  BOOST_TEST(whole.err.find("mixture: a.jsonl is 75% of the samples") != whole.err.npos, whole.err);
  BOOST_TEST(run("parts", "3").code == 0);
  const Outcome resumed = run("parts", "6", {"--resume"});
  BOOST_REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
  BOOST_TEST(
      (read_file(tmp / "whole/model/model.safetensors") == read_file(tmp / "parts/model/model.safetensors")));
  const Outcome wrong = run("wrong", "1", {"--set", "data.weights=[1]"});
  BOOST_TEST(wrong.code == 2);
  BOOST_TEST(wrong.err.find("data.weights has 1 number, but data.train has 2 entries") != wrong.err.npos,
             wrong.err);
}

BOOST_AUTO_TEST_CASE(data_that_is_refused_leaves_no_file_behind) {
  TemporaryDirectory tmp;
  const fs::path model = model_without_template(tmp),
                 broken = tmp.write("b.jsonl", "{\"text\": \"one\"}\n{\"text\": 1}\n");
  Outcome r = run_program(arguments(model, broken, tmp / "runs/out"));
  BOOST_TEST(r.code == 2);
  BOOST_TEST(r.err.find("b.jsonl:2") != r.err.npos, r.err);
  BOOST_TEST(!fs::exists(tmp / "runs"));
  tmp.write("mine/notes.txt", "kept");  // a folder that was there
  r = run_program(arguments(model, broken, tmp / "mine"));
  BOOST_TEST(r.code == 2);
  BOOST_TEST(std::distance(fs::directory_iterator(tmp / "mine"), {}) == 1);
}

// Weights are read after the data, when the run has a folder with the cache of the tokens.
BOOST_AUTO_TEST_CASE(weights_that_are_refused_leave_no_file_behind) {
  TemporaryDirectory tmp;
  const fs::path model = model_without_template(tmp), data = tmp.write("q.jsonl", questions(4));
  fs::resize_file(model / "model.safetensors", 1000);
  const Outcome r = run_program(arguments(model, data, tmp / "runs/out"));
  BOOST_TEST(r.code == 2);
  BOOST_TEST(r.err.find("the file is truncated: copy it again") != r.err.npos, r.err);
  BOOST_TEST(!fs::exists(tmp / "runs"));
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
