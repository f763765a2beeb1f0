// The environment variables by which torchrun, and launchers like it, say which process of a run this one is
// and where the processes meet.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trainhost::nccl {

struct LaunchVariables {
  std::uint32_t rank = 0, ranks = 0;  // RANK, WORLD_SIZE
  std::string address;                // MASTER_ADDR: a host name or an IP address
  std::uint16_t port = 0;             // MASTER_PORT
  /// LOCAL_RANK and LOCAL_WORLD_SIZE; a launcher may not set them.
  std::optional<std::uint32_t> local_rank, local_ranks;
  /// torchrun serves a store at the address (TORCHELASTIC_USE_AGENT_STORE); else rank 0 does.
  bool launcher_has_store = false;
  /// Of the keys in the store: another one for every start of the processes.
  std::string prefix;

  std::string place() const { return address + ":" + std::to_string(port); }
};

/// Throws abi::StatusError: TH_E_UNAVAILABLE if RANK or WORLD_SIZE is not set, TH_E_ARG, with the variable
/// and its value, if one is missing or wrong.
LaunchVariables read_launch_variables();

}  // namespace trainhost::nccl
