// $((EXPRESSION)) and $(expr EXPRESSION) of a shell script (shell_words.hpp): whole numbers, variables of the
// script, + - * / % and parentheses. Anything else is not known.
#include <charconv>
#include <cstdint>
#include <optional>

#include "core/framework_files/shell_words.hpp"

namespace trainhost::framework_files {
namespace {

using Number = std::optional<std::int64_t>;

/// Recursive descent over one expression; a failure anywhere makes the whole result unknown.
class Expression {
 public:
  Expression(const std::string& text, const Variables& variables, int depth)
      : text_(text), variables_(variables), depth_(depth) {}

  Number value() {
    const Number n = sum();
    skip_spaces();
    return at_ == text_.size() ? n : std::nullopt;
  }

 private:
  Number sum() {
    Number left = product();
    for (char op; left && (op = next_of("+-"));) left = combined(*left, op, product());
    return left;
  }
  Number product() {
    Number left = factor();
    for (char op; left && (op = next_of("*/%"));) left = combined(*left, op, factor());
    return left;
  }
  Number factor() {
    if (depth_ == kMaxExpansions) return std::nullopt;
    if (next_of("(")) {
      ++depth_;
      const Number n = sum();
      --depth_;
      return next_of(")") ? n : std::nullopt;
    }
    skip_spaces();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    const std::string word = text_.substr(begin, at_ - begin);
    // A bare name is a variable, whose value is an expression again.
    if (const auto known = variables_.find(word); known != variables_.end())
      return Expression(expanded(known->second, variables_, depth_ + 1), variables_, depth_ + 1).value();
    std::int64_t n = 0;
    const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), n);
    return failed == std::errc{} && end == word.data() + word.size() ? Number(n) : std::nullopt;
  }

  static Number combined(std::int64_t a, char op, const Number& b) {
    std::int64_t n = 0;
    if (!b || ((op == '/' || op == '%') && (*b == 0 || (*b == -1 && a == INT64_MIN)))) return std::nullopt;
    const bool overflows = op == '+'   ? __builtin_add_overflow(a, *b, &n)
                           : op == '-' ? __builtin_sub_overflow(a, *b, &n)
                           : op == '*' ? __builtin_mul_overflow(a, *b, &n)
                                       : (n = op == '/' ? a / *b : a % *b, false);
    return overflows ? std::nullopt : Number(n);
  }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
  }
  /// The next character if it is one of `operators`; else 0.
  char next_of(std::string_view operators) {
    skip_spaces();
    return at_ < text_.size() && operators.find(text_[at_]) != operators.npos ? text_[at_++] : '\0';
  }

  const std::string text_;
  const Variables& variables_;
  std::size_t at_ = 0;
  int depth_;
};

}  // namespace

std::string evaluated(const std::string& expression, const Variables& variables, int depth) {
  const Number n = Expression(expanded(expression, variables, depth), variables, depth).value();
  return n ? std::to_string(*n) : "";
}

}  // namespace trainhost::framework_files
