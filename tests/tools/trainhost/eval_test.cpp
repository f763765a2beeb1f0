// trainhost eval: compared with the scores of transformers in tests/golden/eval; comparisons of two models;
// wrong files and options.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace trainhost::test;

const fs::path kEval = fs::path(TRAINHOST_SOURCE_DIR) / "tests/golden/eval";
const fs::path kRuns = fs::path(TRAINHOST_SOURCE_DIR) / "tests/golden/runs";

std::vector<std::string> eval(const fs::path& model, const std::vector<fs::path>& files,
                              const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"eval", model.string(), "--backend=cpu", "-q", "--data"};
  for (const fs::path& f : files) words.push_back(f.string());
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

json result_of(const std::vector<std::string>& words) {
  const Outcome r = run_program(words);
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  return json::parse(r.out);
}

std::vector<json> lines_of(const fs::path& file) {
  std::istringstream in(read_file(file));
  std::vector<json> all;
  for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
  return all;
}

double worst_difference(const json& got, const json& expected) {
  BOOST_REQUIRE(got.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::abs(got[i].get<double>() - expected[i].get<double>()));
  return worst;
}

const char* kConversation =
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";

bool close(double a, double b) { return std::abs(a - b) < 1e-9; }

BOOST_AUTO_TEST_SUITE(eval_command)

BOOST_AUTO_TEST_CASE(scores_and_choices_are_those_of_transformers) {
  TemporaryDirectory t;
  const std::vector<fs::path> files = {kEval / "text.txt", kEval / "records.jsonl",
                                       kEval / "questions.jsonl"};
  for (const char* family : {"llama", "qwen2", "qwen3"})
    for (const char* batch : {"--batch=1", "--batch=7"}) {
      const json expected = json::parse(read_file(kEval / family / "expected.json"));
      const json result =
          result_of(eval(kEval / family, files,
                         {"--json", batch, "--details=" + (t / "d.jsonl").string(),
                          "--window=" + expected["window"].dump(), "--stride=" + expected["stride"].dump()}));
      const std::vector<json> lines = lines_of(t / "d.jsonl");
      const std::size_t windows = expected["text"].size(), records = expected["records"].size();
      BOOST_REQUIRE(lines.size() == windows + records + expected["questions"].size());
      double nats = 0, worst = 0;
      for (std::size_t i = 0; i < windows; ++i) {
        worst = std::max(worst, worst_difference(lines[i]["log_probabilities"], expected["text"][i]));
        for (const json& x : expected["text"][i]) nats -= x.get<double>();
      }
      for (std::size_t i = 0; i < records; ++i) {
        const json& line = lines[windows + i];
        worst = std::max(worst, worst_difference(line["log_probabilities"], expected["records"][i]));
        BOOST_TEST(line["line"] == i + 1);
      }
      for (std::size_t i = 0; i < expected["questions"].size(); ++i) {
        const json &line = lines[windows + records + i], &want = expected["questions"][i];
        worst = std::max(worst, worst_difference(line["log_likelihoods"], want["log_likelihoods"]));
        for (const char* key : {"answer", "chosen", "chosen_norm", "chosen_bytes"})
          BOOST_TEST(line[key] == want[key], family << " " << i << " " << key);
      }
      BOOST_TEST(worst < 2e-4, family << ": " << worst);
      const json text = result["files"][0]["results"][0], questions = result["files"][2]["results"][0];
      const auto scored = text["scored_tokens"].get<double>();
      BOOST_TEST(std::abs(text["loss"]["value"].get<double>() - nats / scored) < 1e-5);
      BOOST_TEST(
          close(std::log(text["perplexity"]["value"].get<double>()), text["loss"]["value"].get<double>()));
      const std::size_t bytes = fs::file_size(files[0]) - (family == std::string("qwen2") ? 0 : 1);
      BOOST_TEST(
          close(text["bits_per_byte"]["value"].get<double>(),
                text["loss"]["value"].get<double>() * scored / std::log(2.0) / static_cast<double>(bytes)));
      const char* keys[] = {"accuracy", "accuracy_norm", "accuracy_bytes"};
      for (std::size_t i = 0; i < 3; ++i) {
        BOOST_TEST(close(questions[keys[i]]["value"].get<double>(), expected["accuracy"][i].get<double>()));
        BOOST_TEST(
            close(questions[keys[i]]["error"].get<double>(), expected["accuracy_error"][i].get<double>()));
      }
      BOOST_TEST(questions["truncated"] == 1);
      BOOST_TEST(result["memory"]["predicted_bytes"] == result["memory"]["measured_bytes"]);
    }
}

