// See arguments_read.hpp. The words of the commands that run, assignments of variables, then options. A
// script is never run, and what only a shell could know (the output of a command, the environment) stays as
// it is written.
#include "core/framework_files/arguments_read.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/framework_files/shell_words.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::Value;

/// The words of an expanded text, all at the position of the word that contained it.
std::vector<Word> split(const Word& w, const std::string& text) {
  std::vector<Word> out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = text.find_first_not_of(" \t\n\r", i);
    if (begin == text.npos) break;
    // Spaces in the brackets of a command or an expression whose value is not known separate nothing.
    std::size_t end = begin;
    while (end < text.size() && std::string_view(" \t\n\r").find(text[end]) == std::string_view::npos) {
      const std::size_t behind = text.compare(end, 2, "$(") == 0 ? end_of_brackets(text, end + 1) : text.npos;
      end = behind == text.npos ? end + 1 : behind;
    }
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

/// A path without the words for the current directory: `pwd`/ds.json.
std::string without_current_directory(std::string path) {
  for (const std::string_view here : {"`pwd`/", "$(pwd)/", "$PWD/", "${PWD}/"})
    if (path.starts_with(here)) path.erase(0, here.size());
  return path;
}

Value typed(const std::string& word, const Where& where) {
  const std::string text = without_current_directory(word);
  Value v = runfile::text_value(text, where);
  const char *begin = text.data(), *end = begin + text.size();
  if (const auto [rest, failed] = std::from_chars(begin, end, v.integer);
      failed == std::errc{} && rest == end) {
    v.kind = Value::Kind::kInteger;
    v.number = static_cast<double>(v.integer);
  } else if (const auto [at, wrong] = std::from_chars(begin, end, v.number);
             wrong == std::errc{} && at == end) {
    v.kind = Value::Kind::kNumber;
  } else if (text == "True" || text == "true" || text == "False" || text == "false") {
    v.kind = Value::Kind::kBool;  // as HfArgumentParser reads them
    v.boolean = text == "True" || text == "true";
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

/// Commands of ms-swift that train nothing: beside a command that trains, a script starts an engine that
/// samples, or merges adapters. By their names, or by the files of swift/cli behind them.
bool trains_nothing(const std::vector<Word>& words, std::size_t at) {
  constexpr std::array kCommands{"rollout", "infer", "deploy",     "export",     "eval",
                                 "sample",  "app",   "merge-lora", "merge_lora", "web-ui"};
  const auto is_one = [&](std::string_view name) {
    return std::ranges::find(kCommands, name) != kCommands.end();
  };
  std::string_view program = words[at].text;
  if (program == "swift" || program == "megatron") return at + 1 < words.size() && is_one(words[at + 1].text);
  if (program.find("swift/cli/") == program.npos || !program.ends_with(".py")) return false;
  program.remove_suffix(3);
  return is_one(program.substr(program.rfind('/') + 1));
}

}  // namespace

std::vector<Entry> read_arguments(const std::string& text, const std::string& name) {
  const std::vector<Word> words = executed(shell_words(text, name));
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
  bool skipped = false;  // until the next command
  for (std::size_t i = 0; i < flat.size(); ++i) {
    skipped = (skipped && !flat[i].begins_command) || trains_nothing(flat, i);
    if (skipped || !is_option(flat[i].text)) continue;
    const std::string& option = flat[i].text;
    const Where where = flat[i].where;
    const std::size_t equals = option.find('=');
    std::vector<Value> values;
    if (equals != option.npos) values.push_back(typed(option.substr(equals + 1), where));
    // Values reach to the next option, the next command or the program that is started. A variable that is
    // not known may be the only value; behind another one it is further options ("$@", $EXTRA_ARGS).
    const auto is_value = [&](const Word& w) {
      return !w.text.empty() && !w.begins_command && !w.text.starts_with('-') && !w.text.ends_with(".py") &&
             !w.text.starts_with("$@") && !w.text.starts_with("${@") && !w.text.starts_with("$*") &&
             (values.empty() || !w.text.starts_with('$'));
    };
    while (equals == option.npos && i + 1 < flat.size() && is_value(flat[i + 1]))
      ++i, values.push_back(typed(flat[i].text, flat[i].where));
    out.push_back(
        {option.substr(2, equals == option.npos ? option.npos : equals - 2), where, value_of(values, where)});
  }
  return out;
}

std::vector<Entry> read_variables(const std::string& text, const std::string& name,
                                  std::initializer_list<std::string_view> variables) {
  const std::vector<Word> words = executed(shell_words(text, name));
  const Variables known = assignments(words);
  // Assignments in front of a command that trains nothing hold for that command alone.
  const auto is_of_training = [&](const Word& w) {
    const auto at = static_cast<std::size_t>(&w - words.data());
    for (std::size_t i = at + 1; i < words.size() && !words[i].begins_command; ++i)
      if (trains_nothing(words, i)) return false;
    return true;
  };
  std::vector<Entry> out;
  for (const std::string_view variable : variables) {
    const auto last = std::find_if(words.rbegin(), words.rend(), [&](const Word& w) {
      return w.text.size() > variable.size() && w.text.starts_with(variable) &&
             w.text[variable.size()] == '=' && is_of_training(w);
    });
    if (last == words.rend()) continue;
    const std::string value = expanded(last->text.substr(variable.size() + 1), known);
    if (value.empty()) continue;
    const bool known_value = value.find_first_of("$`") == value.npos;
    out.push_back({std::string(variable), last->where,
                   known_value ? typed(value, last->where) : runfile::text_value(value, last->where)});
  }
  return out;
}

}  // namespace trainhost::framework_files
