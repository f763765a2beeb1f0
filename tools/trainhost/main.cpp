// The program trainhost: parses the arguments, runs the command, turns every failure into one message and an
// exit code. arguments.hpp declares the commands; each is implemented in its command_*.cpp.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>
#include <system_error>
#include <variant>

#include "core/base/text.hpp"
#include "core/plugin/plugin.hpp"
#include "core/plugin/trial_load.hpp"
#include "core/report/terminal.hpp"
#include "core/runfile/run_file_error.hpp"
#include "tools/trainhost/arguments.hpp"
#include "tools/trainhost/launched_ranks.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

/// Needs no memory.
int report_no_memory() noexcept {
  write_stderr("trainhost: out of memory (see trainhost plan)\n");
  return static_cast<int>(Exit::kFailed);
}

/// While memory is short the message itself may not be possible.
int report(const Error& e) noexcept {
  try {
    auto terminal = report::terminal_of(2);
    write_stderr(report::styled(terminal, report::Style::kBad, "trainhost:") + " " + e.full() + "\n");
    return static_cast<int>(e.code());
  } catch (const std::exception&) {
    return report_no_memory();
  }
}

/// Whether standard output is a pipe whose reader has closed it (`| head`), which is not an error.
bool reader_closed_stdout() {
  pollfd out{fileno(result_stream()), POLLOUT, 0};
  return poll(&out, 1, 0) > 0 && (out.revents & POLLERR);
}

/// `error`: errno; 0: not known.
int report_failed_output(int error) {
  if (reader_closed_stdout()) return static_cast<int>(Exit::kDone);
  return report(
      run_error("cannot write to standard output" + (error ? std::string(": ") + std::strerror(error) : ""),
                error == EBADF                  ? "it is closed"
                : error == 0 || error == ENOSPC ? "is the disk full?"
                                                : ""));
}

/// Flushes the result and returns the exit code. A result that was not written completely is a failure,
/// because a script would take the code of the command for a complete result. The codes of failures and of a
/// run that stopped with a checkpoint stay.
int flush_and_exit_code(Exit code) {
  const bool result = code == Exit::kDone || code == Exit::kDoesNotFit || code == Exit::kFalsified;
  errno = 0;
  std::cout.flush();
  const bool complete = std::fflush(result_stream()) == 0 && !std::ferror(result_stream()) && std::cout;
  const int why = errno;
  return complete || !result || reader_closed_stdout() ? static_cast<int>(code) : report_failed_output(why);
}

template <class A>
bool wants_json(const A& a) {
  if constexpr (requires { a.common.json; }) return a.common.json;
  return false;
}

/// --help and --version have no command to run.
Exit run(std::monostate) { return Exit::kDone; }

/// The command, with its failures turned into a message. Building a message may fail in turn, see main().
int run_command(int argc, char** argv) {
  try {
    remember_command_line(argc, argv);
    const Arguments arguments = parse_arguments({argv + 1, argv + argc});
    // Of several processes all train; another command is one of the first.
    const std::optional<LaunchedProcess> launched = launched_process();
    if (launched && launched->rank > 0 && !std::holds_alternative<TrainArguments>(arguments) &&
        !std::holds_alternative<FinetuneArguments>(arguments))
      return static_cast<int>(Exit::kDone);
    if (std::visit([](const auto& a) { return wants_json(a); }, arguments)) reserve_stdout_for_json();
    return flush_and_exit_code(std::visit([](const auto& a) { return run(a); }, arguments));
  } catch (const plugin::PluginError& e) {
    return report(Error(e.code(), e.message_with_plugin(), e.hint(), e.where()));
  } catch (const runfile::RunFileErrors& e) {
    for (const runfile::RunFileError& one : e.errors()) report(one.error);
    return static_cast<int>(e.code());
  } catch (const Error& e) {
    return report(e);
  } catch (const std::bad_alloc&) {
    return report_no_memory();
  } catch (const std::filesystem::filesystem_error& e) {
    return report(run_error(e.what()));
  } catch (const std::system_error& e) {  // fmt::print throws it when the output fails
    return std::ferror(result_stream()) ? report_failed_output(e.code().value())
                                        : report(run_error(e.what()));
  } catch (const std::exception& e) {
    return report(
        run_error(std::string("internal error: ") + e.what(), "please report it with the command line"));
  }
}

/// Opens /dev/null in place of standard streams that the caller has closed (`>&-`): else the next file that
/// is opened, for example the lock of a run, would get their number and everything that is printed. Opened
/// for reading only, so that a command whose result cannot be printed still fails.
void open_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDONLY);  // gets the lowest free number, which is fd
}

}  // namespace
}  // namespace trainhost::cli

int main(int argc, char** argv) {
  trainhost::cli::open_closed_streams();
  if (argc == 2 && std::strcmp(argv[1], trainhost::plugin::kTrialLoadArgument) == 0)
    trainhost::plugin::serve_trial_load();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe and a full quota become write errors
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return trainhost::cli::run_command(argc, argv);
  } catch (...) {  // an exception while a message was made: there is no memory for it
    return trainhost::cli::report_no_memory();
  }
}
