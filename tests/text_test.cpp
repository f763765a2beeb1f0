// Three rules for texts of this repository.
// 1. A comment or a document names only files that exist. 2. Documents, the public headers and the string
// literals of core, tools and plugins use none of the phrases in tests/forbidden_phrases.txt. 3. The tests
// that the table of docs/reliability.md lists are run by ctest. Reads the sources as text. Does not check
// grammar, nor names of functions.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace fs = std::filesystem;

namespace {

/// Names with an ending of a source file that are no files of this repository.
const std::set<std::string, std::less<>> kForeignFiles = {
    // other projects, libraries, the system
    "convert_hf_to_gguf.py",
    "convert_lora_to_gguf.py",
    // scripts of users, which --from reads
    "train.py",
    "sft.py",
    "llm.c",
    "cblas.h",
    "cuda.h",
    "nvml.h",
    "math.h",
    "string.h",
    "stdint.h",
    "stddef.h",
    "stdio.h",
    "unistd.h",
    "elf.h",
    "linux/sched.h",
    "xxhash.h",
    "docs/b200/b200_release_v1.2_summary.json",
    // what readers of the tutorials write
    "weights.cpp",
    "convo.c",
    "convo.cpp",
    "acme.cpp",
    "plugins/convo.so",
    "convo/src/lib.rs",
    "kept.hpp",
    "mine/kernels.hpp",
    // patterns, and tests that have no source file of their own
    "sdk/abi/v1.N.txt",
    "tests/sdk/frozen/vM.N",
    "tools/gpu/quick",
};

/// Folders at the top of the repository. A path that begins with one of them must exist.
constexpr std::string_view kTop[] = {"core", "docs", "plugins", "sdk", "tests", "tools"};

constexpr std::string_view kSourceEndings[] = {".cpp", ".hpp", ".h",  ".c",  ".cu",    ".cuh",
                                               ".inc", ".py",  ".md", ".rs", ".cmake", ".sh"};

bool ends_with_any(std::string_view s, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view e) { return s.ends_with(e); });
}

bool is_c_like(std::string_view path) {
  return ends_with_any(path, {".cpp", ".hpp", ".h", ".c", ".cu", ".cuh", ".inc", ".rs"});
}

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A piece of text and the line on which it begins.
struct Piece {
  std::string text;
  std::size_t line;
};

