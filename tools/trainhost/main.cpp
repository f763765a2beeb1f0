// trainhost, the program: finds the command, runs it, turns every failure into one message and an exit code.
// The commands are one file each; the shared options are in options.cpp.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <new>
#include <system_error>
#include <utility>

#include "core/base/text.hpp"
#include "core/plugin/plugin.hpp"
#include "core/plugin/trial_load.hpp"
#include "core/report/terminal.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> c;
  c.push_back(train_command());
  c.push_back(plan_command());
  c.push_back(sweep_command());
  c.push_back(search_command());
  c.push_back(verify_command());
  c.push_back(generate_command());
  c.push_back(data_command());
  c.push_back(plugins_command());
  c.push_back(models_command());
  c.push_back(devices_command());
  c.push_back(init_command());
  return c;
}

std::vector<std::string> command_names(const CLI::App& root) {
  std::vector<std::string> names;
  for (const CLI::App* a : root.get_subcommands({})) names.push_back(a->get_name());
  return names;
}

/// `trainhost run.toml` and `trainhost --backend=cuda` mean `trainhost train ...`: puts the word in.
void insert_main_job(std::vector<std::string>& words, const std::vector<std::string>& names) {
  bool may_be_a_value = false;  // of the option before it: `--plugin-path plug`
  for (const std::string& w : words) {
    if (std::find(names.begin(), names.end(), w) != names.end()) return;
    if (w == "--help" || w == "-h" || w == "--version") return;
    const bool value =
        std::exchange(may_be_a_value, w.rfind("--", 0) == 0 && w.find('=') == std::string::npos);
    if (!value && (w.empty() || w[0] != '-')) {
      bool file = w.size() > 5 && w.compare(w.size() - 5, 5, ".toml") == 0;
      if (!file && w.find('/') == std::string::npos)
        if (auto n = nearest(w, names))
          throw usage_error(
              fmt::format("'{}' is neither a command nor a run file; did you mean '{}'?", escaped(w), *n));
      break;
    }
  }
  words.insert(words.begin(), "train");
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options())
    for (const std::string& n : o->get_lnames()) names.push_back("--" + n);
  return names;
}

/// The command that was asked for, with its own below it: `plugins new`. Its help and its options are what
/// the user wants.
const CLI::App& asked_for(const CLI::App& app) {
  const std::vector<const CLI::App*> below =
      app.get_subcommands([](const CLI::App* s) { return s->parsed(); });
  return below.empty() ? app : asked_for(*below.front());
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() && app.get_parent()->get_parent()
             ? full_name(*app.get_parent()) + " " + app.get_name()
             : app.get_name();
}

/// What the parser did not understand, with the nearest word it knows.
Error unknown_word(const CLI::App& command) {
  const std::string word = command.remaining(true).front();
  const CLI::App& app = asked_for(command);
  const std::string name = full_name(app);
  const std::string option = word.substr(0, word.find('='));
  if (option.rfind("-", 0) == 0)
    return usage_error(fmt::format("unknown option '{}' of trainhost {}", escaped(option), name) +
                           did_you_mean(option, option_names(app)),
                       fmt::format("trainhost {} --help lists them", name));
  return usage_error(fmt::format("unexpected word '{}' after trainhost {}", escaped(word), name) +
                         did_you_mean(word, command_names(app)),
                     fmt::format("trainhost {} --help", name));
}

/// The parser's own sentences name the option first; those that speak of counts are said again.
Error not_parsed(const CLI::ParseError& e, const std::string& command) {
  std::string words = e.what();
  const std::string option = words.substr(0, words.find(':'));
  if (words.find("At Most 1 required but received") != words.npos)
    words = option + " is given more than once: it takes one value";
  if (words.find("1 required") != words.npos && words.ends_with("missing")) words = option + " needs a value";
  return usage_error(words, fmt::format("trainhost {}--help", command.empty() ? "" : command + " "));
}

