// See shell_words.hpp. Words and variables; which branches run: shell_branches.cpp.
#include "core/framework_files/shell_words.hpp"

#include <algorithm>
#include <array>

namespace trainhost::framework_files {
namespace {

/// Words as a shell separates them, without quotes. A word in quotes that contains options is split again, as
/// an unquoted $NAME would be.
class WordReader {
 public:
  WordReader(const std::string& text, const std::string& name) : text_(text), name_(name) {}

  std::vector<Word> read() {
    while (at_ < text_.size()) step();
    end_word();
    return std::move(words_);
  }

 private:
  void step() {
    // One character per call. Quotes join what they contain to the word around them; a backslash takes the
    // next character as it is, or joins two lines.
    const char c = text_[at_];
    if (c == '$' && quote_ != '\'' && text_.compare(at_, 2, "$(") == 0) {
      if (const std::size_t end = end_of_brackets(text_, at_ + 1); end != text_.npos) {
        for (; at_ + 1 < end; ++at_) add(text_[at_] == '\n' ? (new_line(), ' ') : text_[at_]);
        add(')');
        ++at_;
        return;
      }
    }
    if (quote_) {
      if (c == quote_)
        quote_ = 0;
      else if (quote_ == '"' && c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n')
        new_line_in_quotes();
      else
        add(c);
    } else if (c == '\\' && at_ + 1 < text_.size()) {
      ++at_;
      if (text_[at_] == '\n')
        new_line(), end_word();
      else
        add(text_[at_]);
    } else if (c == '"' || c == '\'') {
      quote_ = c;
      open();
    } else if (c == '#' && !in_word_) {
      while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
    } else if (c == '\n' || c == ';' || c == '&' || c == '|') {
      end_word();
      // && and || also join a command on the next line.
      if (c != '\n') {
        const bool twice = at_ > 0 && text_[at_ - 1] == c;
        and_ = c == '&' && twice, or_ = c == '|' && twice, pipe_ = c == '|';
      }
      if (parentheses_ == 0) command_ = true;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      end_word();
    } else if (c == '(' || c == ')') {
      // A pattern of `case`: "-m | --model )". It is no command, and what follows it is one.
      if (c == ')' && parentheses_ == 0) {
        end_word();
        for (bool alternative = true; alternative && !words_.empty();) {
          while (!words_.empty() && !words_.back().begins_command) words_.pop_back();
          alternative = !words_.empty() && words_.back().after_pipe;
          if (!words_.empty()) words_.pop_back();
        }
        command_ = true;
      }
      // NAME=( WORD... ): the words inside begin no commands, also on lines of their own.
      parentheses_ += c == '(' ? 1 : parentheses_ > 0 ? -1 : 0;
      if (c == '(') add(c);
      end_word();
    } else {
      add(c);
    }
    if (text_[at_] == '\n' && c == '\n') new_line();
    ++at_;
  }

  void open() {
    if (in_word_) return;
    in_word_ = true;
    word_ = {"",
             {name_, line_, static_cast<std::uint32_t>(at_ - line_start_ + 1)},
             command_,
             command_ && and_,
             command_ && pipe_,
             command_ && or_};
    command_ = and_ = pipe_ = or_ = false;
  }
  void add(char c) { open(), word_.text += c; }
  void end_word() {
    if (in_word_) words_.push_back(std::move(word_));
    in_word_ = false;
  }
  void new_line() { ++line_, line_start_ = at_ + 1; }
  /// A backslash at the end of a line in double quotes: the line goes on. Options stay separate words.
  void new_line_in_quotes() { add(' '), ++at_, new_line(); }

  const std::string &text_, &name_;
  std::vector<Word> words_;
  Word word_;
  std::size_t at_ = 0, line_start_ = 0;
  std::uint32_t line_ = 1;
  int parentheses_ = 0;
  char quote_ = 0;
  bool in_word_ = false, command_ = true, and_ = false, pipe_ = false, or_ = false;
};

/// Removes `export` and the like, with their options, from before assignments.
std::vector<Word> without_declarations(std::vector<Word> words) {
  constexpr std::array kDeclarations{"export", "declare", "local", "readonly", "typeset"};
  std::vector<Word> out;
  bool declares = false;
  for (Word& w : words) {
    if (w.begins_command) declares = std::ranges::find(kDeclarations, w.text) != kDeclarations.end();
    if (declares && (w.begins_command || w.text.starts_with('-'))) continue;
    const std::size_t equals = w.text.find('=');
    if (declares && equals != 0 && equals != w.text.npos && is_name_char(w.text[equals - 1]))
      w.begins_command = true;
    out.push_back(std::move(w));
  }
  return out;
}

}  // namespace

std::vector<Word> shell_words(const std::string& text, const std::string& name) {
  return without_declarations(WordReader(text, name).read());
}

std::size_t end_of_brackets(std::string_view text, std::size_t open) {
  const char opening = text[open], closing = opening == '(' ? ')' : '}';
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == opening) ++depth;
    if (text[i] == closing && --depth == 0) return i + 1;
  }
  return text.npos;
}