std::size_t line_of(std::string_view text, std::size_t at) {
  return 1 + static_cast<std::size_t>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

/// Comments and string literals of C, C++, CUDA and Rust. Literals with nothing but space or comments between
/// them are one piece, as the compiler sees them.
struct CText {
  std::vector<Piece> comments, literals;
};

CText split_c(std::string_view s) {
  CText out;
  std::size_t line = 1;
  bool joined = false;  // the last token was a string literal
  std::size_t i = 0;
  const auto advance = [&](std::size_t to) {
    for (; i < to && i < s.size(); ++i) line += s[i] == '\n';
  };
  const auto literal = [&](std::string text, std::size_t at) {
    if (joined)
      out.literals.back().text += text;
    else
      out.literals.push_back({std::move(text), at});
    joined = true;
  };
  while (i < s.size()) {
    const std::size_t begin = line;
    if (s.substr(i, 2) == "//") {
      const std::size_t end = std::min(s.find('\n', i), s.size());
      out.comments.push_back({std::string(s.substr(i, end - i)), begin});
      advance(end);
    } else if (s.substr(i, 2) == "/*") {
      const std::size_t close = s.find("*/", i + 2), end = close == s.npos ? s.size() : close + 2;
      out.comments.push_back({std::string(s.substr(i, end - i)), begin});
      advance(end);
    } else if (s.substr(i, 2) == "R\"" && (i == 0 || !std::isalnum(static_cast<unsigned char>(s[i - 1])))) {
      const std::size_t open = std::min(s.find('(', i), s.size());
      const std::string close = ")" + std::string(s.substr(i + 2, open - i - 2)) + "\"";
      const std::size_t end = std::min(s.find(close, open), s.size());
      literal(std::string(s.substr(std::min(open + 1, s.size()), end - std::min(open + 1, end))), begin);
      advance(end + close.size());
    } else if (s[i] == '"') {
      std::string text;
      std::size_t j = i + 1;
      for (; j < s.size() && s[j] != '"' && s[j] != '\n'; ++j) {
        if (s[j] != '\\') {
          text += s[j];
          continue;
        }
        ++j;
        text += j < s.size() && s[j] == '"' ? '"' : ' ';  // \n and the like separate words
      }
      literal(std::move(text), begin);
      advance(j + 1);
    } else if (s[i] == '\'' && i + 2 < s.size() && (s[i + 1] == '\\' || s[i + 2] == '\'')) {
      std::size_t j = i + (s[i + 1] == '\\' ? 3 : 2);
      while (j < s.size() && s[j] != '\'' && s[j] != '\n') ++j;
      joined = false;
      advance(j + 1);
    } else {
      if (!std::isspace(static_cast<unsigned char>(s[i]))) joined = false;
      advance(i + 1);
    }
  }
  return out;
}

/// Comments that begin with # and last to the end of their line.
std::vector<Piece> hash_comments(std::string_view s) {
  std::vector<Piece> out;
  std::size_t line = 1;
  for (std::size_t i = 0; i < s.size(); ++line) {
    const std::size_t end = std::min(s.find('\n', i), s.size());
    const std::string_view text = s.substr(i, end - i);
    for (std::size_t at = text.find('#'); at != text.npos; at = text.find('#', at + 1))
      if (at == 0 || text[at - 1] == ' ') {
        out.push_back({std::string(text.substr(at)), line});
        break;
      }
    i = end + 1;
  }
  return out;
}

/// The files of the repository, by path from its root.
class Tree {
 public:
  explicit Tree(std::set<std::string> files) : files_(std::move(files)) {
    for (const std::string& f : files_) {
      for (std::size_t at = f.find('/'); at != f.npos; at = f.find('/', at + 1)) {
        suffixes_.insert(f.substr(at + 1));
        folders_.insert(f.substr(0, at));
      }
      suffixes_.insert(f);
    }
  }
  const std::set<std::string>& files() const { return files_; }
  bool has(const std::string& path) const { return files_.count(path) || folders_.count(path); }
  /// A file or folder of that path, or a file with any ending: "core/step/recompute".
  bool has_stem(const std::string& path) const { return has(path) || begins(files_, path + "."); }
  bool has_prefix(const std::string& prefix) const { return begins(files_, prefix); }
  bool has_suffix(const std::string& path) const { return suffixes_.count(path); }

 private:
  static bool begins(const std::set<std::string>& set, const std::string& prefix) {
    const auto at = set.lower_bound(prefix);
    return at != set.end() && at->starts_with(prefix);
  }
  std::set<std::string> files_, suffixes_, folders_;
};

bool is_path_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '/' || c == '-';
}

/// Is it a stand-in, as NAME in plugins/NAME/NAME_test.cpp?
bool placeholder(std::string_view part) {
  const std::string_view stem = part.substr(0, part.find('.'));
  if (part.find("NAME") != part.npos) return true;
  return stem.size() > 1 && !part.ends_with(".md") && std::all_of(stem.begin(), stem.end(), [](char c) {
           return std::isupper(static_cast<unsigned char>(c)) || c == '_';
         });
}

/// Names of files in `text` that do not exist. `from`: the file that holds the text.
std::vector<std::string> missing_files(const Tree& tree, const std::string& from, std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < text.size();) {
    if (!is_path_char(text[i])) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    while (i < text.size() && is_path_char(text[i])) ++i;
    std::string word(text.substr(begin, i - begin));
    const char before = begin ? text[begin - 1] : ' ', after = i < text.size() ? text[i] : ' ';
    const bool open = std::string_view("*{<$@").find(after) != std::string_view::npos;  // "ops_*": a prefix
    if (std::string_view("*}>$@~%:\\").find(before) != std::string_view::npos) continue;
    if (!open)
      while (!word.empty() && (word.back() == '.' || word.back() == '/' || word.back() == '-'))
        word.pop_back();
    if (word.find("//") != word.npos || word.starts_with("/")) continue;
    while (word.starts_with("./")) word.erase(0, 2);
    if (word.empty() || kForeignFiles.count(word)) continue;

    const std::string first = word.substr(0, word.find('/'));
    const bool from_top =
        first.size() < word.size() && std::find(std::begin(kTop), std::end(kTop), first) != std::end(kTop);
    if (from_top) {
      std::string prefix;  // up to a stand-in
      bool stand_in = false;
      for (std::size_t at = 0; at <= word.size() && !stand_in;) {
        const std::size_t end = std::min(word.find('/', at), word.size());
        std::string part = word.substr(at, end - at);
        stand_in = placeholder(part);
        if (!stand_in) prefix += part + (end < word.size() ? "/" : "");
        at = end + 1;
      }
      // Tests are named by their path below tests/, and a README of a folder by paths from there.
      const bool exists = tree.has_stem(word) || tree.has_stem("tests/" + word) || tree.has_suffix(word) ||
                          ((stand_in || open) && tree.has_prefix(prefix));
      if (!exists) out.push_back(word);
      continue;
    }
    const std::string_view name = std::string_view(word).substr(word.rfind('/') + 1);
    const auto ending =
        std::find_if(std::begin(kSourceEndings), std::end(kSourceEndings),
                     [&](std::string_view e) { return name.size() > e.size() && name.ends_with(e); });
    if (ending == std::end(kSourceEndings) || open) continue;
    if (placeholder(name)) continue;
    const std::string beside = (fs::path(from).parent_path() / word).lexically_normal().string();
    if (!tree.has(beside) && !tree.has_suffix(word)) out.push_back(word);
  }
  return out;
}

