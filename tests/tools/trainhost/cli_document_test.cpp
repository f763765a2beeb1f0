// docs/cli.md against the program: every command and every option that --help lists is in the document.
#include <boost/test/unit_test.hpp>
#include <set>

#include "tests/support/command_help.hpp"

using namespace trainhost::test;

BOOST_AUTO_TEST_SUITE(cli_document)

BOOST_AUTO_TEST_CASE(every_option_of_every_command_is_in_the_document) {
  std::ifstream in(TRAINHOST_SOURCE_DIR "/docs/cli.md");
  const std::string document{std::istreambuf_iterator<char>(in), {}};
  for (const std::vector<std::string>& command : all_commands()) {
    const std::string name = command.back();
    BOOST_TEST(document.find(name) != document.npos, name);
    const std::set<std::string> options = options_in(help_of(command));
    BOOST_TEST(!options.empty(), name);
    for (const std::string& option : options)
      BOOST_TEST(document.find(option) != document.npos, name << " " << option << " is not in docs/cli.md");
  }
}

BOOST_AUTO_TEST_SUITE_END()