BOOST_AUTO_TEST_CASE(a_model_is_compared_with_itself_and_with_another) {
  const std::vector<fs::path> files = {kEval / "text.txt", kEval / "records.jsonl",
                                       kEval / "questions.jsonl"};
  const json same =
      result_of(eval(kEval / "llama", files, {"--json", "--compare", (kEval / "llama").string()}));
  for (const json& f : same["files"]) {
    BOOST_TEST(f["results"][0] == f["results"][1]);
    BOOST_TEST(f["same_tokens"] == true);
    for (const json& d : f["difference"]) {
      BOOST_TEST(d["value"] == 0.0);
      BOOST_TEST(d["error"].get<double>() == 0.0);
      BOOST_TEST(d["better"].get<int>() + d["worse"].get<int>() == 0);
    }
  }
  const json other =
      result_of(eval(kEval / "llama", files, {"--json", "--compare", (kEval / "qwen2").string()}));
  const json alone = result_of(eval(kEval / "qwen2", files, {"--json"}));
  for (std::size_t i = 0; i < files.size(); ++i) {
    const json& f = other["files"][i];
    BOOST_TEST(f["results"][0] == same["files"][i]["results"][0]);
    BOOST_TEST(f["results"][1] == alone["files"][i]["results"][0]);
    BOOST_TEST(f["same_tokens"] == false);
    for (const auto& [key, d] : f["difference"].items())
      BOOST_TEST(close(d["value"].get<double>(), f["results"][1][key]["value"].get<double>() -
                                                     f["results"][0][key]["value"].get<double>()));
  }
  // Windows of other tokens are not paired; documents and questions are.
  BOOST_TEST(other["files"][0]["difference"]["loss"]["error"].is_null());
  BOOST_TEST(other["files"][1]["difference"]["loss"]["error"].is_number());
  const Outcome text = run_program(eval(kEval / "llama", files, {"--compare", (kEval / "qwen2").string()}));
  BOOST_TEST(text.code == 0);
  BOOST_TEST(has(text.out, "the tokens differ: compare bits per byte"), text.out);
  BOOST_TEST(has(text.out, "accuracy, per character"), text.out);
}

BOOST_AUTO_TEST_CASE(an_adapter_whose_model_is_elsewhere_is_added_to_the_first_one) {
  TemporaryDirectory t;
  // The vocabulary of gqa-tied is no tokenizer's; bytes are ids 0 to 255 of this one.
  fs::copy(kRuns / "gqa-tied", t / "model");
  fs::copy(kEval / "qwen2/tokenizer.json", t / "model/tokenizer.json");
  fs::copy(kRuns / "lora", t / "lora");
  json config = json::parse(read_file(t / "lora/adapter_config.json"));
  config["base_model_name_or_path"] = "some/name-of-a-hub";
  t.write("lora/adapter_config.json", config.dump());
  const std::vector<fs::path> files = {kEval / "text.txt"};
  const json both = result_of(eval(t / "model", files, {"--json", "--compare", (t / "lora").string()}));
  const json adapted = result_of(eval(t / "model", files, {"--json", "--adapter", (t / "lora").string()}));
  BOOST_TEST(both["files"][0]["results"][1] == adapted["files"][0]["results"][0]);
  BOOST_TEST(both["files"][0]["results"][0] != adapted["files"][0]["results"][0]);
  BOOST_TEST(both["models"][1]["adapter"] == (t / "lora").string());
  BOOST_TEST(both["files"][0]["same_tokens"] == true);
}

