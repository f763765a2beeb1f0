// See arguments.hpp. Parses the arguments and words the errors, with the nearest valid name. The commands and
// their options are declared in command_options.cpp.
#include "tools/trainhost/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/text.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"
#include "core/runfile/schema.hpp"
#include "tools/trainhost/command_options.hpp"

namespace trainhost::cli {
namespace {

constexpr std::size_t kHelpColumn = 20;  // CLI11 indents the texts of options by more

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* a : app.get_subcommands({})) names.push_back(a->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options())
    for (const std::string& n : o->get_lnames()) names.push_back("--" + n);
  return names;
}

/// Inserts "train" where no command is named. Throws usage_error where the first argument that could be a
/// run file looks like a misspelt command instead.
void insert_default_command(std::vector<std::string>& arguments, const std::vector<std::string>& commands) {
  bool may_be_a_value = false;  // of the option before it: `--plugin-path plug`
  for (const std::string& argument : arguments) {
    if (std::find(commands.begin(), commands.end(), argument) != commands.end()) return;
    if (argument == "--help" || argument == "-h" || argument == "--version" || argument == "-V") return;
    // A word after "--option" without "=" may be its value, so it is not judged; "-v" has no value.
    const bool value =
        std::exchange(may_be_a_value, argument.starts_with("--") && argument.find('=') == std::string::npos);
    if (!value && (argument.empty() || argument[0] != '-')) {
      // A word that looks like a file is meant as a run file, however close it is to a name of a command.
      const bool file =
          (argument.size() > 5 && argument.ends_with(".toml")) || argument.find('/') != std::string::npos;
      if (const auto n = file ? std::nullopt : nearest(argument, commands))
        throw usage_error(fmt::format("'{}' is neither a command nor a run file; did you mean '{}'?",
                                      escaped(argument), *n));
      break;
    }
  }
  // Options before the run file belong to train as well: they are after its name now.
  arguments.insert(arguments.begin(), "train");
}

/// The innermost command that was parsed: of `plugins new` the app of `new`.
const CLI::App& innermost_command(const CLI::App& app) {
  const std::vector<const CLI::App*> parsed =
      app.get_subcommands([](const CLI::App* s) { return s->parsed(); });
  return parsed.empty() ? app : innermost_command(*parsed.front());
}

/// Options that users of other tools expect, as comparable() gives them, and what says the same here. Of two
/// entries with one name, the first whose option the command has counts.
struct ForeignOption {
  std::string_view names, here;  // names between spaces; {}: the value that was given
};
constexpr ForeignOption kForeignOptions[] = {
    {" gpus numgpus ngpus worldsize ", "--devices={}"},
    {" gpus numgpus ngpus worldsize ", "--set parallel.data={}"},
    {" gpu ", "--device={}"},
    {" memory gpumemory vram ", "--budget={}"},
    {" lora ", "--set lora.rank=16"},
    {" qlora ", "--set lora.rank=16 --set lora.base=nf4"},
    {" framework ", "--for={}"},
    {" gradientcheckpointing ", "--set train.recompute=full"},
    {" optimizer ", "--set optimizer.name={}"},
    {" maxnewtokens maxtokens numpredict ", "--tokens={}"},
    {" message text input ", "--prompt={}"},
    {" data dataset traindata trainfile ", "--set data.train={}"},
    {" output outputdir out ", "--set output.dir={}"},
};

/// "; did you mean '--set optimizer.lr=1e-4'?" for an option that has the name of a key of the run file, or
/// the name that other tools use for one; else "".
std::string suggest_setting(const CLI::App& command, const std::string& argument) {
  const std::vector<std::string> options = option_names(command);
  const auto has = [&](std::string_view option) {
    return std::ranges::find(options, option) != options.end();
  };
  if (!argument.starts_with("--")) return "";
  const std::size_t end = std::min(argument.find('='), argument.size());
  const std::string name = comparable(argument.substr(2, end - 2));
  const std::string value = end < argument.size() ? escaped(argument.substr(end + 1), 80) : "VALUE";
  for (const ForeignOption& f : kForeignOptions)
    if (f.names.find(" " + name + " ") != f.names.npos && has(f.here.substr(0, f.here.find_first_of("= "))))
      return fmt::format("; did you mean '{}'?", fmt::format(fmt::runtime(f.here), value));
  if (!has("--set")) return "";
  std::string key;
  for (const runfile::Key& k : runfile::schema()) {
    const std::string_view full = k.name;
    if (comparable(full) == name || comparable(full.substr(full.rfind('.') + 1)) == name) {
      key = full;
      break;
    }
  }
  // Another trainer's meaning of a word wins over the last part of a key ("dtype").
  for (const runfile::ForeignName& f : runfile::foreign_names())
    if (comparable(f.name) == name) key = f.key;
  return key.empty() ? "" : fmt::format("; did you mean '--set {}={}'?", key, value);
}

