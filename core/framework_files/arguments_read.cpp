// See arguments_read.hpp. Three passes over the text: words with positions, assignments of variables,
// options. The syntax is the part of a shell's that start scripts use; a script is never run, and what only a
// shell could know (the output of a command, the environment) stays as it is written.
#include "core/framework_files/arguments_read.hpp"

#include <charconv>
#include <map>

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::Value;

struct Word {
  std::string text;
  Where where;
  bool begins_command = false;  // first word after a line end or a separator
};

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

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
      if (parentheses_ == 0) command_ = true;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      end_word();
    } else if ((c == '(' || c == ')') && !expansion()) {
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

  /// "$(": a command whose output is not known here; kept in the word, so that its value is rejected.
  bool expansion() const { return in_word_ && !word_.text.empty() && word_.text.back() == '$'; }

  void open() {
    if (in_word_) return;
    in_word_ = true;
    word_ = {"", {name_, line_, static_cast<std::uint32_t>(at_ - line_start_ + 1)}, command_};
    command_ = false;
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
  bool in_word_ = false, command_ = true;
};

using Variables = std::map<std::string, std::string>;

/// "--num-layers 32 --hidden-size 4096" of MODEL_ARGS="...": such variables only collect options.
bool holds_options(const std::string& value) {
  return value.starts_with("--") || value.find(" --") != value.npos || value.find("\n--") != value.npos ||
         value.find("\t--") != value.npos;
}

/// `text` with the variables of the script replaced; others stay as they are written. Variables that hold
/// options become nothing, because the options are read where they are assigned.
std::string expanded(const std::string& text, const Variables& variables, int depth = 0) {
  constexpr int kMaxExpansions = 8;
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    // A variable that contains itself would expand without end: the depth is limited, the rest stays as it
    // is.
    if (text[i] != '$' || depth == kMaxExpansions) {
      out += text[i];
      continue;
    }
    const bool braces = i + 1 < text.size() && text[i + 1] == '{';
    const std::size_t begin = i + 1 + braces;
    std::size_t end = begin;
    while (end < text.size() && is_name_char(text[end])) ++end;
    const std::size_t close = braces ? text.find('}', end) : end;
    const auto known = variables.find(text.substr(begin, end - begin));
    if (close == text.npos || end == begin) {
      out += text[i];
      continue;
    }
    const std::string rest = text.substr(end, close - end);  // "", "[@]" or ":-default"
    if (known != variables.end())
      out += holds_options(known->second) ? "" : expanded(known->second, variables, depth + 1);
    else if (rest.starts_with(":-"))
      out += rest.substr(2);
    else
      out += text.substr(i, close - i + braces);
    i = close - !braces;
  }
  return out;
}

/// Assignments NAME=VALUE and NAME=(WORD...) at the beginning of a command.
Variables assignments(const std::vector<Word>& words) {
  Variables out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    const std::size_t equals = text.find('=');
    if (!words[i].begins_command || equals == text.npos || equals == 0) continue;
    std::string name = text.substr(0, equals), value = text.substr(equals + 1);
    // NAME+=VALUE, and NAME+=(WORD...).
    const bool append = name.ends_with('+');
    if (append) name.pop_back();
    // The reader has separated the parenthesis from its words.
    if (value == "(") {
      value.clear();
      while (i + 1 < words.size() && !words[i + 1].begins_command) value += words[++i].text + " ";
    }
    out[name] = append ? out[name] + " " + value : value;
  }
  return out;
}

/// The words of an expanded text, all at the position of the word that contained it.
std::vector<Word> split(const Word& w, const std::string& text) {
  std::vector<Word> out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = text.find_first_not_of(" \t\n\r", i);
    if (begin == text.npos) break;
    const std::size_t end = std::min(text.find_first_of(" \t\n\r", begin), text.size());
    out.push_back({text.substr(begin, end - begin), w.where, out.empty() && w.begins_command});
    i = end;
  }
  return out;
}

/// "--name"; not "--" alone, not "---", no pattern of a usage text ("--name[=VALUE]"), no unknown variable.
bool is_option(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") && word[2] != '-' &&
         word.find_first_of("[]$") == word.npos;
}

Value typed(const std::string& text, const Where& where) {
  Value v = runfile::text_value(text, where);
  const char *begin = text.data(), *end = begin + text.size();
  if (const auto [rest, failed] = std::from_chars(begin, end, v.integer);
      failed == std::errc{} && rest == end) {
    v.kind = Value::Kind::kInteger;
    v.number = static_cast<double>(v.integer);
  } else if (const auto [at, wrong] = std::from_chars(begin, end, v.number);
             wrong == std::errc{} && at == end) {
    v.kind = Value::Kind::kNumber;
  }
  return v;
}

Value value_of(const std::vector<Value>& values, const Where& where) {
  if (values.size() == 1) return values.front();
  Value v;
  v.where = where;
  v.kind = values.empty() ? Value::Kind::kBool : Value::Kind::kList;
  v.boolean = values.empty();
  v.items = values;
  return v;
}

}  // namespace

std::vector<Entry> read_arguments(const std::string& text, const std::string& name) {
  const std::vector<Word> words = WordReader(text, name).read();
  const Variables variables = assignments(words);
  std::vector<Word> flat;
  for (const Word& w : words) {
    // An assignment of options has the options themselves read where they are written, so that positions are
    // those of the text; an empty word behind it ends the values of its last option.
    const std::size_t equals = w.text.find('=');
    const bool assigned = w.begins_command && equals != w.text.npos && !is_option(w.text);
    for (Word& part : split(w, expanded(assigned ? w.text.substr(equals + 1) : w.text, variables)))
      flat.push_back(std::move(part));
    if (assigned) flat.push_back({"", w.where, true});
  }
  std::vector<Entry> out;
  for (std::size_t i = 0; i < flat.size(); ++i) {
    if (!is_option(flat[i].text)) continue;
    const std::string& option = flat[i].text;
    const Where where = flat[i].where;
    const std::size_t equals = option.find('=');
    std::vector<Value> values;
    if (equals != option.npos) values.push_back(typed(option.substr(equals + 1), where));
    // Values reach to the next option, the next command or the program that is started.
    while (equals == option.npos && i + 1 < flat.size() && !flat[i + 1].text.starts_with("-") &&
           !flat[i + 1].text.empty() && !flat[i + 1].begins_command && !flat[i + 1].text.ends_with(".py"))
      ++i, values.push_back(typed(flat[i].text, flat[i].where));
    out.push_back(
        {option.substr(2, equals == option.npos ? option.npos : equals - 2), where, value_of(values, where)});
  }
  return out;
}

}  // namespace trainhost::framework_files
