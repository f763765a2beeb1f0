// Mutated text is rejected with an Error or accepted; it never crashes, hangs or throws another exception.
// The seed is fixed, so failures repeat; the sanitizer build detects memory errors.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>
#include <sstream>

#include "core/base/error.hpp"
#include "core/runfile/run_config.hpp"
#include "tests/core/runfile/folder.hpp"

using namespace trainhost;
using namespace trainhost::runfile;

namespace {

using Random = std::mt19937_64;

/// The words of a line, and some that a line cannot contain.
std::vector<std::string> words(const std::string& line, std::vector<std::string> more) {
  std::istringstream in(line);
  for (std::string word; in >> word;) more.push_back(word);
  return more;
}

std::size_t below(Random& r, std::size_t n) { return n ? r() % n : 0; }

/// One to four mutations: bytes changed, removed, duplicated, or replaced by text that is difficult to parse.
std::string mutant(const std::string& text, const std::vector<std::string>& tricks, Random& r) {
  std::string out = text;
  for (std::size_t i = 1 + below(r, 4); i > 0; --i) {
    const std::size_t at = below(r, out.size()), n = std::min(out.size() - at, 1 + below(r, 12));
    switch (below(r, 5)) {
      case 0:
        if (!out.empty()) out[at] = static_cast<char>(r());
        break;
      case 1:
        out.erase(at, n);
        break;
      case 2:
        out.insert(at, out.substr(at, n));
        break;
      case 3:
        out.insert(at, tricks[below(r, tricks.size())]);
        break;
      default:
        out.replace(at, n, tricks[below(r, tricks.size())]);
    }
  }
  return out;
}

/// Runs `read` on n mutants. Each must be accepted, or rejected by an Error with exit code 2 and printable
/// text.
template <class Read>
void check_mutants(const std::string& text, const std::vector<std::string>& tricks, std::size_t n,
                   Read read) {
  Random r(20240607);
  std::size_t accepted = 0, rejected = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::string broken = mutant(text, tricks, r);
    try {
      read(broken);
      ++accepted;
    } catch (const Error& e) {
      ++rejected;
      BOOST_REQUIRE_MESSAGE(e.code() == Exit::kUsage, "mutant " << i << ": " << e.full());
      BOOST_REQUIRE_MESSAGE(e.full().find('\x1b') == std::string::npos,
                            "mutant " << i << " prints a control character");
    } catch (const std::exception& e) {
      BOOST_REQUIRE_MESSAGE(false, "mutant " << i << " threw '" << e.what() << "':\n" << broken);
    }
  }
  BOOST_TEST(accepted > n / 200);  // both outcomes occur
  BOOST_TEST(rejected > n / 100);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(mutations)

BOOST_AUTO_TEST_CASE(mutated_run_files_are_rejected_or_accepted) {
  const auto tricks = words(
      R"([ ] [[ { } " ' """ ''' = . , # \ \u \uD800 - + _ 0x 1e inf nan 1979-05-27 00:00 true a.b.c 1__0 99999999999999999999)",
      {"\n", "\r", "[plugin.x]\n", "\x1b", std::string(1, '\0'), "\xEF\xBB\xBF", "\xC3\xA9", "\xE2\x80\xAE"});
  const std::string more =
      "[model]\nvocab_size = 300\nrope_scaling = {rope_type = \"linear\", factor = 2.0}\n[plugin.x]\nk = "
      "'v'\nt = \"\"\"a\nb\"\"\"\n";
  const auto base = std::filesystem::temp_directory_path();
  check_mutants(
      "[train]\nsteps = 10\nseed = 3\nprecision = \"fp32\"\n[optimizer]\nlr = 1e-3\nbetas = [0.9, 0.95]\n" +
          more,
      tricks, 30000, [&](const std::string& text) { parse_run(text, "m.toml", base); });
}

/// Text without an error, or with the error that parse_run() throws among all of them.
BOOST_AUTO_TEST_CASE(all_errors_of_mutated_run_files_contain_the_first) {
  const auto tricks =
      words(R"(train. model. "a" 'b' -1 0 1e9 true [] ["x"] 1979-05-27 nan steps rope_type)",
            {"\n", "\n# ", "#", " ", "0", "[lora]\n", "[data]\n", "[trian]\n", "[optimizer]\n"});
  const auto base = std::filesystem::temp_directory_path();
  check_mutants(
      "[train]\nsteps = 10\nfreeze = \"model.embed*\"\n[optimizer]\nlr = 1e-3\nmin_lr = 1e-4\n[model]\n"
      "hidden_size = 96\nnum_attention_heads = 3\nrope_scaling = {rope_type = \"linear\", factor = 2.0}\n"
      "[plan]\nkv_page = 1\n[parallel]\nexpert = 1\ntensor = 2\n# A comment, in which a mutation changes "
      "nothing unless it adds a line.\n",
      tricks, 10000, [&](const std::string& text) {
        const std::vector<RunFileError> all = check_run(text, "m.toml", {}, base).errors;
        try {
          parse_run(text, "m.toml", base);
          BOOST_REQUIRE_MESSAGE(all.empty(), text << "\n" << (all.empty() ? "" : all.front().error.full()));
        } catch (const Error& first) {
          BOOST_REQUIRE_MESSAGE(
              std::ranges::any_of(all, [&](const RunFileError& e) { return e.error.full() == first.full(); }),
              text << "\n"
                   << first.full());
          throw;
        }
      });
}

BOOST_AUTO_TEST_CASE(mutated_files_from_init_are_rejected_or_accepted) {
  const auto base = std::filesystem::temp_directory_path();
  check_mutants(init_text(), {"\n", "\n# ", "#", "\"", "= ", "[", "x"}, 4000,
                [&](const std::string& text) { parse_run(text, "m.toml", base); });
}

BOOST_AUTO_TEST_CASE(mutated_configs_are_rejected_or_accepted) {
  const auto tricks = words(
      R"({ } [ ] " , : null true 1e999 -1 0.5 18446744073709551615 9223372036854775807 \ \u0000 \ud800 "hidden_size":8,)",
      {"\n", std::string(1, '\0'), "\x1b"});
  const std::string config = testing::small_config(
      "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
      "\"high_freq_factor\": 4.0, "
      "\"original_max_position_embeddings\": 8192},\n\"layer_types\": [\"full_attention\", "
      "\"full_attention\"]",
      "qwen3");
  check_mutants(config, tricks, 30000,
                [](const std::string& text) { (void)model_config_json(parse_model_config(text, "m.json")); });
}

