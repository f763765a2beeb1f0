// Part of the precompiled header of the tests: assertions and test cases of Boost.Test and values of
// nlohmann::json with less code to compile at each use. Results and messages are the same without it; the
// definitions are in boost_main.cpp.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

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

// The same for an assertion with a message, or with a modifier such as tolerance().
void report(const boost::test_tools::assertion_result& result, const char* assertion,
            const boost::unit_test::lazy_ostream& message, const char* file, std::size_t line,
            boost::test_tools::tt_detail::tool_level level, boost::test_tools::tt_detail::check_type type);

/// An assertion that is not evaluated yet; `assertion << message` is the assertion, and with a modifier such
/// as tolerance() in place of the message what Boost makes of it. Boost's own type has a list, which each
/// `<<` copies.
template <class Expression>
struct Assertion {
  const Expression& expression;
  operator boost::test_tools::assertion_result() const {
    return expression.evaluate(true);
  }  // without values
};
template <class Expression>
Assertion<Expression> assertion(const Expression& e) {
  return {e};
}
template <class T>
constexpr bool is_tolerance = false;
template <class T>
constexpr bool is_tolerance<boost::test_tools::tt_detail::tolerance_manip<T>> = true;
template <class Expression, class T>
auto operator<<(const Assertion<Expression>& a, const T& argument) {
  using boost::test_tools::tt_detail::assertion_evaluate;
  using Modified = decltype(assertion_evaluate(a.expression) << argument);
  if constexpr (is_tolerance<T> || std::is_same_v<Modified, boost::test_tools::assertion_result>)
    return assertion_evaluate(a.expression) << argument;
  else
    return a;
}

// By value: a conversion to the result is not const in Boost.
template <class Assertion>
[[gnu::noinline]] void check_with(Assertion assertion, const char* text,
                                  const boost::unit_test::lazy_ostream& message, const char* file,
                                  std::size_t line, boost::test_tools::tt_detail::tool_level level,
                                  boost::test_tools::tt_detail::check_type type) {
  const boost::test_tools::assertion_result result = assertion.operator boost::test_tools::assertion_result();
  report(result, text, message, file, line, level, type);
}
inline void check_with(const boost::test_tools::assertion_result& result, const char* text,
                       const boost::unit_test::lazy_ostream& message, const char* file, std::size_t line,
                       boost::test_tools::tt_detail::tool_level level,
                       boost::test_tools::tt_detail::check_type type) {
  report(result, text, message, file, line, level, type);
}

}  // namespace trainhost::test

// Replaces the macro behind BOOST_TEST, BOOST_TEST_REQUIRE and BOOST_TEST_WARN with one argument.
#undef BOOST_TEST_TOOL_ET_IMPL
#define BOOST_TEST_TOOL_ET_IMPL(P, level)                                                          \
  (::trainhost::test::reached(__FILE__, __LINE__),                                                 \
   ::trainhost::test::check(BOOST_TEST_BUILD_ASSERTION(P), BOOST_STRINGIZE(P), __FILE__, __LINE__, \
                            ::boost::test_tools::tt_detail::level))

// Likewise with two arguments.
#undef BOOST_TEST_TOOL_ET_IMPL_EX
#define BOOST_TEST_TOOL_ET_IMPL_EX(P, level, arg)                                                    \
  (::trainhost::test::reached(__FILE__, __LINE__),                                                   \
   ::trainhost::test::check_with(::trainhost::test::assertion(BOOST_TEST_BUILD_ASSERTION(P)) << arg, \
                                 BOOST_STRINGIZE(P), BOOST_TEST_LAZY_MSG(arg), __FILE__, __LINE__,   \
                                 ::boost::test_tools::tt_detail::level,                              \
                                 ::boost::test_tools::tt_detail::assertion_type() << arg))

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
