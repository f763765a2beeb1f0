// trainhost complete: what shell completion offers for a command line, from the option tree. It is called by
// the scripts of completion_scripts.cpp, prints nothing where nothing fits, and never fails: a message would
// appear in the middle of what the user types.
//
// Output, one per line: WORD, a tab and its meaning. Then, where paths fit, ":files" or ":folders", a tab,
// and the beginning of the last word that is not a part of the path ("--html=").
#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "tools/trainhost/command_options.hpp"
#include "tools/trainhost/completion_values.hpp"

namespace trainhost::cli {
namespace {

/// The first sentence of a help text, in one line.
std::string first_sentence(const std::string& help) {
  std::size_t end = help.find(". ");
  while (end != help.npos && help.substr(0, end).ends_with("e.g")) end = help.find(". ", end + 1);
  std::string out = help.substr(0, std::min(end, help.find('\n')));
  if (out.ends_with('.')) out.pop_back();
  std::replace(out.begin(), out.end(), '\t', ' ');
  return out;
}

/// Where a command line stands before its last word.
struct Position {
  const CLI::App* command = nullptr;     // the innermost that is named
  const CLI::Option* option = nullptr;   // the option whose value follows
  bool lists_commands = false;           // `help`
  std::size_t arguments = 0;             // words that are neither commands nor options
  std::vector<std::string> plugin_path;  // of --plugin-path
};

bool takes_value(const CLI::Option& o) { return o.get_items_expected_min() > 0; }

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* a : listed_commands(app))
    if (a->get_name() == name) return a;
  return nullptr;
}

/// Without a command, everything belongs to `train`.
const CLI::App& with_options(const CLI::App& root, const CLI::App& command) {
  return &command == &root ? *find_command(root, "train") : command;
}

Position position_of(const CLI::App& root, const std::vector<std::string>& words) {
  Position at;
  at.command = &root;
  for (const std::string& word : words) {
    if (at.option && !word.starts_with('-')) {
      if (at.option->check_lname("plugin-path")) at.plugin_path.push_back(word);
      // An option with a list of values takes words until the next option.
      if (at.option->get_items_expected_max() == 1) at.option = nullptr;
      continue;
    }
    at.option = nullptr;
    if (word.starts_with('-')) {
      const auto equals = word.find('=');
      const CLI::Option* o = with_options(root, *at.command).get_option_no_throw(word.substr(0, equals));
      if (!o) continue;
      if (equals == word.npos && takes_value(*o)) at.option = o;
      if (equals != word.npos && o->check_lname("plugin-path"))
        at.plugin_path.push_back(word.substr(equals + 1));
    } else if (const CLI::App* command = at.arguments ? nullptr : find_command(*at.command, word)) {
      if (at.command == &root && word == "help")
        at.lists_commands = true;
      else
        at.command = command;
    } else {
      ++at.arguments;
      if (at.command == &root) at.command = find_command(root, "train");
    }
  }
  return at;
}

CompletionValues commands_of(const CLI::App& app) {
  CompletionValues out;
  for (const CLI::App* a : listed_commands(app))
    out.words.push_back({a->get_name(), first_sentence(a->get_description())});
  return out;
}

CompletionValues options_of(const CLI::App& app) {
  CompletionValues out;
  for (const CLI::Option* o : app.get_options()) {
    for (const std::string& n : o->get_lnames())
      out.words.push_back({"--" + n, first_sentence(o->get_description())});
    for (const std::string& n : o->get_snames())
      out.words.push_back({"-" + n, first_sentence(o->get_description())});
  }
  return out;
}

CompletionValues values_of(const CLI::App& command, const CLI::Option& o, const std::string& typed,
                           const std::vector<std::string>& plugin_path) {
  const std::string name = o.nonpositional()
                               ? (o.get_lnames().empty() ? o.get_name() : "--" + o.get_lnames()[0])
                               : o.get_name(true, false);
  // The name of an argument says what it is.
  const std::string shown =
      o.nonpositional() || o.get_option_text().find('|') != std::string::npos ? o.get_option_text() : name;
  return values_of_argument(full_name(command), name, shown, typed, plugin_path);
}

void append(CompletionValues& to, CompletionValues more) {
  to.words.insert(to.words.end(), more.words.begin(), more.words.end());
  to.paths = std::max(to.paths, more.paths);
  if (to.prefix.empty()) to.prefix = std::move(more.prefix);
}

CompletionValues values_at(const CLI::App& root, const Position& at, const std::string& typed) {
  const CLI::App& command = with_options(root, *at.command);
  if (at.option) return values_of(command, *at.option, typed, at.plugin_path);
  if (at.lists_commands)
    return typed.starts_with('-') ? options_of(*find_command(root, "help")) : commands_of(*at.command);
  if (const auto equals = typed.find('='); typed.starts_with("--") && equals != typed.npos) {
    const CLI::Option* o = command.get_option_no_throw(typed.substr(0, equals));
    if (!o) return {};
    CompletionValues out = values_of(command, *o, typed.substr(equals + 1), at.plugin_path);
    out.prefix.insert(0, typed, 0, equals + 1);
    return out;
  }
  if (typed.starts_with('-')) {
    CompletionValues out = options_of(command);
    if (at.command == &root) append(out, options_of(root));
    return out;
  }
  CompletionValues out = at.arguments ? CompletionValues{} : commands_of(*at.command);
  std::vector<const CLI::Option*> arguments;
  for (const CLI::Option* o : command.get_options())
    if (o->get_positional()) arguments.push_back(o);
  if (at.arguments < arguments.size())
    append(out, values_of(command, *arguments[at.arguments], typed, at.plugin_path));
  else if (!arguments.empty() && arguments.back()->get_items_expected_max() > 1)
    append(out, values_of(command, *arguments.back(), typed, at.plugin_path));
  return out;
}

}  // namespace

Exit run(const CompleteArguments& a) {
  try {
    Parser p;
    declare_commands(p);
    std::vector<std::string> before = a.words;
    const std::string typed = before.empty() ? "" : before.back();
    if (!before.empty()) before.pop_back();
    const CompletionValues values = values_at(p.root, position_of(p.root, before), typed);
    std::vector<std::string> printed;
    for (const auto& [word, meaning] : values.words) {
      const std::string whole = values.prefix + word;
      if (!whole.starts_with(typed) || std::find(printed.begin(), printed.end(), whole) != printed.end())
        continue;
      printed.push_back(whole);
      fmt::print("{}\t{}\n", escaped(whole), escaped(meaning, 400));
    }
    if (values.paths != CompletionValues::Paths::kNone)
      fmt::print(":{}\t{}\n", values.paths == CompletionValues::Paths::kFiles ? "files" : "folders",
                 values.prefix);
  } catch (const Error&) {  // a broken --plugin-path: it is reported when the command runs
  }
  return Exit::kDone;
}

}  // namespace trainhost::cli
