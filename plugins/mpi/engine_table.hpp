// What an engine of the plugin "mpi" exports: the communicator of one MPI library. The plugin itself links
// none, so that it can be loaded, and choose the engine, whichever library is installed.
#pragma once
#include "trainhost/communicator.h"

namespace trainhost::mpi {

inline constexpr std::uint32_t kEngineAbi = 1;

struct EngineTable {
  std::uint32_t abi;  // kEngineAbi of the engine's build; must stay the first member
  /// launch: what the launcher says of this process; the library completes it.
  th_status (*create)(std::uint64_t timeout_ms, th_launch* launch, th_communicator_inst**, th_error*);
  th_status (*start)(th_communicator_inst*, const th_collective*, std::uint64_t* ticket, th_error*);
  th_status (*wait)(th_communicator_inst*, std::uint64_t ticket, th_error*);
  void (*abort)(th_communicator_inst*, std::int32_t code);
  void (*destroy)(th_communicator_inst*);
};
using EngineEntry = const EngineTable* (*)();
inline constexpr const char* kEngineSymbol = "trainhost_mpi_engine";

}  // namespace trainhost::mpi
