// The text of manifests: what is read, and which texts never reach the TOML parser.
#include <boost/test/unit_test.hpp>

#include "core/plugin/plugin_manifest.hpp"
#include "core/plugin/rejection.hpp"

namespace tp = trainhost::plugin;

namespace {

const std::string kGood = "id = \"a-1\"\nversion = \"1.0\"\nkind = \"trainer\"\n";

std::string rejection(const std::string& toml) {
  try {
    tp::parse_manifest(toml);
    return "ok";
  } catch (const tp::Rejection& why) {
    BOOST_TEST(why.stage() == "manifest");
    return why.code() + ": " + why.what();
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(manifest)

BOOST_AUTO_TEST_CASE(every_key_is_read) {
  tp::Manifest m = tp::parse_manifest(
      kGood +
      "summary = \"sch\u00f6n\"  # a comment with \u00fc\nfamilies = [\"llama\", \"qwen2\"]\n"
      "options = [\"x\"]\npriority = -3\nnewer_key = {a = 1}\n"
      "abi = '1.4'\ninterfaces = ['a/1']\nmodes = ['full', 'lora']\ndtypes = ['bf16']\ndevice = 'cuda'\ncpu "
      "= ['avx2']\n"
      "requires = ['libcuda.so.1']\n");
  BOOST_TEST(m.abi == "1.4");
  BOOST_TEST(m.device == "cuda");
  BOOST_TEST(m.interfaces == std::vector<std::string>{"a/1"}, boost::test_tools::per_element());
  BOOST_TEST(m.modes == (std::vector<std::string>{"full", "lora"}), boost::test_tools::per_element());
  BOOST_TEST(m.dtypes == std::vector<std::string>{"bf16"}, boost::test_tools::per_element());
  BOOST_TEST(m.cpu == std::vector<std::string>{"avx2"}, boost::test_tools::per_element());
  BOOST_TEST(m.libraries == std::vector<std::string>{"libcuda.so.1"}, boost::test_tools::per_element());
  BOOST_TEST(m.id == "a-1");
  BOOST_TEST(m.version == "1.0");
  BOOST_TEST(m.kind == "trainer");
  BOOST_TEST(m.summary == "sch\u00f6n");
  BOOST_TEST(m.families == (std::vector<std::string>{"llama", "qwen2"}), boost::test_tools::per_element());
  BOOST_TEST(m.options == std::vector<std::string>{"x"}, boost::test_tools::per_element());
  BOOST_TEST(m.priority == -3);
}

BOOST_AUTO_TEST_CASE(missing_keys_are_named) {
  BOOST_TEST(rejection("") == "missing_key: its manifest has no 'id'");
  BOOST_TEST(rejection("id = \"a\"") == "missing_key: its manifest has no 'version'");
  BOOST_TEST(rejection("id = \"a\"\nversion = \"1\"") == "missing_key: its manifest has no 'kind'");
}

BOOST_AUTO_TEST_CASE(wrong_values_are_named) {
  auto with = [](const std::string& line) { return rejection(kGood + line); };
  BOOST_TEST(rejection("id = 3") == "bad_value: 'id' in its manifest is not a string");
  BOOST_TEST(rejection("id = ''") == "bad_value: 'id' in its manifest is empty");
  BOOST_TEST(rejection("id = 'A b'\nversion='1'")
                 .starts_with("bad_value: the id 'A b' in its manifest may contain only"));
  BOOST_TEST(rejection("id = '../x'").starts_with("bad_value: the id '../x'"));
  BOOST_TEST(rejection("id = '" + std::string(65, 'a') + "'") ==
             "bad_value: 'id' in its manifest is longer than 64 bytes");
  BOOST_TEST(rejection("id='a'\nversion='1'\nkind='pony'") ==
             "bad_value: the kind 'pony' in its manifest is not estimator, trainer or communicator");
  BOOST_TEST(with("families = \"llama\"").starts_with("bad_value: 'families' in its manifest is not a list"));
  BOOST_TEST(with("options = [1]") ==
             "bad_value: 'options' in its manifest is not a list of strings of 1 to 64 bytes");
  for (const char* version : {"1", "one", "1.", "1.0.0", "-1.0", "1.x", "99999999999.0"})
    BOOST_TEST(with(std::string("abi = '") + version + "'") ==
               std::string("bad_value: 'abi' in its manifest is '") + version +
                   "'; expected a version like \"1.1\"");
  BOOST_TEST(with("abi = 1.0") == "bad_value: 'abi' in its manifest is not a string");
  BOOST_TEST(with("abi = '2.0'") == "abi: it requires plugin interface 2.0; this program supports 1.1");
  BOOST_TEST(with("device = 'CUDA 12'") ==
             "bad_value: the device 'CUDA 12' in its manifest may contain only a-z 0-9 . _ -");
  for (const char* key : {"interfaces", "modes", "dtypes", "cpu", "requires"})
    BOOST_TEST(with(std::string(key) + " = 'x'") ==
               std::string("bad_value: '") + key + "' in its manifest is not a list of at most 256 strings");
  BOOST_TEST(
      with("requires = ['../evil.so']") ==
      "bad_value: 'requires' in its manifest contains '../evil.so': names must not contain spaces, / or \\");
  BOOST_TEST(with("cpu = ['avx2 fma']") ==
             "bad_value: 'cpu' in its manifest contains 'avx2 fma': names must not contain spaces, / or \\");
  BOOST_TEST(with("priority = 'high'").starts_with("bad_value: 'priority'"));
  BOOST_TEST(with("priority = 1001").starts_with("bad_value: 'priority'"));
  BOOST_TEST(with("summary = \"\\u001b[31m\"") ==
             "bad_value: 'summary' in its manifest contains control characters");
}

BOOST_AUTO_TEST_CASE(hostile_text_does_not_reach_the_parser) {
  BOOST_TEST(rejection(std::string("id = \"a\"\0id", 11))
                 .starts_with("not_text: its manifest contains control characters"));
  BOOST_TEST(rejection("id = \"\xff\"") == "not_text: its manifest is not UTF-8 text");
  BOOST_TEST(rejection("\u00fc = 1") ==
             "not_toml: line 1 of its manifest has a non-ASCII character outside a string");
  BOOST_TEST(rejection("\n\na" + std::string(2000, '.') + " = 1") ==
             "not_toml: line 3 of its manifest is nested too deeply");
  BOOST_TEST(rejection("a = " + std::string(30000, '[')) ==
             "not_toml: line 1 of its manifest is nested too deeply");
  BOOST_TEST(rejection(std::string(70000, '#')) ==
             "too_big: its manifest has 70000 bytes; at most 65536 are allowed");
}

BOOST_AUTO_TEST_CASE(strings_and_comments_do_not_count_as_nesting) {
  std::string brackets(100, '['), dots(100, '.');
  BOOST_TEST(rejection(kGood + "a = \"" + brackets + "\\\"" + dots + "\"\nb = '" + brackets + "'\n# " +
                       brackets + dots) == "ok");
  BOOST_TEST(rejection(kGood + "c = \"\"\"\n" + brackets + "\n\"\" " + dots + "\"\"\"\nd = '''" + dots +
                       "'''") == "ok");
}

BOOST_AUTO_TEST_CASE(parser_errors_name_the_line) {
  BOOST_TEST(
      rejection("id = \"a\"\nversion = ").starts_with("not_toml: line 2 of its manifest is not TOML: "));
  BOOST_TEST(rejection("id = \"a\"\nid = \"b\"").starts_with("not_toml: line 2"));
  BOOST_TEST(rejection("x = \"unterminated").starts_with("not_toml: line 1"));
}

BOOST_AUTO_TEST_SUITE_END()
