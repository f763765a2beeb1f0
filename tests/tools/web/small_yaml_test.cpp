// tools/web: the YAML parser of the browser gives what yaml-cpp gives, in the same reader.
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <random>

// Both are compiled once more here, under other names.
#define YAML small_yaml
#define read_yaml read_small_yaml
#define check_json check_json_again
#include "core/framework_files/yaml_read.cpp"
#include "tools/web/small_yaml.cpp"
#undef check_json
#undef read_yaml
#undef YAML

namespace trainhost::framework_files {
std::vector<runfile::Entry> read_yaml(const std::string& text, const std::string& name,
                                      std::vector<Where>* repeated);  // by yaml-cpp
}

using namespace trainhost;
using framework_files::read_small_yaml;
using framework_files::read_yaml;

namespace {

std::string whole(const runfile::Value& v) {
  if (v.kind != runfile::Value::Kind::kList)
    return v.kind == runfile::Value::Kind::kText ? '"' + v.text + '"' : runfile::written(v);
  std::string out = "[";
  for (const runfile::Value& item : v.items) out += whole(item) + ",";
  return out + "]";
}

/// "key@LINE:COLUMN=value@LINE:COLUMN;" for each entry, or "error". Positions of null are not compared:
/// nothing is there.
std::string shown(decltype(read_yaml) reader, const std::string& text) {
  std::string out;
  try {
    for (const runfile::Entry& e : reader(text, "f", nullptr)) {
      out += fmt::format("{}@{}:{}={}", e.key, e.key_where.line, e.key_where.column, whole(e.value));
      if (e.value.kind != runfile::Value::Kind::kNull)
        out += fmt::format("@{}:{}", e.value.where.line, e.value.where.column);
      out += ";";
    }
  } catch (const Error&) {
    return "error";
  }
  return out;
}

void same(const std::string& text) {
  BOOST_TEST_INFO(text);
  BOOST_TEST(shown(read_small_yaml, text) == shown(read_yaml, text));
}

/// Values of random kinds, written in random styles.
class RandomText {
 public:
  explicit RandomText(unsigned seed) : random_(seed) {}

  std::string document() { return (one_in(4) ? "# a comment\n---\n" : "") + map(0, 3); }

 private:
  bool one_in(unsigned n) { return random_() % n == 0; }
  std::string end() { return one_in(6) ? "  # note: x\n" : one_in(8) ? "\n\n" : "\n"; }

  std::string scalar() {
    static const char* const kWords[] = {
        "1",     "-2",   "1e-4",   "0.5",    "true",      "no",   "~",       "null",           "word",
        "a b c", "x:y",  "a#b",    "'q: 1'", "\"d # e\"", "''",   "'it''s'", "\"\\u00e9\\n\"", "http://a.b/c",
        "-x",    "?y",   ":z",     "[]",     "{}",        "\"\"", "Llama-3", "${N}",           "1_000",
        "0x10",  "a, b", "!!str 5"};
    return kWords[random_() % std::size(kWords)];
  }
  std::string key() {
    return fmt::format(fmt::runtime(one_in(6) ? "\"k {}\"" : one_in(6) ? "'k{}'" : "k{}"), ++keys_);
  }

  std::string flow(int depth) {
    if (depth == 0 || one_in(2)) {
      std::string s = scalar();
      return s.find(',') == s.npos && s.find('?') == s.npos && s.find('$') == s.npos ? s : "w";
    }
    const bool list = one_in(2);
    std::string out = list ? "[" : "{";
    for (unsigned i = 0, n = random_() % 4; i < n; ++i)
      out += (i ? one_in(4) ? ",\n      " : ", " : "") + (list ? "" : key() + ": ") + flow(depth - 1);
    return out + (list ? "]" : "}");
  }

