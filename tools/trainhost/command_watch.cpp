// trainhost watch: the page of `train --live` for the folders of runs, until a signal ends it.
#include <fmt/format.h>
#include <signal.h>

#include "core/base/json_value.hpp"
#include "core/base/plural.hpp"
#include "core/live/live_server.hpp"
#include "core/report/run_record.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {

Exit run(const WatchArguments& a) {
  constexpr std::size_t kMost = 32;
  constexpr std::uint64_t kFirstBytes = 1 << 20;  // has the first event; the server reads the rest
  if (a.runs.size() > kMost)
    throw usage_error(fmt::format("{} runs are given; at most {} can be shown", a.runs.size(), kMost),
                      "watch them in groups");
  for (const std::string& folder : a.runs) report::RunRecord(folder, 2).require_run(kFirstBytes);
  // Waited for below, so they must not end the process.
  sigset_t ends;
  sigemptyset(&ends);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, s);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  live::LiveServer server(static_cast<std::uint16_t>(a.port), command_line());
  for (const std::string& folder : a.runs) server.show(folder);
  if (a.port && server.port() != a.port) write_stderr(fmt::format("port {} is in use\n", a.port));
  if (a.common.json) {
    const JsonValue url = {{"url", server.url()}};
    fmt::print(result_stream(), "{}\n", url.dump());
    std::fflush(result_stream());
  } else if (!a.common.quiet) {
    write_stderr(fmt::format("{}: {}  (Ctrl-C ends it)\n", plural(a.runs.size(), "run"), server.url()));
  }
  int signal = 0;
  ::sigwait(&ends, &signal);
  return Exit::kDone;
}

}  // namespace trainhost::cli
