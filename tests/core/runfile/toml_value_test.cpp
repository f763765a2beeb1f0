// Values of the command line are read as a TOML file reads them, also where the parser is not asked.
#include <boost/test/unit_test.hpp>

#include "core/base/error.hpp"
#include "core/runfile/toml_read.hpp"

using namespace trainhost;
using namespace trainhost::runfile;

namespace {

std::optional<Value> read_by_the_parser(const std::string& text) {
  try {
    return read_toml("x = " + text, "file").at(0).value;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(toml_value)

BOOST_AUTO_TEST_CASE(a_value_is_what_the_parser_reads) {
  for (const char* text : {"8",
                           "0",
                           "007",
                           "-8",
                           "1_000",
                           "2.5",
                           "1e-4",
                           "true",
                           "false",
                           "true # yes",
                           "truely",
                           "inf",
                           "nan",
                           "infinite",
                           "nanometer",
                           "fp8",
                           "24GiB",
                           "0x1F",
                           "2024",
                           "2024-01-01",
                           "org/Model-8B",
                           "/path/to a/file",
                           "a:b",
                           "expandable_segments:True",
                           "\"nf4\"",
                           "\"\"",
                           "\"",
                           "\"a\\tb\"",
                           "\"a\\qb\"",
                           "\"a\" # b",
                           "\"a\"b\"",
                           "\"caf\xC3\xA9\"",
                           "\"tab\there\"",
                           "'single'",
                           "[1, 2]",
                           "[\"a\", \"b\"]",
                           "{a = 1}",
                           "~",
                           "."}) {
    const std::optional<Value> ours = read_toml_value(text, {}), parsed = read_by_the_parser(text);
    BOOST_REQUIRE_EQUAL(ours.has_value(), parsed.has_value());
    if (!ours) continue;
    BOOST_TEST((ours->kind == parsed->kind), text);
    BOOST_TEST(ours->text == parsed->text, text);
    BOOST_TEST(ours->integer == parsed->integer, text);
    BOOST_TEST(ours->boolean == parsed->boolean, text);
    BOOST_TEST(ours->items.size() == parsed->items.size(), text);
    const bool both_nan = ours->number != ours->number && parsed->number != parsed->number;
    BOOST_TEST((both_nan || ours->number == parsed->number), text);
  }
}

BOOST_AUTO_TEST_SUITE_END()
