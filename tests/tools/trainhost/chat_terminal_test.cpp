// trainhost chat on a pseudo-terminal: what a user types, sees and interrupts. Lines of a pipe:
// chat_test.cpp.
#include <signal.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"
#include "tests/support/terminal.hpp"

namespace {

namespace fs = std::filesystem;
using namespace trainhost::test;

constexpr const char *kCtrlC = "\x03", *kCtrlD = "\x04", *kCtrlU = "\x15", *kBackspace = "\x7f";

/// A model of bytes with random weights: its answers are arbitrary bytes and end only at --tokens.
struct ChatTerminalFixture {
  TemporaryDirectory tmp;
  std::string model = (tmp.path() / "run").string();
  ChatTerminalFixture() {
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

}  // namespace

BOOST_FIXTURE_TEST_SUITE(chat_on_a_terminal, ChatTerminalFixture)

BOOST_AUTO_TEST_CASE(a_line_is_edited_answered_and_ctrl_d_ends) {
  Terminal t(command({"--json", "--tokens=4", "--context=2000"}));
  BOOST_REQUIRE_MESSAGE(t.shows("> "), t.screen);
  t.type(std::string("wrong") + kCtrlU + "Helllo" + kBackspace + kBackspace + "o\n");
  BOOST_REQUIRE_MESSAGE(t.shows("\"prompt\":\"Hello\""), t.screen);
  BOOST_REQUIRE_MESSAGE(t.shows("\n> "), t.screen);
  t.type("  \n");  // no question
  BOOST_REQUIRE_MESSAGE(t.shows("\n> "), t.screen);
  t.type("Gr\u00fc\u00dfe\n");
  BOOST_REQUIRE_MESSAGE(t.shows("Gr\u00fc\u00dfe\r\n"), t.screen);  // the echo
  BOOST_REQUIRE_MESSAGE(t.shows("\"prompt\":\"Gr\u00fc\u00dfe\""), t.screen);
  BOOST_REQUIRE_MESSAGE(t.shows("\n> "), t.screen);
  t.type(kCtrlD);
  BOOST_TEST(t.end() == 0);
  BOOST_TEST(t.shows("\r\n"), t.screen);  // the prompt of the shell has a line of its own
  BOOST_TEST(t.shows(" new tokens at"), t.screen);
  BOOST_TEST(t.mode_is_unchanged());
}

BOOST_AUTO_TEST_CASE(an_answer_is_shown_while_it_is_generated_and_ctrl_c_ends_only_the_answer) {
  Terminal t(command({"--tokens=100000", "--context=100000"}));
  BOOST_REQUIRE_MESSAGE(t.shows("> "), t.screen);
  for (const char* question : {"Tell me a long story\n", "And another one\n"}) {
    t.type(question);
    BOOST_REQUIRE(t.grows(std::string(question).size() + 200));
    t.type(kCtrlC);
    BOOST_REQUIRE_MESSAGE(t.shows("^C"), t.screen);
    BOOST_REQUIRE_MESSAGE(t.shows("\r\n[the answer is not complete: interrupted]\r\n> "), t.screen);
  }
  t.type(kCtrlD);
  BOOST_TEST(t.end() == 0);
  BOOST_TEST(t.mode_is_unchanged());
}

BOOST_AUTO_TEST_CASE(ctrl_c_at_the_prompt_ends_the_program) {
  Terminal t(command({}));
  BOOST_REQUIRE_MESSAGE(t.shows("> "), t.screen);
  t.type(std::string("half a question") + kCtrlC);
  BOOST_TEST(t.end() == 128 + SIGINT);
  BOOST_TEST(t.mode_is_unchanged());
}

BOOST_AUTO_TEST_CASE(a_line_typed_during_an_answer_is_the_next_question) {
  Terminal t(command({"--json", "--tokens=400", "--context=4000"}));
  BOOST_REQUIRE_MESSAGE(t.shows("> "), t.screen);
  t.type("one\ntwo\n");
  BOOST_REQUIRE_MESSAGE(t.shows("\"prompt\":\"one\""), t.screen);
  BOOST_REQUIRE_MESSAGE(t.shows("\"prompt\":\"two\""), t.screen);
  t.type(kCtrlD);
  BOOST_TEST(t.end() == 0);
}

BOOST_AUTO_TEST_CASE(a_line_that_the_terminal_cuts_off_is_refused) {
  Terminal t(command({"--json", "--tokens=4", "--context=20000"}));
  BOOST_REQUIRE_MESSAGE(t.shows("> "), t.screen);
  for (int i = 0; i < 10; ++i) {  // in pieces whose echo is read, because the terminal holds 4 KiB
    t.type(std::string(500, 'x'));
    BOOST_REQUIRE(i >= 8 || t.grows(500));
  }
  t.type("\n");
  BOOST_REQUIRE_MESSAGE(t.shows("the terminal cuts lines off at 4,095 bytes"), t.screen);
  t.type("Hello\n");
  BOOST_REQUIRE_MESSAGE(t.shows("\"prompt\":\"Hello\""), t.screen);
  t.type(kCtrlD);
  BOOST_TEST(t.end() == 0);
}

BOOST_AUTO_TEST_CASE(an_answer_cannot_control_the_terminal) {
  Terminal t(command({"--tokens=2000", "--context=4000", "--temperature=2", "-q"}));
  BOOST_REQUIRE_MESSAGE(t.shows("> "), t.screen);
  t.type("x\n");
  BOOST_REQUIRE_MESSAGE(t.shows("\n> "), t.screen);
  t.type(kCtrlD);
  BOOST_TEST(t.end() == 0);
  BOOST_TEST(
      t.answers_on_screen("\\x1b"));  // 2000 of 256 random bytes have one, but with a chance of 1 in 2000
  const auto controls = std::count_if(t.screen.begin(), t.screen.end(), [](unsigned char c) {
    return (c < 0x20 && c != '\r' && c != '\n') || c == 0x7f;
  });
  BOOST_TEST(controls == 0);
}

BOOST_AUTO_TEST_SUITE_END()
