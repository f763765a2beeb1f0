// The processes that a launcher (mpirun, srun) has started together, of which this is one: how many, and
// their connection. What they agree on: core/training/ranks.hpp.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/plugin/communicator.hpp"
#include "core/plugin/registry.hpp"
#include "core/process/launch_watch.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::cli {

struct LaunchedProcess {
  std::uint32_t rank = 0, ranks = 1;
  std::uint32_t local_ranks = 1;  // on this machine
  const char* launcher = "";      // "mpirun"
};

/// The processes cannot be connected.
class ConnectionFailure : public Error {
 public:
  ConnectionFailure(const Error& e, bool by_first) : Error(e), reported_by_first_(by_first) {}
  /// Rank 0 reports it, and this is another one.
  bool reported_by_first() const { return reported_by_first_; }

 private:
  bool reported_by_first_;
};

/// From the environment. Nullopt for a process that was started alone. Throws usage_error for numbers that
/// contradict each other.
std::optional<LaunchedProcess> launched_process();

/// Until the processes are connected: reports one that ends. Null for a process that was started alone.
std::unique_ptr<LaunchWatch> watch_launch();

/// "rank 3 of 4 on host-a, process 1234".
std::string name_of_process();

/// CPU threads for this process: default_threads() of core/process/cpu_quota.hpp.
std::uint32_t threads_of_process();

/// The override that makes a run use all processes: parallel.data is their number where the run file does not
/// say it. Throws usage_error if it says another one, also for a process that was started alone.
std::optional<runfile::Override> ranks_of_run(const runfile::RunConfig& c);

/// Connects the processes with the plugin of parallel.communicator and gives them to the trainers of the
/// registry.
std::unique_ptr<plugin::Communicator> connect_ranks(const runfile::RunConfig& c, plugin::Registry& registry);

/// Of processes that were connected after a mistake, which they share or which is one of some of them: throws
/// the SharedError by which all end, the others at the first thing that they agree on. Launchers do not all
/// end the others when one ends.
[[noreturn]] void end_together(plugin::Communicator& ranks, const Error& e);

/// Calls f; one failure of a run is reported once. A failure that all processes share is printed by the first
/// one; a failure of this one alone is printed here, and ends the others. `ranks`: null in a run of one
/// process, and until they are connected.
Exit run_together(const std::function<plugin::Communicator*()>& ranks, const std::function<Exit()>& f);

}  // namespace trainhost::cli
