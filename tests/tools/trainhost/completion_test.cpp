// trainhost completion, as a shell uses it: the function of the bash script gets the words of a command line.
// Compared with --help, which is printed by the parser itself.
#include <boost/test/unit_test.hpp>
#include <set>
#include <sstream>

#include "tests/support/command_help.hpp"
#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;

namespace {

std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

using Words = std::vector<std::string>;

/// What the function of bash answers for each of these command lines, without the program; the last word is
/// completed. One bash for all of them.
std::vector<Words> complete_all(const std::vector<Words>& lines, const std::filesystem::path& folder = {}) {
  std::string script = "source <(" + quoted(program()) + " completion bash)\n";
  for (const Words& line : lines) {
    script += "COMP_WORDS=(" + quoted(program());
    for (const std::string& word : line) script += " " + quoted(word);
    script += "); COMP_CWORD=" + std::to_string(line.size()) +
              "; _trainhost; printf '%s\\n' \"${COMPREPLY[@]}\"; echo .\n";
  }
  TemporaryDirectory tmp;
  tmp.write("script.sh", script);
  RunOptions o;
  o.program = "bash";
  o.directory = folder;
  const Outcome r = run_program({"--norc", (tmp.path() / "script.sh").string()}, o);
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(r.err == "");
  std::vector<Words> out(1);
  std::istringstream in(r.out);
  for (std::string word; std::getline(in, word);) {
    if (word == ".")
      out.emplace_back();
    else if (!word.empty())
      out.back().push_back(word);
  }
  out.pop_back();
  BOOST_REQUIRE(out.size() == lines.size());
  return out;
}

Words complete(const Words& line, const std::filesystem::path& folder = {}) {
  return complete_all({line}, folder).front();
}

bool contains(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool have(const char* shell) {
  RunOptions o;
  o.program = "sh";
  return run_program({"-c", std::string("command -v ") + shell}, o).code == 0;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(completion)

BOOST_AUTO_TEST_CASE(every_option_of_every_command_is_completed) {
  std::vector<Words> lines;
  std::vector<std::set<std::string>> expected;
  for (const Words& command : all_commands()) {
    const std::set<std::string> options = options_in(help_of(command));
    Words line = command;
    line.push_back("--");
    lines.push_back(line);
    expected.push_back(options);
    // And each from its name without the last letter.
    for (const std::string& option : options) {
      line.back() = option.substr(0, option.size() - 1);
      lines.push_back(line);
      expected.push_back({option});
    }
  }
  BOOST_TEST(lines.size() > 150u);
  const std::vector<Words> answers = complete_all(lines);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::set<std::string> offered(answers[i].begin(), answers[i].end());
    for (const std::string& option : expected[i])
      BOOST_TEST(offered.count(option) == 1u, lines[i].front()
                                                  << " " << lines[i].back() << ": no " << option);
    if (lines[i].back() == "--") BOOST_TEST(offered == expected[i], lines[i].front());
  }
}

BOOST_AUTO_TEST_CASE(every_command_is_completed) {
  const Words top = complete({""});
  std::map<std::string, Words> below;
  for (const Words& command : all_commands())
    if (command.size() == 1)
      BOOST_TEST(contains(top, command[0]), command[0]);
    else
      below[command[0]].push_back(command[1]);
  BOOST_TEST(below.size() == 2u);  // data, plugins
  for (const auto& [command, names] : below)
    for (const Words& line : {Words{command, ""}, Words{"help", command, ""}})
      for (const std::string& name : names) BOOST_TEST(contains(complete(line), name), command + " " + name);
  BOOST_TEST(complete({"plugins", "che"}) == Words{"check"}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(values_are_completed_in_every_way_to_write_an_option) {
  const Words h100 = complete({"plan", "--device", "h100-"});
  BOOST_TEST(contains(h100, "h100-80gb"));
  // Bash splits words at '='.
  for (const Words& line : {Words{"plan", "--device", "=", "h100-"}, Words{"plan", "--device=h100-"},
                            Words{"plan", "--set", "memory.device", "=", "h100-"},
                            Words{"plan", "--set", "=", "memory.device", "=", "h100-"}}) {
    Words answers = complete(line);
    // A word that was not split is replaced as a whole.
    for (std::string& word : answers) word = word.substr(word.rfind('=') + 1);
    BOOST_TEST(answers == h100, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(values_come_from_presets_plugins_and_keys) {
  struct Case {
    Words line;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {{"plan", "--model", "llama-3"}, "llama-3-8b"},
      {{"--backend", ""}, "cpu"},
      {{"run.toml", "--backend", "au"}, "auto"},
      {{"plan", "--estimator", "trans"}, "transformer"},
      {{"plan", "--estimator", "llama,trans"}, "llama,transformer"},
      {{"plan", "--for", "pyt"}, "pytorch"},
      {{"train", "--set", "train.micro"}, "train.micro_batch="},
      {{"train", "--set", "train.precision", "=", ""}, "bf16"},
      {{"train", "--set", "data.special_tokens", "=", "f"}, "false"},
      {{"train", "--set", "train.backend", "=", "c"}, "cpu"},
      {{"sweep", "--over", "data.seq"}, "data.seq_len="},
      {{"verify", "--only", "MEM-001,MEM-EX"}, "MEM-001,MEM-EXACT-001"},
      {{"plugins", "check", "--explain", "E-0"}, "E-014"},
      {{"plugins", "info", "lla"}, "llama"},
      {{"plugins", "new", "x", "--kind", "="}, "estimator"},
      {{"plugins", "new", "x", "--family", "gem"}, "gemma"},
      {{"chat", "my-model", "--chat-template", "chat"}, "chatml"},
      {{"train", "--resume", "=", ""}, "auto"},
      {{"eval", "x", "--on-error", "sk"}, "skip"},
      {{"plan", "--from", "deep"}, "deepspeed:"},
      {{"completion", ""}, "fish"},
  };
  std::vector<Words> lines;
  for (const Case& c : cases) lines.push_back(c.line);
  const std::vector<Words> answers = complete_all(lines);
  for (std::size_t i = 0; i < cases.size(); ++i)
    BOOST_TEST(contains(answers[i], cases[i].expected), cases[i].line[0] << ": no " << cases[i].expected);
}

BOOST_AUTO_TEST_CASE(files_and_folders_are_completed) {
  TemporaryDirectory tmp;
  tmp.write("run one.toml", "");
  tmp.write("folder/job.yaml", "");
  const Words answers = complete({"plan", "run"}, tmp.path());
  BOOST_TEST(answers == Words{"run one.toml"}, boost::test_tools::per_element());
  BOOST_TEST(contains(complete({"plan", "--html", "=", "run"}, tmp.path()), "run one.toml"));
  BOOST_TEST(
      contains(complete({"plan", "--from", "axolotl", ":", "folder/"}, tmp.path()), "folder/job.yaml"));
  BOOST_TEST(contains(complete({"train", "--set", "data.train", "=", "fol"}, tmp.path()), "folder"));
  // A folder is expected: no file is offered.
  BOOST_TEST(complete({"plan", "--plugin-path", ""}, tmp.path()) == Words{"folder"},
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(completion_never_prints_an_error) {
  for (const Words& line :
       {Words{"plan", "--plugin-path", "missing", "--backend", ""}, Words{"tarin", "--ba"},
        Words{"plan", "--no-such=", ""}, Words{"plan", "--set", "no.such=", ""}, Words{"-"},
        Words{"plugins", "check", "x", "y", "z", ""}, Words{"--"}, Words{"=", "="}})
    complete(line);
  const Outcome none = run_program({"complete"});
  BOOST_TEST(none.code == 0);
  BOOST_TEST(none.err == "");
}

BOOST_AUTO_TEST_CASE(an_unknown_shell_gets_one_message) {
  const Outcome r = run_program({"completion", "fisch"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(
      has(r.err, "no completion for the shell 'fisch'; did you mean 'fish'? (expected bash, zsh or fish)"),
      r.err);
  BOOST_TEST(run_program({"completion"}).code == 2);
}

BOOST_AUTO_TEST_CASE(the_scripts_of_other_shells_are_valid) {
  TemporaryDirectory tmp;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome script = run_program({"completion", shell});
    BOOST_TEST(script.code == 0);
    BOOST_TEST(has(script.out, "_trainhost"));
    if (!have(shell)) {
      BOOST_TEST_MESSAGE("skipped: no " << shell);
      continue;
    }
    tmp.write(shell, script.out);
    RunOptions o;
    o.program = shell;
    const Outcome r = run_program({"-n", (tmp.path() / shell).string()}, o);
    BOOST_TEST(r.code == 0, shell << ": " << r.err);
  }
}

// Words match what is typed; files match what follows "--model=", which compset moves away.
BOOST_AUTO_TEST_CASE(zsh_adds_words_before_files) {
  if (!have("zsh")) {
    BOOST_TEST_MESSAGE("skipped: no zsh");
    return;
  }
  TemporaryDirectory tmp;
  tmp.write("_trainhost", run_program({"completion", "zsh"}).out);
  RunOptions o;
  o.program = "zsh";
  const Outcome r = run_program(
      {"-fc",
       "compdef() { :; }; compadd() { print -r -- words $plain; }; compset() { print -r -- prefix $2; }; "
       "_files() { print files; }; words=($1 plan --model=llama-3); CURRENT=3; source $2; _trainhost",
       "test", program(), (tmp.path() / "_trainhost").string()},
      o);
  const auto words = r.out.find("words --model=llama-3-"), prefix = r.out.find("prefix --model="),
             files = r.out.find("files");
  BOOST_TEST((words < prefix && prefix < files && files != r.out.npos), r.out << r.err);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(help_and_version)

BOOST_AUTO_TEST_CASE(help_prints_what_the_option_prints) {
  for (const Words& command : all_commands()) {
    Words words = command;
    words.insert(words.begin(), "help");
    const Outcome r = run_program(words);
    BOOST_TEST(r.code == 0, r.err);
    BOOST_TEST(r.out == help_of(command));
  }
  BOOST_TEST(run_program({"help"}).out == help_of({}));
  const Outcome unknown = run_program({"help", "plugins", "chek"});
  BOOST_TEST(unknown.code == 2);
  BOOST_TEST(has(unknown.err, "no command 'plugins chek'; did you mean 'check'?"), unknown.err);
}

BOOST_AUTO_TEST_CASE(version_is_printed_in_three_ways) {
  const std::string version = run_program({"--version"}).out;
  BOOST_TEST(has(version, "trainhost "));
  BOOST_TEST(run_program({"-V"}).out == version);
  BOOST_TEST(run_program({"version"}).out == version);
}

BOOST_AUTO_TEST_SUITE_END()
