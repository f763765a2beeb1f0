// trainhost data stats | show of a run: what they print is what `train` reads.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;
namespace fs = std::filesystem;
using json = nlohmann::json;

namespace {

struct DataOfRun {
  TemporaryDirectory tmp;
  fs::path run = tmp.write("run.toml",
                           "[model]\nhidden_size = 16\nintermediate_size = 16\nnum_hidden_layers = 1\n"
                           "num_attention_heads = 2\nnum_key_value_heads = 2\nhead_dim = 8\n"
                           "[data]\ntrain = [\"a.jsonl\", \"b.jsonl\"]\nweights = [3, 1]\nseq_len = 32\n"
                           "[train]\nsteps = 10\nmicro_batch = 2\ngrad_accum = 2\nbackend = \"cpu\"\n"
                           "[output]\ndir = \"out\"\n");
  DataOfRun() {
    std::string a, b;
    for (int i = 0; i < 30; ++i)
      a += "{\"prompt\": \"A\", \"completion\": \"" + std::string(10, 'a') + "\"}\n";
    for (int i = 0; i < 50; ++i)
      b += "{\"prompt\": \"B\", \"completion\": \"" + std::string(20, 'b') + "\"}\n";
    tmp.write("a.jsonl", a), tmp.write("b.jsonl", b);
  }
  Outcome data(std::vector<std::string> words) const {
    words.insert(words.begin(), "data");
    RunOptions o;
    o.directory = tmp.path();
    return run_program(words, o);
  }
};

bool in_text(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

BOOST_FIXTURE_TEST_SUITE(data_of_a_run, DataOfRun)

// The data of a model can be looked at before its weights are downloaded.
BOOST_AUTO_TEST_CASE(data_and_plan_need_no_weights_and_training_does) {
  tmp.write("model/config.json", R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 16,
      "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 256, "max_position_embeddings": 64})");
  tmp.write("tune.toml", "[model]\npath = \"model\"\n[data]\ntrain = \"a.jsonl\"\ntokenizer = \"bytes\"\n");
  const Outcome stats = data({"stats", "tune.toml", "--json"}), show = data({"show", "tune.toml"});
  BOOST_REQUIRE_MESSAGE(stats.code == 0, stats.err);
  BOOST_TEST(json::parse(stats.out)["sources"][0]["documents"] == 30);
  BOOST_TEST(show.code == 0, show.err);
  const std::string file = (tmp / "tune.toml").string();
  BOOST_TEST(run_program({"plan", file}).code == 0);
  for (const char* command : {"train", "verify", "check"}) {
    const Outcome r = run_program({command, file});
    const bool valid = command == std::string("check");  // and says that it cannot be trained
    BOOST_TEST(r.code == (valid ? 0 : 2), command);
    BOOST_TEST(in_text(valid ? r.out : r.err, "tune.toml:2:8: model.path: '"), r.err << r.out);
    BOOST_TEST(in_text(valid ? r.out : r.err, "copy or download the weights"), r.err << r.out);
  }
}

BOOST_AUTO_TEST_CASE(sources_have_the_samples_and_epochs_of_training) {
  const Outcome r = data({"stats", "run.toml", "--json"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const json j = json::parse(r.out);
  BOOST_REQUIRE(j["sources"].size() == 2u);
  const json &a = j["sources"][0], &b = j["sources"][1];
  BOOST_TEST(a["source"] == "a.jsonl");
  BOOST_TEST(a["documents"] == 30);
  BOOST_TEST(a["weight"] == 3.0);
  BOOST_TEST(a["share_of_samples"] == 0.75);
  BOOST_TEST(b["share_of_samples"] == 0.25);
  BOOST_TEST(j["packing"] == true);
  // 40 sequences are read.
  BOOST_TEST(a["epochs"].get<double>() * a["samples"].get<double>() == 30.0,
             boost::test_tools::tolerance(1e-9));
  BOOST_TEST(b["epochs"].get<double>() * b["samples"].get<double>() == 10.0,
             boost::test_tools::tolerance(1e-9));
  // Training says the same of the same data.
  const Outcome train = run_program({"train", run.string(), "--steps=1"});
  BOOST_REQUIRE_MESSAGE(train.code == 0, train.err);
  BOOST_TEST(in_text(train.err, "one pass reads its " + std::to_string(a["samples"].get<int>()) + " samples"),
             train.err);

  const Outcome table = data({"stats", "run.toml", "--set", "data.weights=[1,1]", "-q"});
  BOOST_REQUIRE_MESSAGE(table.code == 0, table.err);
  BOOST_TEST(table.err == "");
  BOOST_TEST(in_text(table.out, "of samples  of tokens  epochs"), table.out);
  BOOST_TEST(in_text(table.out, "50%"), table.out);
  BOOST_TEST(in_text(table.out, "the run reads 10 steps of 4 samples of 32 tokens, packed"), table.out);
  // train.epochs gives the steps.
  std::string text = read_file(run);
  text.replace(text.find("steps = 10"), 10, "epochs = 2");
  tmp.write("epochs.toml", text);
  const Outcome passes = data({"stats", "epochs.toml", "--json", "-q", "--set", "data.packing=false"});
  BOOST_REQUIRE_MESSAGE(passes.code == 0, passes.err);
  const json epochs = json::parse(passes.out);
  BOOST_TEST(epochs["samples"] == 80);
  BOOST_TEST(epochs["steps"] == 40);
  BOOST_TEST(epochs["packing"] == false);
}

BOOST_AUTO_TEST_CASE(samples_are_shown_as_they_are_trained_on) {
  Outcome r = data({"show", "run.toml", "-q", "--count", "8", "--json"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const json j = json::parse(r.out);
  BOOST_REQUIRE(j["samples"].size() == 8u);
  int of_a = 0;
  for (const json& s : j["samples"]) {
    of_a += s["source"] == "a.jsonl";
    for (const json& d : s["documents"]) {
      BOOST_TEST(d["parts"][0]["trained"] == false);
      BOOST_TEST(d["parts"][1]["trained"] == true);
    }
  }
  BOOST_TEST(of_a == 6);
  r = data({"show", "run.toml", "-q", "--first", "5", "--count", "1"});
  BOOST_TEST(in_text(r.out, "step 2, sample 1: sequence "), r.out);
  BOOST_TEST(in_text(r.out, "{+"), r.out);
  // The built-in run, and a run of settings alone.
  r = data({"show", "-q", "--count", "1", "--backend=cpu", "--set", "data.train=a.jsonl", "--set",
            "output.dir=" + (tmp / "o").string()});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(in_text(r.out, "of a.jsonl"), r.out);
}

BOOST_AUTO_TEST_CASE(options_that_do_not_apply_are_refused) {
  const auto message = [&](std::vector<std::string> words) {
    const Outcome r = data(words);
    BOOST_TEST(r.code == 2, r.err);
    return r.err;
  };
  BOOST_TEST(in_text(message({"stats"}), "no file is given"));
  BOOST_TEST(in_text(message({"stats", "run.toml", "a.jsonl"}), "a run file is given with other files"));
  BOOST_TEST(in_text(message({"stats", "a.jsonl", "--set", "data.seq_len=8"}),
                     "--set and --backend are options of a run"));
  BOOST_TEST(in_text(message({"stats", "run.toml", "--seq-len", "8"}), "use --set data.seq_len=N"));
  BOOST_TEST(in_text(message({"show", "run.toml", "--loss-on", "all"}), "use --set data.loss_on=all"));
  BOOST_TEST(in_text(message({"show", "run.toml", "--key", "text=x"}), "use --set data.keys.NAME=KEY"));
  BOOST_TEST(in_text(message({"stats", "missing.toml"}), "missing.toml"));
  BOOST_TEST(in_text(message({"stats", "run.toml", "--set", "data.weights=[1]"}),
                     "data.weights has 1 number, but data.train has 2 entries"));
}

BOOST_AUTO_TEST_SUITE_END()