/// Targets of [text](target) that do not exist beside the document.
std::vector<std::string> dead_links(const Tree& tree, const std::string& from, std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = text.find("]("); at != text.npos; at = text.find("](", at + 1)) {
    const std::size_t end = std::min(text.find(')', at), text.size());
    std::string target(text.substr(at + 2, end - at - 2));
    target = target.substr(0, target.find('#'));
    if (target.empty() || target.find("://") != target.npos || target.find(' ') != target.npos) continue;
    std::string path = (fs::path(from).parent_path() / target).lexically_normal().string();
    if (path.ends_with("/")) path.pop_back();
    if (!tree.has(path)) out.push_back(target);
  }
  return out;
}

/// Text on one line for comparison: leading comment marks and line ends become one space. begin[i]: where
/// line i starts.
struct Flat {
  std::string text;
  std::vector<std::size_t> begin;
  std::size_t line(std::size_t at) const {
    return static_cast<std::size_t>(std::upper_bound(begin.begin(), begin.end(), at) - begin.begin());
  }
};

Flat flatten(std::string_view s) {
  Flat out;
  for (std::size_t i = 0; i <= s.size();) {
    const std::size_t end = std::min(s.find('\n', i), s.size());
    std::string_view line = s.substr(i, end - i);
    const std::size_t text = line.find_first_not_of(" \t/*#");
    line = text == line.npos ? std::string_view() : line.substr(text);
    out.begin.push_back(out.text.size());
    for (char c : line) {
      const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (lower != ' ' || out.text.empty() || out.text.back() != ' ') out.text += lower;
    }
    out.text += ' ';
    i = end + 1;
  }
  return out;
}

/// Where phrases of the list begin in a text, each as {phrase, offset}. Parts of names and of paths do not
/// count.
std::vector<Piece> phrases_in(const std::vector<std::string>& phrases, std::string_view text) {
  const auto part_of_name = [&](std::size_t at, std::size_t beyond) {
    const char c = text[at];
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '/' || c == '-' || c == '{' ||
           c == '}' ||  // {alive}: a tag of the interface
           (c == '.' && beyond < text.size() && std::isalnum(static_cast<unsigned char>(text[beyond])));
  };
  std::vector<Piece> out;
  for (const std::string& p : phrases)
    for (std::size_t at = text.find(p); at != text.npos; at = text.find(p, at + 1)) {
      const std::size_t end = at + p.size();
      if ((at == 0 || !part_of_name(at - 1, text.size())) &&
          (end >= text.size() || !part_of_name(end, end + 1)))
        out.push_back({p, at});
    }
  return out;
}

std::vector<std::string> read_phrases(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = std::min(text.find('\n', i), text.size());
    if (end > i && text[i] != '#') out.push_back(text.substr(i, end - i));
    i = end + 1;
  }
  return out;
}