BOOST_AUTO_TEST_CASE(a_run_is_evaluated_as_it_was_trained) {
  TemporaryDirectory t;
  const fs::path run = t / "run", chat = t.write("chat.jsonl", kConversation);
  std::vector<std::string> train = {"train",
                                    "-q",
                                    "--backend=cpu",
                                    "--set",
                                    "output.dir=" + run.string(),
                                    "--set",
                                    "train.steps=1",
                                    "--set",
                                    "data.chat_template=chatml",
                                    "--set",
                                    "data.loss_on=all"};
  for (const std::string& w : small_model_options()) train.push_back(w);
  BOOST_REQUIRE(run_program(train).code == 0);
  for (const char* folder : {"", "model"}) {
    const json r = result_of(eval(run / folder, {chat}, {"--json"}));
    BOOST_TEST(r["window"] == 33);  // data.seq_len + 1
    BOOST_TEST(r["stride"] == 16);
    const json& scores = r["files"][0]["results"][0];
    BOOST_TEST(scores["scored_tokens"].get<int>() == scores["tokens"].get<int>() - 1);
  }
  // The same for the model that it is compared with; options win.
  const json r =
      result_of(eval(kEval / "llama", {chat},
                     {"--json", "--compare", run.string(), "--window=40", "--loss-on=completions"}));
  BOOST_TEST(r["window"] == 40);
  const json& scores = r["files"][0]["results"][0];
  BOOST_TEST(scores["scored_tokens"].get<int>() < scores["tokens"].get<int>() - 1);
  // A run file that cannot be read is noted, and not used.
  t.write("run/run.toml", "[data]\nseq_len = 0\n");
  const Outcome other =
      run_program({"eval", run.string(), "--backend=cpu", "--data", (kEval / "text.txt").string()});
  BOOST_TEST(other.code == 0, other.err);
  BOOST_TEST(has(other.err, "run.toml is not used: "), other.err);
}

BOOST_AUTO_TEST_CASE(wrong_files_and_options_are_errors_before_weights_are_loaded) {
  TemporaryDirectory t;
  const auto error = [&](const std::vector<fs::path>& files, const std::vector<std::string>& more) {
    const Outcome r = run_program(eval(kEval / "llama", files, more));
    BOOST_TEST(r.code == 2, r.err);
    BOOST_TEST(r.out == "");
    return r.err;
  };
  const std::vector<fs::path> text = {kEval / "text.txt"};
  BOOST_TEST(has(error(text, {"--window=257"}), "--window 257 is longer than the 256 positions"));
  BOOST_TEST(
      has(error(text, {"--window=20", "--stride=20"}), "--stride 20 is not less than the window of 20"));
  BOOST_TEST(has(error(text, {"--window=1"}), "not a whole number from 2"));
  BOOST_TEST(has(error(text, {"--question-format=x"}), "expected exactly one {}"));
  BOOST_TEST(has(error(text, {"--key=questin=q"}), "did you mean 'question'?"));
  BOOST_TEST(has(error(text, {"--details=" + (t / "no/x").string()}), "--details"));
  BOOST_TEST(has(error({t / "missing.txt"}, {}), "missing.txt"));
  BOOST_TEST(has(error({t.write("chat.jsonl", kConversation)}, {}), "--chat-template"));
  const fs::path questions = t.write("q.jsonl",
                                     "{\"question\": \"Q\", \"choices\": [\"x\", \"y\"], \"answer\": 5}\n"
                                     "{\"question\": \"Q\", \"choices\": [\"x\", \"y\"], \"answer\": 1}\n");
  BOOST_TEST(has(error({questions}, {}), "q.jsonl:1:"));
  const json skipped = result_of(eval(kEval / "llama", {questions}, {"--json", "--on-error=skip"}));
  BOOST_TEST(skipped["files"][0]["results"][0]["questions"] == 1);
  BOOST_TEST(skipped["files"][0]["results"][0]["broken"] == 1);
  BOOST_TEST(has(run_program({"eval", (kEval / "llama").string()}).err, "--data"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
