// Which commands of a script run, as far as its own variables tell (shell_words.hpp). Conditions are tests of
// texts and numbers; anything else is not known, and the branch stays.
#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include "core/framework_files/shell_words.hpp"

namespace trainhost::framework_files {
namespace {

/// nullopt: not known without running the script.
using Truth = std::optional<bool>;

/// An operand of a test with its variables; nullopt where one is not known or collects options.
std::optional<std::string> operand(const std::string& text, const Variables& variables) {
  for (const auto& [name, value] : variables)
    if (holds_options(value) && (text.find("$" + name) != text.npos || text.find("${" + name) != text.npos))
      return std::nullopt;
  std::string out = expanded(text, variables);
  if (out.find_first_of("$`") != out.npos) return std::nullopt;
  return out;
}

Truth compared(const std::string& a, const std::string& op, const std::string& b) {
  if (op == "=" || op == "==" || op == "!=") {
    if (b.find_first_of("*?[") != b.npos) return std::nullopt;  // a pattern
    return (a == b) == (op != "!=");
  }
  const auto number = [](const std::string& text, long& n) {
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), n);
    return failed == std::errc{} && end == text.data() + text.size();
  };
  long x = 0, y = 0;
  if (!number(a, x) || !number(b, y)) return std::nullopt;
  if (op == "-eq") return x == y;
  if (op == "-ne") return x != y;
  if (op == "-gt") return x > y;
  if (op == "-ge") return x >= y;
  if (op == "-lt") return x < y;
  if (op == "-le") return x <= y;
  return std::nullopt;
}

/// One command as a condition: [ ... ], [[ ... ]], true or false. Tests of files are not known.
Truth truth_of(std::vector<std::string> words, const Variables& variables) {
  if (words.empty()) return std::nullopt;
  if (words.front() == "!") {
    words.erase(words.begin());
    const Truth t = truth_of(std::move(words), variables);
    return t ? Truth(!*t) : t;
  }
  // "[[ a == b && c == d ]]" arrives as two commands, each with one of the brackets.
  if (words.front() == "[" || words.front() == "[[") words.erase(words.begin());
  if (!words.empty() && (words.back() == "]" || words.back() == "]]")) words.pop_back();
  if (!words.empty() && words.front() == "!") return truth_of(std::move(words), variables);
  std::vector<std::string> known;
  for (const std::string& word : words) {
    const auto text = operand(word, variables);
    if (!text) return std::nullopt;
    known.push_back(*text);
  }
  if (known.size() == 3) return compared(known[0], known[1], known[2]);
  if (known.size() == 2 && known[0] == "-z") return known[1].empty();
  if (known.size() == 2 && known[0] == "-n") return !known[1].empty();
  if (known.size() == 1 && (known[0] == "true" || known[0] == "false")) return known[0] == "true";
  return std::nullopt;
}

/// Commands from words[begin] to `end`, which are joined by &&, or by ||; anything else is not known.
Truth truth_of(const std::vector<Word>& words, std::size_t begin, std::size_t end,
               const Variables& variables) {
  std::vector<std::string> command;
  // One false command decides those joined by &&, one true command those joined by ||.
  const bool any = std::ranges::any_of(std::span(words).subspan(begin, end - begin), &Word::after_or);
  Truth all = !any;
  const auto finish = [&] {
    const Truth t = truth_of(std::exchange(command, {}), variables);
    if (t == any || all == any)
      all = any;
    else if (!t)
      all = std::nullopt;
  };
  for (std::size_t i = begin; i < end; ++i) {
    if (i > begin && words[i].begins_command) {
      if (!(any ? words[i].after_or : words[i].after_and)) return std::nullopt;
      finish();
    }
    command.push_back(words[i].text);
  }
  finish();
  return all;
}

}  // namespace

std::vector<Word> executed(std::vector<Word> words) {
  struct Branch {
    bool runs, decided;  // decided: no later branch runs
  };
  std::vector<Branch> branches;
  std::vector<Word> out;
  Variables variables;
  bool skips_command = false;
  const auto runs = [&] { return std::ranges::all_of(branches, &Branch::runs); };
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    const auto begin_next = [&] {
      if (i + 1 < words.size()) words[i + 1].begins_command = true;
    };
    if (words[i].begins_command) {
      skips_command = skips_command && words[i].after_and;
      if (text == "if" || (text == "elif" && !branches.empty())) {
        std::size_t then = i + 1;
        while (then < words.size() && !(words[then].begins_command && words[then].text == "then")) ++then;
        if (then < words.size()) {
          if (text == "if") branches.push_back({true, false});
          Branch& b = branches.back();
          const Truth t = b.decided ? Truth(false) : truth_of(words, i + 1, then, variables);
          b = {t != false, b.decided || t == true};
          i = then;
          begin_next();
          continue;
        }
      }
      if (text == "else" && !branches.empty()) {
        branches.back() = {!branches.back().decided, true};
        begin_next();
        continue;
      }
      if (text == "fi" && !branches.empty()) {
        branches.pop_back();
        continue;
      }
      if (text == "[" || text == "[[") {
        std::size_t end = i + 1;
        while (end < words.size() && !words[end].begins_command) ++end;
        skips_command = skips_command || truth_of(words, i, end, variables) == false;
      }
    }
    if (!runs() || skips_command) continue;
    assign(words, i, variables);
    out.push_back(words[i]);
  }
  return out;
}

}  // namespace trainhost::framework_files
