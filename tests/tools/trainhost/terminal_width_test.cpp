// No command prints a line that is wider than the terminal: every table, at several widths.
#include <boost/test/unit_test.hpp>
#include <sstream>

#include "core/report/text_table.hpp"
#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;

namespace {

/// A trained model, records and a mixture of files for the commands that need them.
struct TerminalWidthFixture {
  TemporaryDirectory tmp;
  RunOptions options;
  TerminalWidthFixture() {
    options.directory = tmp.path();
    std::string text, records;
    for (int i = 0; i < 300; ++i) {
      text += "the quick brown fox jumps over the lazy dog\n";
      records += "{\"text\": \"record " + std::to_string(i) + "\"}\n";
    }
    tmp.write("text.txt", text);
    tmp.write("other.txt", text);
    tmp.write("records.jsonl", records);
    tmp.write("mixture.toml",
              "[data]\nseq_len = 32\ntrain = [\"text.txt\", \"other.txt\"]\nweights = [1, 2]\n");
    tmp.write("ddp.json",
              "{\"per_device_train_batch_size\": 4, \"gradient_checkpointing\": true, \"bf16\": true, "
              "\"learning_rate\": 2e-5, \"adam_beta1\": 0.9}");
    BOOST_REQUIRE(run_program(training({"-q"}), options).code == 0);
  }
  static std::vector<std::string> training(std::vector<std::string> more) {
    std::vector<std::string> words = {"train",          "--backend=cpu", "--overwrite",  "--set",
                                      "output.dir=run", "--set",         "train.steps=2"};
    for (const std::string& w : small_model_options()) words.push_back(w);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

const std::string kPlan = "plan --model=llama-3-8b ";

}  // namespace

BOOST_FIXTURE_TEST_SUITE(terminal_width, TerminalWidthFixture)

BOOST_AUTO_TEST_CASE(no_line_of_a_table_is_wider_than_the_terminal) {
  std::vector<std::vector<std::string>> commands;
  for (const std::string& words : {
           std::string("models"),
           std::string("devices"),
           std::string("doctor"),
           std::string("plugins list -v"),
           std::string("plugins info pytorch"),
           std::string("plugins info cpu"),
           kPlan + "--device=h100-80gb --estimator=all --limits",
           kPlan + "--device=rtx-4090 --explain",
           kPlan + "--device=rtx-4090 --set parallel.data=8 --set parallel.zero=3 --for=pytorch",
           std::string("plan --from ddp.json --model=llama-3-8b --device=a100-40gb --set data.seq_len=512"),
           std::string("sweep --model=llama-3-8b --over data.seq_len=512..4096 --device=h100-80gb"),
           std::string("sweep --model=llama-3-8b --over data.seq_len=512..4096 --estimator=all"),
           std::string("search --model=llama-3-70b --device=h100-80gb --devices=64 --global-batch=512"),
           std::string("verify --only MEM-001,MEM-002"),
           std::string("data info text.txt"),
           std::string("data stats records.jsonl"),
           std::string("data stats records.jsonl records.jsonl --seq-len 8"),
           std::string("data stats mixture.toml"),
           std::string("eval run --data text.txt --compare run"),
           std::string("help"),
           std::string("help plan"),
           std::string("train --help"),
       }) {
    std::istringstream in(words);
    commands.push_back({std::istream_iterator<std::string>(in), {}});
  }
  for (const std::vector<std::string>& words : commands)
    for (const char* width : {"40", "60", "80", "100", "120"}) {
      options.environment["COLUMNS"] = width;
      const Outcome r = run_program(words, options);
      BOOST_TEST((r.code == 0 || r.code == 3 || (r.code == 5 && words.front() != "eval")),
                 words.front() << " exit " << r.code << ": " << r.err);
      BOOST_TEST(r.out.find("\n") != std::string::npos, words.front());
      // Messages of eval are on stderr.
      std::istringstream lines(words.front() == "eval" ? r.out + r.err : r.out);
      for (std::string line; std::getline(lines, line);)
        BOOST_TEST(trainhost::report::display_width(line) <= std::stoul(width),
                   words.front() << " at " << width << ": " << line);
    }
}

BOOST_AUTO_TEST_CASE(the_profile_fits_too) {
  for (const char* width : {"40", "80", "120"}) {
    options.environment["COLUMNS"] = width;
    const Outcome r = run_program(training({"--profile", "trace.json"}), options);
    BOOST_TEST(r.code == 0, r.err);
    const std::size_t begin = r.err.find("profile of ");
    BOOST_REQUIRE(begin != r.err.npos);
    std::istringstream lines(r.err.substr(begin));
    for (std::string line; std::getline(lines, line) && line.find("trace of steps") == line.npos;)
      BOOST_TEST(trainhost::report::display_width(line) <= std::stoul(width), width << ": " << line);
  }
}

BOOST_AUTO_TEST_CASE(a_narrow_terminal_names_the_columns_that_are_not_shown) {
  options.environment["COLUMNS"] = "60";
  const std::string text = run_program({"devices"}, options).out;
  BOOST_TEST(text.find("not shown, terminal too narrow: ") != text.npos, text);
  BOOST_TEST(text.find("--json") != text.npos, text);
  options.environment.clear();  // a pipe: everything, in full width
  const std::string whole = run_program({"devices"}, options).out;
  BOOST_TEST(whole.find("host GB/s\n") != whole.npos, whole);
  BOOST_TEST(whole.find("not shown") == whole.npos, whole);
}

BOOST_AUTO_TEST_SUITE_END()