/// Findings of one file, as "FILE:LINE: sentence".
std::vector<std::string> findings(const Tree& tree, const std::vector<std::string>& phrases,
                                  const std::string& file, const std::string& text) {
  std::vector<std::string> out;
  const auto at_line = [&](std::size_t line) { return file + ":" + std::to_string(line) + ": "; };
  const auto names = [&](const Piece& p) {
    for (const std::string& m : missing_files(tree, file, p.text))
      out.push_back(at_line(p.line) + "names " + m + ", which does not exist");
  };
  const auto words = [&](const Piece& p) {
    const Flat flat = flatten(p.text);
    for (const Piece& found : phrases_in(phrases, flat.text))
      out.push_back(at_line(p.line + flat.line(found.line) - 1) + "uses \"" + found.text + "\"");
  };
  if (file.ends_with(".md")) {
    std::size_t line = 1;
    for (std::size_t i = 0; i < text.size(); ++line) {
      const std::size_t end = std::min(text.find('\n', i), text.size());
      names({text.substr(i, end - i), line});
      i = end + 1;
    }
    for (const std::string& target : dead_links(tree, file, text))
      out.push_back(at_line(line_of(text, text.find("](" + target))) + "links to " + target +
                    ", which does not exist");
    words({text, 1});
  } else if (is_c_like(file)) {
    const CText c = split_c(text);
    for (const Piece& p : c.comments) names(p);
    const bool literals =
        (file.starts_with("core/") || file.starts_with("tools/") || file.starts_with("plugins/")) &&
        file != "core/data/stories_text.cpp";  // the words of the built-in text
    if (literals)
      for (const Piece& p : c.literals) words(p);
    if (file.starts_with("sdk/include/")) words({text, 1});
  } else if (ends_with_any(file, {".py", ".sh", ".cmake", "CMakeLists.txt"}) || text.starts_with("#!")) {
    for (const Piece& p : hash_comments(text)) names(p);
  }
  return out;
}

Tree repository(const fs::path& root) {
  std::set<std::string> files;
  for (const char* name :
       {"README.md", "CONTRIBUTING.md", "SECURITY.md", "CMakeLists.txt", "CMakePresets.json"})
    if (fs::exists(root / name)) files.insert(name);
  for (std::string_view top : kTop)
    for (const auto& e : fs::recursive_directory_iterator(root / top))
      if (e.is_regular_file()) {
        std::string path = e.path().lexically_relative(root).string();
        if (path.find("/__pycache__/") == path.npos) files.insert(std::move(path));
      }
  return Tree(std::move(files));
}

/// Names in backquotes in column 4 ("in CI") of the rows F1, F2, ... of a table.
std::set<std::string> tests_in_table(const std::string& document) {
  std::set<std::string> names;
  std::istringstream lines(document);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| F") || line.size() < 4 || !std::isdigit(static_cast<unsigned char>(line[3])))
      continue;
    std::istringstream cells(line);
    std::string cell;
    for (int column = 0; column <= 4; ++column) std::getline(cells, cell, '|');  // the first one is empty
    for (std::size_t at = 0; (at = cell.find('`', at)) != cell.npos;) {
      const std::size_t end = cell.find('`', at + 1);
      if (end == cell.npos) break;
      names.insert(cell.substr(at + 1, end - at - 1));
      at = end + 1;
    }
  }
  return names;
}

