// The processes of a run, connected by NCCL, and collective operations among them on host memory: through a
// small buffer of the device, in rounds. What needs bandwidth does not come here: the CUDA trainer runs the
// collectives of its step program on device memory (plugins/cuda/engine/nccl_ranks.hpp).
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "plugins/cuda/common/nccl_library.hpp"
#include "plugins/nccl/device.hpp"
#include "plugins/nccl/launch_variables.hpp"
#include "plugins/nccl/rank_watch.hpp"
#include "trainhost/communicator.h"

namespace trainhost::nccl {

class HostRanks {
 public:
  /// Meets the other processes and connects them; on return all are connected. Throws abi::StatusError, on
  /// every rank: see Rendezvous.
  HostRanks(const LaunchVariables& launch, std::uint64_t timeout_ms);
  /// Together with the other ranks, unless an operation has failed.
  ~HostRanks();
  HostRanks(const HostRanks&) = delete;

  std::uint32_t rank() const { return launch_.rank; }
  std::uint32_t ranks() const { return launch_.ranks; }
  std::uint32_t local_rank() const { return local_rank_; }
  std::uint32_t local_ranks() const { return local_ranks_; }

  /// Runs the operation. A failure of a rank is reported by wait(), a wrong argument here.
  std::uint64_t start(const th_collective& c);
  void wait(std::uint64_t ticket);
  /// Ends all processes: this one has reported a failure.
  [[noreturn]] void abort(std::int32_t code);

 private:
  void connect(std::uint64_t timeout_ms);
  void require_complete(cuda::nccl::Result r, const char* what, const std::function<void()>& look = {});
  bool poll(const std::function<bool()>& done, const std::function<void()>& look = {});
  cuda::nccl::Result state() const;
  [[noreturn]] void fail(const std::string& why);
  void execute(const th_collective& c);
  void broadcast(const th_collective& c, std::uint64_t bytes);
  void finish(const char* operation);
  void gather(const std::byte* own, std::uint64_t own_bytes, std::uint64_t bytes, const char* operation);

  LaunchVariables launch_;
  std::uint64_t timeout_ms_;
  std::uint32_t local_rank_ = 0, local_ranks_ = 0;
  cuda::nccl::Library nccl_;
  std::optional<Device> device_;
  cuda::nccl::Comm comm_ = nullptr;
  std::optional<RankWatch> watch_;  // of several ranks
  std::uint64_t chunk_ = 0;         // bytes of a rank in a round
  std::uint64_t last_ticket_ = 0;
  std::string failure_;
};

}  // namespace trainhost::nccl
