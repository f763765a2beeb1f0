// See launched_ranks.hpp.
#include "tools/trainhost/launched_ranks.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/planning/error_context.hpp"
#include "core/process/cpu_quota.hpp"
#include "core/runfile/run_file_error.hpp"
#include "core/training/ranks.hpp"

namespace trainhost::cli {
namespace {

/// The variables of a launcher: number of this process, of all, and of those on this machine.
struct Variables {
  const char *rank, *ranks, *local_ranks, *launcher;
};
constexpr Variables kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "mpirun"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "srun"},
};

constexpr const char* kTorchrun = "torchrun";

/// The number at the start of a variable ("4(x2)" of Slurm is 4); 0 if it is not set or none.
std::uint32_t number_in(const char* name) {
  const char* text = std::getenv(name);
  return text ? static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10)) : 0;
}

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? escaped(name) : "an unknown host";
}

/// The process according to the variables of torchrun and of launchers like it; nullopt if it was started
/// alone. The communicator checks the other variables.
std::optional<LaunchedProcess> process_of_torchrun() {
  if (!std::getenv("RANK") || number_in("WORLD_SIZE") < 2) return std::nullopt;
  LaunchedProcess p{number_in("RANK"), number_in("WORLD_SIZE"), number_in("LOCAL_WORLD_SIZE"), kTorchrun};
  if (p.rank >= p.ranks)
    throw usage_error(fmt::format("RANK = {} and WORLD_SIZE = {} contradict each other", p.rank, p.ranks),
                      "start the run with torchrun, without setting its variables");
  p.local_ranks = std::clamp(p.local_ranks, 1u, p.ranks);
  return p;
}

/// Where other processes fail too, the launcher ends this one before its turn.
constexpr std::chrono::milliseconds kTurn{1500};

/// The process, and the name of the variable with its rank.
std::optional<std::pair<LaunchedProcess, const char*>> process_and_variable() {
  // Under srun too, which may have started torchrun.
  if (std::getenv("TORCHELASTIC_RUN_ID"))
    if (const auto p = process_of_torchrun()) return std::pair{*p, "RANK"};
  for (const Variables& v : kLaunchers) {
    if (!std::getenv(v.rank) || !std::getenv(v.ranks)) continue;
    LaunchedProcess p{number_in(v.rank), number_in(v.ranks), number_in(v.local_ranks), v.launcher};
    if (p.rank >= p.ranks)
      throw usage_error(
          fmt::format("{} = {} and {} = {} contradict each other", v.rank, p.rank, v.ranks, p.ranks),
          "start the run with mpirun or srun, without setting their variables");
    p.local_ranks = std::clamp(p.local_ranks, 1u, p.ranks);
    if (p.ranks > 1) return std::pair{p, v.rank};
  }
  if (const auto p = process_of_torchrun()) return std::pair{*p, "RANK"};
  return std::nullopt;
}

}  // namespace

std::optional<LaunchedProcess> launched_process() {
  const auto found = process_and_variable();
  return found ? std::optional(found->first) : std::nullopt;
}

std::unique_ptr<LaunchWatch> watch_launch() {
  const auto found = process_and_variable();
  if (!found) return nullptr;
  const LaunchedProcess& p = found->first;
  return std::make_unique<LaunchWatch>(found->second, p.rank, p.local_ranks == p.ranks);
}

std::string name_of_process() {
  const LaunchedProcess p = launched_process().value_or(LaunchedProcess{});
  return fmt::format("rank {} of {} on {}, process {}", p.rank, p.ranks, host_name(), ::getpid());
}

std::uint32_t threads_of_process() {
  const auto found = process_and_variable();
  return found ? default_threads(found->first.local_ranks, found->second) : default_threads();
}

std::optional<runfile::Override> ranks_of_run(const runfile::RunConfig& c) {
  const std::optional<LaunchedProcess> launched = launched_process();
  const std::uint32_t tensor = c.run.parallel.tensor, processes = launched ? launched->ranks : 1;
  const std::uint64_t wanted = std::uint64_t{c.run.parallel.data} * tensor;
  const bool given = c.given.count("parallel.data");
  if (given ? wanted == processes : processes == 1 && wanted == 1) return std::nullopt;
  const std::string key = given ? "parallel.data" : "parallel.tensor";
  const Where where = planning::position_of_key(c, key);
  const std::string setting =
      !given        ? fmt::format("parallel.tensor = {}", tensor)
      : tensor == 1 ? fmt::format("parallel.data = {}", wanted)
                    : fmt::format("parallel.data x parallel.tensor = {} x {}", c.run.parallel.data, tensor);
  if (!launched)
    throw usage_error(fmt::format("{} needs {} processes, but this one was started alone", setting, wanted),
                      fmt::format("mpirun -n {} trainhost ...; or set {} = 1", wanted, key), where);
  if (given)
    throw usage_error(
        fmt::format("{}, but {} has started {} processes", setting, launched->launcher, processes),
        fmt::format("start {} processes, or remove parallel.data: it is {} then", wanted,
                    tensor == 1 ? "their number" : "their number divided by parallel.tensor"),
        where);
  if (processes % tensor)
    throw usage_error(fmt::format("{} does not divide the {} processes that {} has started", setting,
                                  processes, launched->launcher),
                      fmt::format("start a multiple of {}", tensor), where);
  if (processes == tensor) return std::nullopt;
  return runfile::Override{"parallel.data", std::to_string(processes / tensor),
                           std::string(launched->launcher)};
}