  /// After a key or a dash in column `column`.
  std::string value(int column, int depth, bool of_key) {
    const std::string pad(static_cast<std::size_t>(column) + 2, ' ');
    switch (depth > 0 ? random_() % 8 : random_() % 4) {
      case 0:
        return one_in(3) ? end() : " " + flow(2) + end();
      case 1:
        return fmt::format(" {}{}\n{}line one\n{}line two\n\n{}{}three: 3\n", one_in(2) ? "|" : ">",
                           one_in(3)   ? "-"
                           : one_in(3) ? "+"
                                       : "",
                           pad, pad, pad, one_in(3) ? "  " : "");
      case 2:
        return one_in(2) ? " two words\n" + pad + "go on" + end() : " \"two\n\n" + pad + "go on\"" + end();
      case 3:
      case 4:
        return " " + scalar() + end();
      case 5:
        return of_key ? end() + list(one_in(2) ? column : column + 2, depth - 1)
                      : end() + map(column + 2, depth - 1);
      default:
        return (one_in(4) ? fmt::format(" &a{}", ++keys_) : "") + end() + map(column + 2, depth - 1);
    }
  }
  std::string map(int column, int depth) {
    std::string out;
    for (unsigned i = 0, n = 1 + random_() % 4; i < n; ++i)
      out += std::string(static_cast<std::size_t>(column), ' ') + key() + ":" + value(column, depth, true);
    return out;
  }
  std::string list(int column, int depth) {
    std::string out;
    for (unsigned i = 0, n = 1 + random_() % 3; i < n; ++i) {
      out += std::string(static_cast<std::size_t>(column), ' ') + "-";
      out += one_in(3) ? " " + map(column + 2, depth).substr(static_cast<std::size_t>(column) + 2)
                       : value(column, depth, false);
    }
    return out;
  }

