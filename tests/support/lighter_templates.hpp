// Part of the precompiled header of the tests: assertions and test cases of Boost.Test and values of
// nlohmann::json with less code to compile at each use. Results and messages are the same without it; the
// definitions are in boost_main.cpp.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace trainhost::test {

// Remembers the position, which Boost.Test prints as the last checkpoint if the program crashes after it.
void reached(const char* file, std::size_t line);

// Counts an evaluated assertion and prints it if it failed; throws after a failure at the level of
// BOOST_TEST_REQUIRE.
void report(const boost::test_tools::assertion_result& result, const char* assertion, const char* file,
            std::size_t line, boost::test_tools::tt_detail::tool_level level);

// Not inlined: one function per type of expression instead of this code at each of some 8,000 assertions.
template <class Expression>
[[gnu::noinline]] void check(const Expression& expression, const char* assertion, const char* file,
                             std::size_t line, boost::test_tools::tt_detail::tool_level level) {
  report(expression.evaluate(), assertion, file, line, level);
}

}  // namespace trainhost::test

// Replaces the macro behind BOOST_TEST, BOOST_TEST_REQUIRE and BOOST_TEST_WARN with one argument.
#undef BOOST_TEST_TOOL_ET_IMPL
#define BOOST_TEST_TOOL_ET_IMPL(P, level)                                                          \
  (::trainhost::test::reached(__FILE__, __LINE__),                                                 \
   ::trainhost::test::check(BOOST_TEST_BUILD_ASSERTION(P), BOOST_STRINGIZE(P), __FILE__, __LINE__, \
                            ::boost::test_tools::tt_detail::level))

// Each test case has four checkpoints around its fixture and its body; their position says as much as their
// text.
#undef BOOST_TEST_CHECKPOINT
#define BOOST_TEST_CHECKPOINT(M) ::trainhost::test::reached(__FILE__, __LINE__)

extern template class nlohmann::basic_json<>;
namespace nlohmann::detail {
extern template class parser<json, iterator_input_adapter<std::string::const_iterator>>;
extern template class lexer<json, iterator_input_adapter<std::string::const_iterator>>;
extern template class parser<json, iterator_input_adapter<const char*>>;
extern template class lexer<json, iterator_input_adapter<const char*>>;
extern template class parser<json, input_stream_adapter>;
extern template class lexer<json, input_stream_adapter>;
extern template class json_sax_dom_parser<json>;
extern template class json_sax_dom_callback_parser<json>;
extern template class serializer<json>;
}  // namespace nlohmann::detail