BOOST_AUTO_TEST_CASE(mutated_overrides_are_rejected_or_accepted) {
  const auto tricks = words("[ ] \" ' {a=1} 1e9 - . = plugin. train.", {"\n", "\x1b", "\xFF"});
  check_mutants("train.seed=12", tricks, 20000, [](const std::string& text) {
    const auto equals = text.find('=');
    parse_run("", "m.toml", "/",
              {{text.substr(0, equals), equals == text.npos ? "" : text.substr(equals + 1)}});
  });
}

BOOST_AUTO_TEST_CASE(text_that_would_exhaust_the_parser_is_rejected) {
  const auto rejected = [](const std::string& text, const std::string& why) {
    BOOST_CHECK_EXCEPTION(parse_run(text, "m.toml", "/"), Error, [&](const Error& e) {
      BOOST_TEST_INFO(e.full());
      return e.code() == Exit::kUsage && e.full().find(why) != std::string::npos;
    });
  };
  const auto repeated = [](const char* s, std::size_t n) {
    std::string out;
    while (n--) out += s;
    return out;
  };
  rejected("x" + repeated(".x", 200000) + " = 1\n", "dotted key");
  rejected("[x" + repeated(".x", 200000) + "]\n", "dotted key");
  rejected("x" + repeated(".\"x\"", 100000) + " = 1\n", "dotted key");
  rejected("x" + repeated(" . x", 100000) + " = 1\n", "dotted key");
  for (std::size_t levels : {65, 100000})
    for (const char* open : {"[", "{a="})
      rejected("x = " + repeated(open, levels), "brackets are nested more than 64 levels deep");
  rejected("x = " + repeated("[", 64) + repeated("]", 64), "unknown key 'x'");
  rejected("x = [\"\"\"a\"\"\"\", {" + repeated("a.", 1000) + "a = 1}]\n",
           "dotted key");  // after a string that ends in its own quote
  rejected("x = ['''a''''', {" + repeated("a.", 1000) + "a = 1}]\n", "dotted key");
  rejected(repeated("#", 2u << 20), "at most");
  const std::string deep = repeated("{\"a\":", 100000);
  BOOST_CHECK_THROW(parse_model_config(deep, "m.json"), Error);
  BOOST_CHECK_THROW(parse_model_config(repeated("[", 100000), "m.json"), Error);
}

BOOST_AUTO_TEST_SUITE_END()