  std::mt19937 random_;
  int keys_ = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(small_yaml)

BOOST_AUTO_TEST_CASE(files_of_frameworks_are_read_alike) {
  std::size_t files = 0;
  for (const auto& f : std::filesystem::directory_iterator(TRAINHOST_FIXTURES)) {
    if (f.path().extension() != ".yaml" && f.path().extension() != ".json") continue;
    std::ifstream in(f.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    BOOST_TEST_INFO(f.path());
    BOOST_TEST(shown(read_small_yaml, text) != "error");
    same(text);
    ++files;
  }
  BOOST_TEST(files > 5);
}

BOOST_AUTO_TEST_CASE(forms_of_configuration_files_are_read_alike) {
  for (const char* text :
       {"a: 1\nb:\n- x\n- y: 1\n  z: 2\n-\n  - 3\n  - - 4\n    - 5\nc: d\n",
        "base: &b\n  x: 1\n  y: [1, 2]\nother:\n  <<: *b\n  z: *b\nlist: [*b, *b]\n",
        "- &k x: 1\n",
        "a: &x\n  - 1\nb: *x\n",
        "a: !!int '3'\nb: ! 4\nc: !!str\n",
        "a: |\n  one\n   two\n\n  three\n\nb: >-\n  one\n  two\n\n   three\n  four\nc: |2\n    x\n   y\n",
        "a: >\n\n  one\n  two\n\n\nb: |+\n  x\n\n\nc: 1\n",
        "%YAML 1.2\n---\na: 1\n",
        "---\na: 1\n---\nb: 2\n",
        "--- # c\na: 1\n...\n",
        "a: 'one\n  two'\nb: \"x \\\n  y\"\nc: \"a\\tb\\x41\\u00e9\\/\"\n",
        "a: b\r\nc:\r\n  d: e\r\n",
        "\xef\xbb\xbf"
        "a: 1\n",
        "{a: 1, 'b': {c: [1, {d: e}, [f]]}, \"g\":2}",
        "{\"a\":\n  {\"b\": [1,\n 2] # c\n}}",
        "a: [b: 1, c]\n",
        "a: [1, 2,]\n",
        "a:   # c\n  b: 1 # d\n",
        "a: b # c\nd: e#f\ng: 'h'  # i\n",
        "a:\nb:\n",
        "a: -1\nb: - 1\n",
        "a: b: c\n",
        "a: 'b' c\n",
        "a: [1\nb: 2\n",
        "a: {b\n",
        "a\n",
        "\"a\": 1\n'b': 2\n",
        "a: *x\n",
        "\ta: 1\n",
        "a:\n\tb: 1\n",
        "a: 1\n  b: 2\n",
        "a:\n    b: 1\n  c: 2\n",
        "a: one\n  two\n  three\nb: 1\n",
        "a: one\n  two: 3\n",
        "[1, 2]",
        "",
        "# only\n",
        "a: @x\n",
        "a: `x\n",
        "a: %x\n",
        "a: x %y\n",
        "a: - b\n",
        "a:b\n",
        "a: https://x/y:1\n",
        "a : 1\nb  :  2\n",
        "a: [x y, \"z\" ]\nb: { c: d }\n",
        "a: [ ]\nb: { }\n",
        "a: 1\na: 2\n",
        "model:\n  _component_: torchtune.models.llama3\n  # c\n\n  x: ~\n",
        "a: |\n  x\n # c\nb: 1\n",
        "a: \xc3\xa9\nb: \"\xc3\xa9\" # c\n",
        "a: [\"\xc3\xa9\", b]\n"})
    same(text);
}

BOOST_AUTO_TEST_CASE(random_texts_are_read_alike) {
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    const std::string text = RandomText(seed).document();
    BOOST_TEST_INFO(text);
    BOOST_TEST_REQUIRE(shown(read_small_yaml, text) == shown(read_yaml, text));
  }
}

/// Damaged texts: what both accept has the same values, and nothing runs out of its bounds.
BOOST_AUTO_TEST_CASE(damaged_texts_are_errors_or_read_alike) {
  std::mt19937 random(1);
  std::size_t accepted = 0, only_small = 0, only_other = 0;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    std::string text = RandomText(seed).document();
    constexpr std::string_view kBytes = " \n\t:-#[]{}'\"&*|>,x0\\";
    text[random() % text.size()] = kBytes[random() % kBytes.size()];
    if (seed % 3 == 0) text.resize(random() % text.size()), text += "x\n";
    // yaml-cpp drops empty lines before a comment that ends a block, and takes other characters for a tag.
    if (text.find("+\n") != text.npos || text.find("!!") != text.npos) continue;
    const std::string small = shown(read_small_yaml, text), other = shown(read_yaml, text);
    only_small += small != "error" && other == "error", only_other += small == "error" && other != "error";
    if (small == "error" || other == "error") continue;
    ++accepted;
    BOOST_TEST_INFO(text);
    BOOST_TEST_REQUIRE(small == other);
  }
  BOOST_TEST_MESSAGE(accepted << " accepted by both, " << only_small << " by one, " << only_other
                              << " by the other");
  BOOST_TEST(accepted > 1000);
}

/// yaml-cpp reads the first as "b " and the second as a key.
BOOST_AUTO_TEST_CASE(an_open_quotation_and_a_key_with_a_question_mark_are_refused) {
  BOOST_TEST(shown(read_small_yaml, "a: \"b\n") == "error");
  BOOST_TEST(shown(read_small_yaml, "? a\n: 1\n") == "error");
}

BOOST_AUTO_TEST_CASE(deep_and_wide_texts_are_refused) {
  const std::string deep = "a: " + std::string(5000, '[') + std::string(5000, ']');
  BOOST_CHECK_THROW(read_small_yaml(deep, "f"), Error);
  std::string dashes;
  for (int i = 0; i < 5000; ++i) dashes += "- ";
  BOOST_CHECK_THROW(read_small_yaml("a:\n  " + dashes + "1\n", "f"), Error);
  std::string bomb = "a0: &a0 [1, 2]\n";
  for (int i = 1; i < 30; ++i) bomb += fmt::format("a{0}: &a{0} [*a{1}, *a{1}]\n", i, i - 1);
  BOOST_CHECK_THROW(read_small_yaml(bomb, "f"), Error);
}

BOOST_AUTO_TEST_SUITE_END()
