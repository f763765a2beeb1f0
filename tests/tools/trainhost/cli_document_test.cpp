// docs/cli.md against the program: every command and every option that --help lists is in the document.
#include <boost/test/unit_test.hpp>
#include <set>

#include "tests/support/process.hpp"

using namespace trainhost::test;

namespace {

std::set<std::string> options_in(const std::string& help) {
  std::set<std::string> out;
  for (std::size_t at = help.find("--"); at != help.npos; at = help.find("--", at + 2)) {
    const std::size_t end = help.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at);
    if (end - at > 2) out.insert(help.substr(at, end - at));
  }
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cli_document)

BOOST_AUTO_TEST_CASE(every_option_of_every_command_is_in_the_document) {
  std::ifstream in(TRAINHOST_SOURCE_DIR "/docs/cli.md");
  const std::string document{std::istreambuf_iterator<char>(in), {}};
  const std::vector<std::vector<std::string>> commands = {{"train"},
                                                          {"plan"},
                                                          {"sweep"},
                                                          {"search"},
                                                          {"verify"},
                                                          {"generate"},
                                                          {"chat"},
                                                          {"eval"},
                                                          {"merge"},
                                                          {"data", "info"},
                                                          {"data", "tokenize"},
                                                          {"data", "stats"},
                                                          {"data", "show"},
                                                          {"plugins", "list"},
                                                          {"plugins", "new"},
                                                          {"plugins", "info"},
                                                          {"plugins", "check"},
                                                          {"models"},
                                                          {"devices"},
                                                          {"init"}};
  for (std::vector<std::string> command : commands) {
    const std::string name = command.back();
    BOOST_TEST(document.find(name) != document.npos, name);
    command.push_back("--help");
    const Outcome r = run_program(command);
    BOOST_TEST(r.code == 0);
    const std::set<std::string> options = options_in(r.out);
    BOOST_TEST(options.size() > 1u, name);
    for (const std::string& option : options)
      BOOST_TEST(document.find(option) != document.npos, name << " " << option << " is not in docs/cli.md");
  }
}

BOOST_AUTO_TEST_SUITE_END()