/// The first argument that `command` does not know, with the nearest name that it knows.
Error unknown_argument(const CLI::App& command, const std::string& argument) {
  // Only the first: later words may be values of it.
  const std::string name = full_name(command);
  const std::string option = argument.substr(0, argument.find('='));
  if (option.starts_with("-")) {
    std::string meant = suggest_setting(command, argument);
    if (meant.empty()) meant = did_you_mean(option, option_names(command));
    return usage_error(fmt::format("unknown option '{}' of trainhost {}", escaped(option), name) + meant,
                       fmt::format("trainhost {} --help lists the options", name));
  }
  return usage_error(fmt::format("unexpected argument '{}' of trainhost {}", escaped(argument), name) +
                         did_you_mean(argument, command_names(command)),
                     fmt::format("trainhost {} --help", name));
}

/// CLI11's messages name the option first; those about the number of values are replaced.
/// These texts are CLI11's and may change with its version; then its own message is shown.
Error not_parsed(const CLI::ParseError& e, const std::string& command) {
  std::string message = e.what();
  const std::string option = message.substr(0, message.find(':'));
  if (message.find("At Most 1 required but received") != message.npos)
    message = option + " is given more than once: it takes one value";
  if (message.find("1 required") != message.npos && message.ends_with("missing"))
    message = option + " needs a value";
  return usage_error(message, fmt::format("trainhost {}--help", command.empty() ? "" : command + " "));
}

}  // namespace

/// Leaves out which options exclude each other: CLI11 lists them in the order of their addresses, which
/// differs from start to start. The message about two such options names them.
class HelpFormatter : public CLI::Formatter {
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option);
    return text.substr(0, text.find(" Excludes:"));
  }
};

std::string full_name(const CLI::App& app) {
  return app.get_parent() && app.get_parent()->get_parent()
             ? full_name(*app.get_parent()) + " " + app.get_name()
             : app.get_name();
}

/// A command without a group is for the program itself.
std::vector<const CLI::App*> listed_commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* a) { return !a->get_group().empty(); });
}

std::string fitted_help(const std::string& help) {
  const std::size_t width = report::output_width();
  std::string out;
  for (std::size_t at = 0; at < help.size();) {
    const std::size_t end = std::min(help.find('\n', at), help.size());
    const std::string line = help.substr(at, end - at);
    // "  --option TEXT   What it does.", or a line that continues such a text.
    const std::size_t name = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t gap = name < kHelpColumn ? line.find("  ", name) : name;
    const std::size_t text = gap == line.npos ? line.npos : line.find_first_not_of(' ', gap);
    const std::size_t indent = text == line.npos ? name + 2 : 2 * text > width ? width / 4 : text;
    out += report::wrapped(line, width, std::string(indent, ' ')) + "\n";
    at = end + 1;
  }
  return out;
}

void declare_commands(Parser& p) {
  p.root.formatter(std::make_shared<HelpFormatter>());  // commands inherit it and what follows
  p.root.set_help_flag("-h,--help", "Print this help and exit.");
  p.root.set_version_flag("-V,--version", std::string("trainhost ") + TRAINHOST_VERSION,
                          "Print the version and exit.");
  p.root.require_subcommand(0, 1);
  p.root.footer(
      "Examples:\n  trainhost                                  train the built-in model\n"
      "  trainhost run.toml --backend=cuda          train the run that run.toml describes\n"
      "  trainhost plan --model=llama-3-8b          report whether it fits this machine\n"
      "`trainhost COMMAND --help` lists the options of a command.");
  add_commands(p);
}

Arguments parse_arguments(std::vector<std::string> arguments) {
  // For the scripts of `completion`, whose words are those of another command line.
  if (!arguments.empty() && arguments.front() == "complete")
    return CompleteArguments{{arguments.begin() + 1, arguments.end()}};
  if (!arguments.empty() && arguments.front() == "man-pages")
    return ManPagesArguments{{arguments.begin() + 1, arguments.end()}};
  Parser p;
  declare_commands(p);
  const std::vector<std::string> commands = command_names(p.root);
  insert_default_command(arguments, commands);
  const auto named = std::find_first_of(arguments.begin(), arguments.end(), commands.begin(), commands.end());
  const std::string typed = named == arguments.end() ? "" : *named;
  const std::string first = arguments.front();
  std::reverse(arguments.begin(), arguments.end());  // CLI11 reads them from the back
  try {
    p.root.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", fitted_help(p.root.help()));
    return {};
  } catch (const CLI::Success& e) {  // --version
    p.root.exit(e);
    return {};
  } catch (const CLI::ParseError& e) {
    if (first.starts_with("-") && !typed.empty())
      throw usage_error(
          fmt::format("the option '{}' is before the command '{}'", escaped(first, 80), typed),
          fmt::format("options follow the command: trainhost {} {} ...", typed, escaped(first, 80)));
    const CLI::App& command = innermost_command(p.root);
    throw not_parsed(e, &command == &p.root ? typed : full_name(command));
  }
  // The parser was successful, so every value is in its struct. The copy outlives the parser.
  const CLI::App& command = innermost_command(p.root);
  if (const std::vector<std::string> unknown = p.root.remaining(true); !unknown.empty())
    throw unknown_argument(command, unknown.front());
  // By address: commands of different parents may have equal names (`data info`, `plugins info`).
  for (const auto& [app, arguments_of] : p.results)
    if (app == &command) return arguments_of();
  return {};
}

}  // namespace trainhost::cli
