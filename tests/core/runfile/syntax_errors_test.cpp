// Run files that are no TOML: the position, what is wrong and what to write instead, in our words. Mistakes
// in the values: mistakes_test.cpp.
#include <boost/test/unit_test.hpp>

#include "core/base/error.hpp"
#include "core/runfile/run_config.hpp"
#include "tests/core/runfile/folder.hpp"

using namespace trainhost;

namespace {

struct SyntaxError {
  const char *toml, *remedy;
};
// clang-format off
const SyntaxError kSyntaxErrors[] = {
    {"[train]\nprecision = bf16  # fast\n", "write strings in quotes: precision = \"bf16\""},
    {"[data]\ntrain = ~/text.txt\n", "write strings in quotes: train = \"~/text.txt\""},
    {"[data]\ntrain = ./text.txt\n", "write strings in quotes: train = \"./text.txt\""},
    {"[memory]\nbudget = 24GiB\n", "write strings in quotes: budget = \"24GiB\""},
    {"[train]\nrecompute = none\n", "write strings in quotes: recompute = \"none\""},
    {"[data]\ntrain = my \"own\" text.txt\n", "write the whole value in quotes"},
    {"[model]\ntie_word_embeddings = True\n", "write true or false"},
    {"[model]\ntie_word_embeddings = yes\n", "write true or false"},
    {"[train]\nsteps =  # later\n", "write a value after '=', or remove steps"},
    {"[train]\n= 5\n", "write a key before '='"},
    {"[train]\nsteps == 5\n", "write one '=': steps = VALUE"},
    {"[train]\nsteps 100\n", "write '=' between key and value: steps = VALUE"},
    {"[train]\nsteps: 100\n", "write '=' between key and value: steps = VALUE"},
    {"[train]\nsteps = 5 seed = 3\n", "write one KEY = VALUE per line"},
    {"[train]\nsteps = 1,000\n", "write numbers without separators, lists in []"},
    {"[train]\nsteps = 01\n", "remove the leading zeros"},
    {"[train]\nsteps = 1e\n", "write a number as 8, 0.5 or 3e-4"},
    {"[optimizer]\nlr = .1\n", "write digits on both sides of the decimal point"},
    {"[optimizer]\nlr = 1.\n", "write digits on both sides of the decimal point"},
    {"[optimizer]\nbetas = [0.9 0.95]\n", "separate the items of a list by commas, and end it with ]"},
    {"[model]\nrope_scaling = {factor = 2\n", "separate the entries of { } by commas, and end them with } in the same line"},
    {"[data]\ntrain = C:\\data\\a.txt\n", "write strings in quotes: train = 'C:\\data\\a.txt'"},
    {"[data]\ntrain = \"a\" \"b\"\n", "write several strings as a list: train = [\"A\", \"B\"]"},
    {"[data]\ntrain = \"a\x01\"\n", "remove it, or write it as \\u0000 with its code"},
    {"[data]\ntrain = \"a.txt\",\n", "remove the ','"},
    {"[train]\nsteps = 5;\n", "remove the ';'"},
    {"[optimizer]\nbetas = [0.9, 0.95],\n", "remove the ','"},
    {"[train] steps = 5\n", "write the table header alone in its line: [train]"},
    {"[data]\ntrain = [\n \"a.txt\"\n \"b.txt\"\n]\n", "separate the items of a list by commas, and end it with ]"},
    {"[optimizer]\nbetas = [0.9, 0.95\nlr = 1\n", "separate the items of a list by commas, and end it with ]"},
    {"[optimizer]\nbetas = [0.9,, 0.95]\n", "remove one of them"},
    {"[data]\ntrain = [\n a.txt,\n]\n", "write strings in quotes: [\"A\", \"B\"]"},
    {"[model]\nrope_scaling = { rope_type = linear }\n", "write strings in quotes: { KEY = \"VALUE\" }"},
    {"[model]\nrope_scaling = { \"factor\": 2 }\n", "write '=' between key and value: { KEY = VALUE }"},
    {"[train]\n// steps\n", "begin a comment with #"},
    {"[train]\nsteps = 5\n[train]\nseed = 1\n", "move the keys of both tables [train] into one"},
    {"[train]]\nsteps = 5\n", "write the table header alone in its line: [train]"},
    {"[]\n", "write the name of a table: [train]"},
    {"[train]\n!\n", "each line is a [TABLE], KEY = VALUE or a # comment; `trainhost init` writes an example"},
};
// clang-format on

}  // namespace

BOOST_AUTO_TEST_SUITE(syntax_errors)

BOOST_AUTO_TEST_CASE(every_syntax_error_has_a_position_and_a_remedy) {
  const testing::Folder folder;
  for (const SyntaxError& e : kSyntaxErrors) {
    std::string message = "accepted";
    try {
      runfile::parse_run(e.toml, "run.toml", folder.path(), {});
    } catch (const Error& error) {
      BOOST_TEST((error.code() == Exit::kUsage), e.toml);
      message = error.full();
    }
    BOOST_TEST(message.starts_with("run.toml:"), e.toml << "\n  actual: " << message);
    BOOST_TEST(message.ends_with(" (" + std::string(e.remedy) + ")"),
               e.toml << "\n  actual:   " << message << "\n  expected: " << e.remedy);
  }
}

BOOST_AUTO_TEST_SUITE_END()