std::unique_ptr<plugin::Communicator> connect_ranks(const runfile::RunConfig& c, plugin::Registry& registry) {
  const std::optional<LaunchedProcess> launched = launched_process();
  if (!launched) return nullptr;
  const bool by_torchrun = launched->launcher == kTorchrun;
  const std::string id = c.communicator != "auto" ? c.communicator : by_torchrun ? "nccl" : "mpi";
  const std::uint64_t timeout_ms = std::uint64_t{c.communicator_timeout} * 1000;
  plugin::CommunicatorPlugin& communicator = registry.communicator(id);
  std::unique_ptr<plugin::Communicator> ranks;
  try {
    ranks = communicator.connect(timeout_ms);
  } catch (const plugin::PluginError& e) {
    if (id != "nccl" && e.status() != "unavailable") throw;
    if (id != "nccl") throw ConnectionFailure(usage_error(e.message_with_plugin(), e.hint()), false);
    if (!by_torchrun || e.status() != "unavailable")
      throw ConnectionFailure(usage_error(e.what(), e.hint()), e.status() == "cancelled");
    throw ConnectionFailure(
        usage_error(fmt::format("torchrun has started {} processes, which only NCCL connects: {}",
                                launched->ranks, e.what()),
                    fmt::format("mpirun -n {} trainhost ... connects them without GPUs{}", launched->ranks,
                                e.hint().empty() ? "" : "; else " + e.hint())),
        false);
  }
  if (ranks->rank() != launched->rank || ranks->ranks() != launched->ranks)
    throw usage_error(
        fmt::format("this process is rank {} of {} for {}, but {} of {} for parallel.communicator = "
                    "\"{}\"",
                    launched->rank, launched->ranks, launched->launcher, ranks->rank(), ranks->ranks(), id),
        "set parallel.communicator = \"auto\"");
  registry.set_ranks(ranks.get(), timeout_ms);
  return ranks;
}

void end_together(plugin::Communicator& ranks, const Error& e) {
  const auto* of_plugin = dynamic_cast<const plugin::PluginError*>(&e);
  const Error failed(e.code(), of_plugin ? of_plugin->message_with_plugin() : e.what(), e.hint(), e.where());
  const auto* several = dynamic_cast<const runfile::RunFileErrors*>(&e);
  try {
    training::Ranks(&ranks).together([&] { throw failed; });
  } catch (const training::SharedError&) {
    if (!several || ranks.rank() > 0) throw;
    // Of the errors of rank 0 the others got the first; it reports all of them.
    const std::vector<runfile::RunFileError>& all = several->errors();
    for (std::size_t i = 0; i + 1 < all.size(); ++i) write_stderr("trainhost: " + all[i].error.full() + "\n");
    const Error& last = all.back().error;
    throw training::SharedError(last.code(), last.what(), last.hint(), last.where());
  }
  throw failed;
}

Exit run_together(const std::function<plugin::Communicator*()>& ranks, const std::function<Exit()>& f) {
  const std::optional<LaunchedProcess> launched = launched_process();
  if (!launched) return f();
  // Until the processes are connected, a mistake is one of all of them: the first one says it.
  const auto here = [&] {
    return launched->rank == 0 && !ranks() ? "" : fmt::format("rank {} on {}: ", launched->rank, host_name());
  };
  Error failed(Exit::kFailed, "");
  try {
    return f();
  } catch (const training::SharedError& e) {
    // While the processes are connected: they end together, and the launcher ends those that are left when
    // the first one returns a code other than 0.
    if (launched->rank == 0) write_stderr("trainhost: " + e.full() + "\n");
    return e.code();
  } catch (const runfile::RunFileErrors&) {  // before the processes were connected
    if (launched->rank > 0) std::this_thread::sleep_for(kTurn);
    throw;
  } catch (const ConnectionFailure& e) {
    if (e.reported_by_first()) return e.code();
    failed = Error(e.code(), here() + e.what(), e.hint(), e.where());
  } catch (const plugin::PluginError& e) {
    failed = Error(e.code(), here() + e.message_with_plugin(), e.hint(), e.where());
  } catch (const Error& e) {
    failed = Error(e.code(), here() + e.what(), e.hint(), e.where());
  } catch (const std::bad_alloc&) {
    failed = run_error(here() + "out of memory", "see trainhost plan");
  } catch (const std::exception& e) {
    failed = run_error(here() + "internal error: " + e.what(), "please report it with the command line");
  }
  plugin::Communicator* const connected = ranks();
  if (!connected && launched->rank > 0) std::this_thread::sleep_for(kTurn);
  if (!connected) throw failed;
  write_stderr("trainhost: " + failed.full() + "\n");
  connected->abort(failed.code());
  return failed.code();  // not reached
}

}  // namespace trainhost::cli