/// Whether a CMakeLists.txt has the name as a word: trainhost_test(NAME, APART NAME=suite, add_test(NAME
/// name.
bool is_registered(const std::string& test, const std::string& cmake) {
  for (std::size_t at = 0; (at = cmake.find(test, at)) != cmake.npos; ++at) {
    const char before = at > 0 ? cmake[at - 1] : ' ';
    const char after = at + test.size() < cmake.size() ? cmake[at + test.size()] : ' ';
    const bool begins = before == '(' || std::isspace(static_cast<unsigned char>(before));
    if (begins && (after == ')' || after == '=' || std::isspace(static_cast<unsigned char>(after))))
      return true;
  }
  return false;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(text)

BOOST_AUTO_TEST_CASE(comments_and_documents_name_existing_files_and_avoid_the_listed_phrases) {
  const fs::path root = TRAINHOST_SOURCE_DIR;
  const Tree tree = repository(root);
  const std::vector<std::string> phrases = read_phrases(read(root / "tests/forbidden_phrases.txt"));
  BOOST_TEST(tree.files().size() > 500u);
  BOOST_TEST(phrases.size() > 10u);
  for (const std::string& file : tree.files()) {
    if (file.starts_with("tests/golden/") || file.starts_with("tests/sdk/frozen/v")) continue;
    for (const std::string& f : findings(tree, phrases, file, read(root / file))) BOOST_ERROR(f);
  }
}

BOOST_AUTO_TEST_CASE(the_tests_of_the_reliability_table_are_registered) {
  const fs::path root = TRAINHOST_SOURCE_DIR;
  const Tree tree = repository(root);
  std::string cmake;
  for (const std::string& file : tree.files())
    if (file.starts_with("tests/") && file.ends_with("CMakeLists.txt")) cmake += read(root / file) + "\n";
  const std::set<std::string> tests = tests_in_table(read(root / "docs/reliability.md"));
  BOOST_TEST(tests.size() > 10u);
  for (const std::string& t : tests) BOOST_TEST(is_registered(t, cmake), t << " is no test of ctest");
  BOOST_TEST((tests_in_table("| F3 | a | `b` | `tools/x`, `c_test` | `d` |\n| row | a | b | `c` |\n") ==
              std::set<std::string>{"c_test", "tools/x"}));
  BOOST_TEST(is_registered("core/a_test", "trainhost_test(core/a_test\n"));
  BOOST_TEST(!is_registered("core/a_test", "trainhost_test(core/a_test_more SOURCES b/core/a_test)"));
}

BOOST_AUTO_TEST_CASE(a_missing_file_is_found_in_comments_and_documents) {
  const Tree tree(
      {"core/step/program.hpp", "core/step/README.md", "tests/core/step/program_test.cpp", "tools/dev"});
  const auto found = [&](const std::string& file, const std::string& text) {
    return findings(tree, {}, file, text).size();
  };
  BOOST_TEST(found("core/step/a.cpp", "// See core/step/place.cpp.\n") == 1u);
  BOOST_TEST(found("core/step/a.cpp", "/* place.cpp decides. */\n") == 1u);
  BOOST_TEST(found("core/step/a.cpp", "int x;  // as core/plan does\n") == 1u);
  BOOST_TEST(found("core/step/a.cpp", "// Equations: CONTRACTS.md.\n") == 1u);
  BOOST_TEST(found("core/step/README.md", "| `place.cpp` | offsets |\n") == 1u);
  BOOST_TEST(found("core/step/README.md", "[plan](../plan/README.md)\n") == 2u);  // as a name and as a link
  BOOST_TEST(found("tests/x.py", "x = 1  # like core/step/place.cpp\n") == 1u);
  BOOST_TEST(findings(tree, {}, "core/step/a.cpp", "\n\n// place.cpp\n").at(0) ==
             "core/step/a.cpp:3: names place.cpp, which does not exist");

  BOOST_TEST(found("core/step/a.cpp",
                   "// program.hpp, step/program.hpp, core/step, core/step/program, tools/dev.\n") == 0u);
  BOOST_TEST(found("core/step/a.cpp",
                   "// The test core/step/program_test; any core/step/prog*; plugins/NAME is yours.\n") ==
             1u);  // no folder plugins in this tree
  BOOST_TEST(found("core/step/a.cpp", "const char* s = \"core/step/place.cpp\";\n") == 0u);  // no comment
  BOOST_TEST(found("core/step/README.md", "[all](program.hpp) and https://example.com/place.cpp\n") == 0u);
}

BOOST_AUTO_TEST_CASE(a_listed_phrase_is_found_in_documents_headers_and_messages) {
  const Tree tree({"README.md"});
  const std::vector<std::string> phrases = {"made again", "hole"};
  const auto found = [&](const std::string& file, const std::string& text) {
    return findings(tree, phrases, file, text).size();
  };
  BOOST_TEST(found("README.md", "Layers are made\nagain.") == 1u);
  BOOST_TEST(found("sdk/include/trainhost/model.h", "/* norms are made\n * again */") == 1u);
  BOOST_TEST(found("core/step/a.cpp", "throw Error(\"layers are made \"  // split\n  \"again\");") == 1u);
  BOOST_TEST(found("tools/x/a.cpp", "auto s = R\"(A Hole in memory)\";") == 1u);
  BOOST_TEST(found("plugins/a.cu", "f(\"a hole\", \"a hole\");") == 2u);
  BOOST_TEST(findings(tree, phrases, "README.md", "a\nb hole").at(0) == "README.md:2: uses \"hole\"");

  BOOST_TEST(found("README.md", "A whole tests/hole_test.cpp and holed.") == 1u);  // the file, not the phrase
  BOOST_TEST(found("core/step/a.cpp", "// made again\nchar c = '\"'; int hole;") == 0u);
  BOOST_TEST(found("tests/a.cpp", "f(\"made again\");") == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
