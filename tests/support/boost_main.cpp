// The one main() of every Boost.Test executable, and what lighter_templates.hpp leaves out of the others.
#define BOOST_TEST_MODULE trainhost
#include <cstdlib>
#include <cstring>

#include "tests/support/lighter_templates.hpp"

namespace trainhost::test {

using boost::unit_test::const_string;

void reached(const char* file, std::size_t line) {
  boost::unit_test::unit_test_log.set_checkpoint(const_string(file, std::strlen(file)), line);
}

void report(const boost::test_tools::assertion_result& result, const char* assertion, const char* file,
            std::size_t line, boost::test_tools::tt_detail::tool_level level) {
  using namespace boost::test_tools::tt_detail;
  report_assertion(result, BOOST_TEST_LAZY_MSG(const_string(assertion, std::strlen(assertion))),
                   const_string(file, std::strlen(file)), line, level, CHECK_BUILT_ASSERTION, 0);
}

namespace {
/// Some machines set a core type for OpenBLAS for all programs. The program under test reports one that is
/// too old for the CPU, which no expected text contains. With forced kernels the core type belongs to them.
struct NoCoreTypeOfTheMachine {
  NoCoreTypeOfTheMachine() {
    if (!std::getenv("TRAINHOST_CPU_ISA")) ::unsetenv("OPENBLAS_CORETYPE");
  }
};
BOOST_TEST_GLOBAL_FIXTURE(NoCoreTypeOfTheMachine);
}  // namespace

}  // namespace trainhost::test

template class nlohmann::basic_json<>;
namespace nlohmann::detail {
template class parser<json, iterator_input_adapter<std::string::const_iterator>>;
template class lexer<json, iterator_input_adapter<std::string::const_iterator>>;
template class parser<json, iterator_input_adapter<const char*>>;
template class lexer<json, iterator_input_adapter<const char*>>;
template class parser<json, input_stream_adapter>;
template class lexer<json, input_stream_adapter>;
template class json_sax_dom_parser<json>;
template class json_sax_dom_callback_parser<json>;
template class serializer<json>;
}  // namespace nlohmann::detail
