// trainhost chat with lines of a pipe: turns, templates, Ctrl-C.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace trainhost::test;

/// A conversation with the program: standard input is a pipe.
class ChatProcess {
 public:
  ChatProcess(std::vector<std::string> words, const fs::path& errors) {
    int in[2], out[2];
    BOOST_REQUIRE(pipe(in) == 0 && pipe(out) == 0);
    words.insert(words.begin(), program());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], 0), dup2(out[1], 1);
      dup2(open(errors.c_str(), O_WRONLY | O_CREAT, 0600), 2);
      for (int fd : {in[0], in[1], out[0], out[1]}) close(fd);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(in[0]), close(out[1]);
    in_ = in[1], out_ = out[0];
  }
  void say(const std::string& line) { BOOST_REQUIRE(write(in_, line.data(), line.size()) > 0); }
  std::string read_some() {
    char buffer[4096];
    const ssize_t n = read(out_, buffer, sizeof buffer);
    return n > 0 ? std::string(buffer, static_cast<std::size_t>(n)) : "";
  }
  void interrupt() { kill(pid_, SIGINT); }
  /// Closes its input; the rest of its output, and its status.
  std::pair<std::string, int> end() {
    close(in_);
    std::string text;
    for (std::string part = read_some(); !part.empty(); part = read_some()) text += part;
    int status = 0;
    waitpid(pid_, &status, 0);
    close(out_);
    return {text, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
  }

 private:
  pid_t pid_ = 0;
  int in_ = -1, out_ = -1;
};

struct ChatFixture {
  TemporaryDirectory tmp;
  std::string model = (tmp.path() / "run").string();
  ChatFixture() {
    std::vector<std::string> train = {
        "train", "-q", "--set", "output.dir=" + model, "--set", "train.steps=1", "--backend=cpu"};
    for (const std::string& w : small_model_options()) train.push_back(w);
    BOOST_REQUIRE(run_program(train).code == 0);
  }
  std::vector<std::string> command(std::vector<std::string> more) const {
    std::vector<std::string> words = {"chat", model, "--backend=cpu", "--chat-template=chatml"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

BOOST_FIXTURE_TEST_SUITE(chat, ChatFixture)

BOOST_AUTO_TEST_CASE(each_line_of_a_pipe_is_a_question_and_earlier_turns_are_not_computed_again) {
  ChatProcess p(command({"--json", "--tokens=8", "--context=2000", "--system=Be brief.", "--temperature=0"}),
                tmp.path() / "errors");
  p.say("Hello\n\nWho are you?\n");
  const auto [text, code] = p.end();
  BOOST_TEST(code == 0);
  std::istringstream lines(text);
  std::vector<json> answers;
  for (std::string line; std::getline(lines, line);) answers.push_back(json::parse(line));
  BOOST_REQUIRE(answers.size() == 2u);
  BOOST_TEST(answers[0]["prompt"] == "Hello");
  BOOST_TEST(answers[1]["completion_tokens"] == 8);
  // The second prompt has the first conversation, and only what is new was computed.
  const std::uint64_t first = answers[0]["prompt_tokens"], second = answers[1]["prompt_tokens"];
  BOOST_TEST(second > first + 8 + 12);
  const std::string errors = read_file(tmp.path() / "errors");
  const std::size_t at = errors.find(" prompt tokens at");
  BOOST_REQUIRE_MESSAGE(at != errors.npos, errors);
  const std::size_t begin = errors.rfind('\n', at) + 1;
  BOOST_TEST(std::stoull(errors.substr(begin, at - begin)) < second + 2, errors);
}

BOOST_AUTO_TEST_CASE(ctrl_c_stops_the_answer_and_not_the_program) {
  ChatProcess p(command({"--tokens=100000", "--context=100000"}), tmp.path() / "errors");
  p.say("Tell me a long story\n");
  BOOST_TEST(!p.read_some().empty());
  p.interrupt();
  p.say("And now?\n");
  // The second answer is stopped as well, once it has begun.
  for (int i = 0; i < 200; ++i) {
    p.read_some();
    if (read_file(tmp.path() / "errors").find("interrupted") != std::string::npos) break;
  }
  for (int i = 0; i < 3; ++i) BOOST_TEST(!p.read_some().empty());
  p.interrupt();
  BOOST_TEST(p.end().second == 0);
  const std::string errors = read_file(tmp.path() / "errors");
  const std::size_t one = errors.find("interrupted");
  BOOST_REQUIRE_MESSAGE(one != errors.npos, errors);
  BOOST_TEST(errors.find("interrupted", one + 1) != errors.npos, errors);
}

BOOST_AUTO_TEST_CASE(a_missing_template_and_a_question_that_is_too_long_are_errors) {
  Outcome r = run_program({"chat", model, "--backend=cpu"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(r.err.find("no chat template") != r.err.npos, r.err);
  BOOST_TEST(r.err.find("llama-3") != r.err.npos, r.err);
  r = run_program({"chat", model, "--backend=cpu", "--chat-template=gemma", "--system=x"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(r.err.find("system") != r.err.npos, r.err);
  r = run_program({"chat", model, "--chat-template=chatmll"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(r.err.find("chatml") != r.err.npos, r.err);
  ChatProcess p(command({"--context=100"}), tmp.path() / "errors");
  p.say(std::string(200, 'x') + "\n");
  const auto [text, code] = p.end();
  BOOST_TEST(code == 2);
  BOOST_TEST(text == "");
  BOOST_TEST(read_file(tmp.path() / "errors").find("the context has only 100") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