bool holds_options(const std::string& value) {
  return value.starts_with("--") || value.find(" --") != value.npos || value.find("\n--") != value.npos ||
         value.find("\t--") != value.npos;
}

std::string expanded(const std::string& text, const Variables& variables, int depth) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$' || depth == kMaxExpansions) {
      out += text[i];
      continue;
    }
    if (text.compare(i, 3, "$((") == 0) {
      const std::size_t end = end_of_brackets(text, i + 1);
      const bool arithmetic = end != text.npos && text[end - 2] == ')';
      const std::string value =
          arithmetic ? evaluated(text.substr(i + 3, end - i - 5), variables, depth + 1) : "";
      if (!value.empty()) {
        out += value;
        i = end - 1;
        continue;
      }
    }
    // $(expr 16 / 2), whose asterisk is escaped.
    if (constexpr std::string_view kExpr = "$(expr "; text.compare(i, kExpr.size(), kExpr) == 0) {
      const std::size_t end = end_of_brackets(text, i + 1);
      std::string inner = end == text.npos ? "" : text.substr(i + kExpr.size(), end - 1 - i - kExpr.size());
      std::erase_if(inner, [](char c) { return c == '\\' || c == '\'' || c == '"'; });
      if (const std::string value = evaluated(inner, variables, depth + 1); !value.empty()) {
        out += value;
        i = end - 1;
        continue;
      }
    }
    const bool braces = i + 1 < text.size() && text[i + 1] == '{';
    const std::size_t begin = i + 1 + braces;
    std::size_t end = begin;
    while (end < text.size() && is_name_char(text[end])) ++end;
    const std::size_t behind = braces ? end_of_brackets(text, i + 1) : end;
    const auto known = variables.find(text.substr(begin, end - begin));
    if (behind == text.npos || end == begin) {
      out += text[i];
      continue;
    }
    const std::string rest = text.substr(end, behind - braces - end);  // "", "[@]" or ":-default"
    const std::size_t other = rest.starts_with(":-") || rest.starts_with(":=") ? 2
                              : rest.starts_with('-') || rest.starts_with('=') ? 1
                                                                               : 0;
    if (known != variables.end())
      out += holds_options(known->second) ? "" : expanded(known->second, variables, depth + 1);
    else if (other)
      out += expanded(rest.substr(other), variables, depth + 1);
    else
      out += text.substr(i, behind - i);
    i = behind - 1;
  }
  return out;
}

void assign(const std::vector<Word>& words, std::size_t i, Variables& variables) {
  const std::string& text = words[i].text;
  const std::size_t equals = text.find('=');
  if (!words[i].begins_command || equals == text.npos || equals == 0) return;
  std::string name = text.substr(0, equals), value = text.substr(equals + 1);
  // NAME+=VALUE, and NAME+=(WORD...).
  const bool append = name.ends_with('+');
  if (append) name.pop_back();
  // The reader has separated the parenthesis from its words.
  if (value == "(") {
    value.clear();
    while (i + 1 < words.size() && !words[i + 1].begins_command) value += words[++i].text + " ";
  }
  // NAME=${NAME:-VALUE}: what the script or, not known here, the environment has set, else VALUE. A number
  // that is computed from the variable itself, NAME=$((NAME + 1)), has its value of now.
  const std::string own = "${" + name;
  const bool defaulted = value.starts_with(own) && value.ends_with("}") && value.size() > own.size() + 1 &&
                         std::string_view(":-=").find(value[own.size()]) != std::string_view::npos;
  // NAME=$NAME.json too.
  const auto refers_to_itself = [&] {
    for (std::size_t at = 0; (at = value.find('$', at)) != value.npos; ++at) {
      const std::size_t begin = at + 1 + (value.compare(at + 1, 1, "{") == 0), end = begin + name.size();
      if (value.compare(begin, name.size(), name) == 0 && (end >= value.size() || !is_name_char(value[end])))
        return true;
    }
    return false;
  };
  if (defaulted || value.find("$((") != value.npos || refers_to_itself()) value = expanded(value, variables);
  if (refers_to_itself()) {  // what the environment has is not known
    variables.erase(name);
    return;
  }
  // NAME=$1, where a script reads its own options: it has none here, so an earlier value stays.
  const bool positional = value.size() == 2 && value[0] == '$' && value[1] >= '1' && value[1] <= '9';
  if (positional && variables.contains(name)) return;
  variables[name] = append ? variables[name] + " " + value : value;
}

Variables assignments(const std::vector<Word>& words) {
  Variables out;
  for (std::size_t i = 0; i < words.size(); ++i) assign(words, i, out);
  return out;
}

}  // namespace trainhost::framework_files
