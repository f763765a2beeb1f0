// The communicator of MPI: manifest, the environment of its launchers, and the functions of the interface.
// What is sent: mpi_ranks.hpp. Loading this library loads libmpi, so the host loads it only for a run of
// several processes; without libmpi that fails with the loader's message.
#include <dlfcn.h>
#include <mpi.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "core/abi/error_guard.hpp"
#include "plugins/mpi/mpi_ranks.hpp"
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

/// Launchers set the number of this process and of all processes; those of Open MPI under Slurm come from
/// Slurm.
struct Launcher {
  const char *rank, *ranks, *local_rank, *local_ranks, *name;
};
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun (Open MPI)"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "mpirun (MPICH)"},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "srun"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "srun"},
};

th_launch launch_of_environment() {
  for (const Launcher& l : kLaunchers) {
    const char *rank = environment(l.rank), *ranks = environment(l.ranks);
    if (!rank || !ranks) continue;
    th_launch out{};
    out.struct_size = sizeof out, out.rank = number(rank), out.ranks = number(ranks);
    if (const char* local = environment(l.local_rank)) out.local_rank = number(local);
    if (const char* local = l.local_ranks ? environment(l.local_ranks) : nullptr)
      out.local_ranks = number(local);
    std::strncpy(out.launcher, l.name, sizeof out.launcher - 1);
    return out;
  }
  throw abi::StatusError(TH_E_UNAVAILABLE, "this process was not started by mpirun or srun",
                         "start it with mpirun -n RANKS trainhost ...");
}

Ranks& of(th_communicator_inst* i) { return *reinterpret_cast<Ranks*>(i); }

th_status probe(const th_host*, th_launch* out, th_error* e) {
  return abi::guard(e, [&] { th::out(out, launch_of_environment()); });
}

th_status create(const th_host*, std::uint64_t timeout_ms, th_communicator_inst** instance, th_launch* out,
                 th_error* e) {
  *instance = nullptr;
  return abi::guard(e, [&] {
    th_launch launch = launch_of_environment();
    // Components of Open MPI look for the symbols of libmpi among the global ones.
    Dl_info libmpi{};
    if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &libmpi) && libmpi.dli_fname)
      dlopen(libmpi.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    auto ranks = std::make_unique<Ranks>(timeout_ms, launch.rank);
    if (ranks->ranks() != launch.ranks)
      throw abi::StatusError(TH_E_UNAVAILABLE,
                             std::string(launch.launcher) + " has started " + std::to_string(launch.ranks) +
                                 " processes, but " + library_name() + " connects " +
                                 std::to_string(ranks->ranks()),
                             "start it with the mpirun of " + library_name());
    launch.rank = ranks->rank(), launch.local_rank = ranks->local_rank(),
    launch.local_ranks = ranks->local_ranks();
    th::out(out, launch);
    *instance = reinterpret_cast<th_communicator_inst*>(ranks.release());
  });
}

th_status start(th_communicator_inst* i, const th_collective* c, std::uint64_t* ticket, th_error* e) {
  return abi::guard(e, [&] { *ticket = of(i).start(*c); });
}
th_status wait(th_communicator_inst* i, std::uint64_t ticket, th_error* e) {
  return abi::guard(e, [&] { of(i).wait(ticket); });
}
void abort_ranks(th_communicator_inst* i, std::int32_t code) { of(i).abort(code); }
void destroy(th_communicator_inst* i) { delete &of(i); }

constexpr th_communicator kTable = {sizeof kTable, 0, probe, create, start, wait, abort_ranks, destroy};

const void* table_of(const char* id) { return std::strcmp(id, TH_COMMUNICATOR_ID) == 0 ? &kTable : nullptr; }
constexpr th_plugin kPlugin = {sizeof kPlugin, TH_ABI_MAJOR, TH_ABI_MINOR, "mpi",
                               "0.1.0",        nullptr,      nullptr,      table_of};

}  // namespace
}  // namespace trainhost::mpi

extern "C" TH_EXPORT const th_plugin* TH_ENTRY(void) { return &trainhost::mpi::kPlugin; }
