// The communicator of MPI: manifest, the environment of its launchers, and the functions of the interface,
// which are those of an engine. There is one per MPI library, since Open MPI and MPICH have different binary
// interfaces; the launcher says which one its processes need.
#include <dlfcn.h>
#include <signal.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "core/abi/error_guard.hpp"
#include "plugins/common/communicator_calls.hpp"
#include "plugins/mpi/engine_table.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(
    "id = \"mpi\"\n"
    "version = \"0.1.0\"\n"
    "kind = \"communicator\"\n"
    "summary = \"connects the processes of mpirun and srun, in host memory\"\n"
    "device = \"cpu\"\n"
    "options = []\n"
    "priority = 0\n");

namespace trainhost::mpi {
namespace {

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

std::uint32_t number(const char* text) { return static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10)); }

struct Library {
  const char *name, *engine, *package;  // engine: file in ../engines
};
constexpr Library kOpenMpi = {"Open MPI", "mpi-openmpi.so", "openmpi-bin"},
                  kMpich = {"MPICH", "mpi-mpich.so", "mpich"};

/// Launchers set the number of this process and of all processes; those of Open MPI under Slurm come from
/// Slurm. libraries: that their processes can use, the likelier one first.
struct Launcher {
  const char *rank, *ranks, *local_rank, *local_ranks, *name;
  std::array<const Library*, 2> libraries;
};
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     "mpirun (Open MPI)",
     {&kOpenMpi, nullptr}},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "mpirun (MPICH)", {&kMpich, nullptr}},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "srun", {&kOpenMpi, &kMpich}},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "srun", {&kOpenMpi, &kMpich}},
};

th_launch launch_of_environment(const Launcher** launcher = nullptr) {
  for (const Launcher& l : kLaunchers) {
    const char *rank = environment(l.rank), *ranks = environment(l.ranks);
    if (!rank || !ranks) continue;
    th_launch out{};
    out.struct_size = sizeof out, out.rank = number(rank), out.ranks = number(ranks);
    if (const char* local = environment(l.local_rank)) out.local_rank = number(local);
    if (const char* local = l.local_ranks ? environment(l.local_ranks) : nullptr)
      out.local_ranks = number(local);
    std::strncpy(out.launcher, l.name, sizeof out.launcher - 1);
    if (launcher) *launcher = &l;
    return out;
  }
  throw abi::StatusError(TH_E_UNAVAILABLE, "this process was not started by mpirun or srun",
                         "start it with mpirun -n RANKS trainhost ...");
}

std::filesystem::path folder_of_engines() {
  Dl_info self{};
  dladdr(reinterpret_cast<const void*>(&folder_of_engines), &self);
  const std::filesystem::path plugin =
      std::filesystem::weakly_canonical(self.dli_fname ? self.dli_fname : "");
  return plugin.parent_path().parent_path() / "engines";
}

/// The engine of a library; null, with the reason, if it cannot be used. It stays loaded.
const EngineTable* load(const Library& library, std::string& why) {
  const std::filesystem::path file = folder_of_engines() / library.engine;
  std::error_code ec;
  if (!std::filesystem::exists(file, ec)) {
    why = std::string("trainhost was built without ") + library.name + " (" + file.string() + " is missing)";
    return nullptr;
  }
  // Constructors of libraries below MPI (UCX) replace handlers of signals, which are the host's.
  std::array<struct sigaction, NSIG> handlers{};
  for (int s = 1; s < NSIG; ++s) sigaction(s, nullptr, &handlers[static_cast<std::size_t>(s)]);
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  for (int s = 1; s < NSIG; ++s)
    if (s != SIGKILL && s != SIGSTOP) sigaction(s, &handlers[static_cast<std::size_t>(s)], nullptr);
  if (!handle) {
    const char* reason = dlerror();
    why = std::string(library.name) + " cannot be loaded: " + (reason ? reason : file.string());
    return nullptr;
  }
  const auto entry = reinterpret_cast<EngineEntry>(dlsym(handle, kEngineSymbol));
  const EngineTable* const table = entry ? entry() : nullptr;
  if (table && table->abi == kEngineAbi) return table;
  why = "the engine " + file.string() + " does not belong to this build of the plugin";
  return nullptr;
}

const EngineTable& engine_of(const Launcher& launcher) {
  std::string reasons, packages;
  for (const Library* library : launcher.libraries) {
    if (!library) continue;
    std::string why;
    if (const EngineTable* table = load(*library, why)) return *table;
    reasons += (reasons.empty() ? "" : "; ") + why;
    packages += (packages.empty() ? "" : " or ") + std::string(library->package);
  }
  throw abi::StatusError(
      TH_E_UNAVAILABLE, std::string("this process was started by ") + launcher.name + ", but " + reasons,
      "install " + packages + ", or start it with the mpirun of the MPI library that is installed");
}

/// Of the one communicator of this process, after create().
const EngineTable* engine = nullptr;

th_status probe(const th_host*, th_launch* out, th_error* e) {
  return abi::guard(e, [&] {
    const Launcher* launcher = nullptr;
    const th_launch launch = launch_of_environment(&launcher);
    engine_of(*launcher);
    th::out(out, launch);
  });
}

th_status create(const th_host*, std::uint64_t timeout_ms, th_communicator_inst** instance, th_launch* out,
                 th_error* e) {
  *instance = nullptr;
  th_launch launch{};
  const th_status found = abi::guard(e, [&] {
    const Launcher* launcher = nullptr;
    launch = launch_of_environment(&launcher);
    engine = &engine_of(*launcher);
  });
  if (found != TH_OK) return found;
  const th_status status = engine->create(timeout_ms, &launch, instance, e);
  if (status == TH_OK) th::out(out, launch);
  return status;
}

th_status start(th_communicator_inst* i, const th_collective* c, std::uint64_t* ticket, th_error* e) {
  return engine->start(i, c, ticket, e);
}
th_status wait(th_communicator_inst* i, std::uint64_t ticket, th_error* e) {
  return engine->wait(i, ticket, e);
}
void abort_ranks(th_communicator_inst* i, std::int32_t code) { engine->abort(i, code); }
void destroy(th_communicator_inst* i) { engine->destroy(i); }

constexpr th_communicator kTable = {sizeof kTable, 0, probe, create, start, wait, abort_ranks, destroy};

const void* table_of(const char* id) { return plugins::communicator_of(id, kTable); }
constexpr th_plugin kPlugin = plugins::communicator_plugin("mpi", table_of);

}  // namespace
}  // namespace trainhost::mpi

extern "C" TH_EXPORT const th_plugin* TH_ENTRY(void) { return &trainhost::mpi::kPlugin; }