Exit dispatch(std::vector<std::string> words) {
  CLI::App root{
      "trainhost: plans the memory of an LLM training run to the byte, then trains it.\n"
      "With no words it plans and trains a small built-in model on the CPU.",
      "trainhost"};
  root.set_version_flag("--version", std::string("trainhost ") + TRAINHOST_VERSION);
  root.require_subcommand(0, 1);
  root.footer(
      "Examples:\n  trainhost                                  the built-in run\n"
      "  trainhost run.toml --backend=cuda          train what run.toml describes\n"
      "  trainhost plan --model=llama-3-8b          will it fit here?\n"
      "Each command has --help with an example.");
  auto commands = all_commands();
  for (auto& c : commands) {
    c->add(root);
    c->app()->allow_extras();
  }
  const std::vector<std::string> names = command_names(root);
  insert_main_job(words, names);
  const auto command = std::find_first_of(words.begin(), words.end(), names.begin(), names.end());
  const std::string asked = command == words.end() ? "" : *command;
  std::reverse(words.begin(), words.end());  // CLI11 takes them last first
  try {
    root.parse(words);
  } catch (const CLI::Success& e) {  // --help, --version
    root.exit(e);
    return Exit::kDone;
  } catch (const CLI::ParseError& e) {
    const CLI::App& app = asked_for(root);
    throw not_parsed(e, &app == &root ? asked : full_name(app));
  }
  for (auto& c : commands) {
    if (!c->app()->parsed()) continue;
    if (!c->app()->remaining(true).empty()) throw unknown_word(*c->app());
    return c->run();
  }
  return Exit::kDone;
}

int report(const Error& e) {
  auto terminal = report::terminal_of(2);
  fmt::print(stderr, "{} {}\n", report::styled(terminal, report::Style::kBad, "trainhost:"), e.full());
  return static_cast<int>(e.code());
}

/// A pipe whose reader has left (`| head`): it has what it wanted, which is no mistake.
bool reader_left() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return poll(&out, 1, 0) > 0 && (out.revents & POLLERR);
}

int unwritten(const std::string& why) {
  if (reader_left()) return static_cast<int>(Exit::kDone);
  return report(run_error("standard output could not be written whole" + (why.empty() ? "" : ": " + why),
                          "is the disk full?"));
}

/// `code` where everything that was said on stdout arrived: half an answer is none, and its code would be
/// taken for it. A failure, and a run that stopped with a checkpoint, keep theirs.
int delivered(Exit code) {
  const bool answer = code == Exit::kDone || code == Exit::kDoesNotFit || code == Exit::kFalsified;
  errno = 0;
  std::cout.flush();
  const bool whole = std::fflush(stdout) == 0 && !std::ferror(stdout) && std::cout;
  const int why = errno;
  return whole || !answer || reader_left() ? static_cast<int>(code)
                                           : unwritten(why ? std::strerror(why) : "");
}

int run(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe and a full quota are errors to report, not ends
  std::signal(SIGXFSZ, SIG_IGN);
  remember_command_line(argc, argv);
  try {
    return delivered(dispatch({argv + 1, argv + argc}));
  } catch (const plugin::PluginError& e) {
    return report(Error(e.code(), e.told(), e.hint(), e.where()));
  } catch (const Error& e) {
    return report(e);
  } catch (const std::bad_alloc&) {
    return report(run_error("out of memory", "see trainhost plan"));
  } catch (const std::filesystem::filesystem_error& e) {
    return report(run_error(e.what()));
  } catch (
      const std::system_error& e) {  // of a print, of more text than the buffer held, or of anything else
    return std::ferror(stdout) ? unwritten(e.code().message()) : report(run_error(e.what()));
  }
}

}  // namespace
}  // namespace trainhost::cli

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], trainhost::plugin::kProbeWord) == 0) trainhost::plugin::probe_child();
  return trainhost::cli::run(argc, argv);
}
