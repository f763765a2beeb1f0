// The table of an engine. Compiled once per MPI library.
#include <dlfcn.h>
#include <mpi.h>

#include <memory>
#include <string>

#include "core/abi/error_guard.hpp"
#include "plugins/common/communicator_calls.hpp"
#include "plugins/mpi/engine_table.hpp"
#include "plugins/mpi/mpi_ranks.hpp"
#include "trainhost/plugin.h"

namespace trainhost::mpi {
namespace {

using Calls = plugins::CommunicatorCalls<Ranks>;

th_status create(std::uint64_t timeout_ms, th_launch* launch, th_communicator_inst** instance, th_error* e) {
  return abi::guard(e, [&] {
    // Components of Open MPI look for the symbols of libmpi among the global ones.
    Dl_info libmpi{};
    if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &libmpi) && libmpi.dli_fname)
      dlopen(libmpi.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    auto ranks = std::make_unique<Ranks>(timeout_ms, launch->rank);
    if (ranks->ranks() != launch->ranks)
      throw abi::StatusError(TH_E_UNAVAILABLE,
                             std::string(launch->launcher) + " has started " + std::to_string(launch->ranks) +
                                 " processes, but " + library_name() + " connects " +
                                 std::to_string(ranks->ranks()),
                             (std::string(launch->launcher) == "srun" ? "srun --mpi=pmix, or " : "") +
                                 ("start it with the mpirun of " + library_name()));
    launch->rank = ranks->rank(), launch->local_rank = ranks->local_rank(),
    launch->local_ranks = ranks->local_ranks();
    *instance = Calls::instance(ranks.release());
  });
}

constexpr EngineTable kTable = {kEngineAbi, create, Calls::start, Calls::wait, Calls::abort, Calls::destroy};

}  // namespace
}  // namespace trainhost::mpi

extern "C" TH_EXPORT const trainhost::mpi::EngineTable* trainhost_mpi_engine() {
  return &trainhost::mpi::kTable;
}
