// The ranks of a run as the engine sees them: collective operations on device memory by NCCL, and the few
// numbers that the host communicator of the run (MPI) carries in host memory: the identity of the NCCL
// communicator, the wish to stop, parts of checkpoints.
//
// There is an NCCL communicator for each group of ranks (RankGroup) that the program has collectives of: all
// ranks, and of a run with both the DP ranks with the same part of the model and the TP ranks of one model.
// They do not block: a call that is not complete is asked again until it is, and a wait for the device is a
// loop of queries. So every wait for other ranks ends after the timeout of the run.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/executor/host_ranks.hpp"
#include "core/step/program.hpp"
#include "plugins/cuda/common/nccl_library.hpp"

namespace trainhost::cuda {

/// A Collective on device memory; `own`: this rank's piece of an all-gather, where it is not in `data` yet.
struct DeviceCollective : Collective {
  const void* own = nullptr;
};

class NcclRanks {
 public:
  /// Null in a run of one rank. All ranks call it; it connects them. `program` and `host` must outlive it.
  /// The device must be current; device_name: for messages. Throws abi::StatusError, on all ranks: TH_E_ARG
  /// if two ranks have one GPU, or if the communicator of the host is not that of the run; TH_E_UNAVAILABLE
  /// if NCCL is missing or has another version on one of them; TH_E_IO if they cannot be connected.
  static std::unique_ptr<NcclRanks> of(const th_host* host, const step::Program& program, int device,
                                       const std::string& device_name);
  /// Together with the other ranks, unless an operation has failed or an exception ends this rank.
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;

  std::uint32_t rank() const { return host_->rank(); }
  std::uint32_t ranks() const { return host_->ranks(); }
  /// "NCCL 2.27.3"
  std::string version() const { return nccl_.text(); }
  /// The communicator of the host, for host memory.
  Collectives& host() const { return *host_; }

  /// Queues operations on the stream, as one group: NCCL may run them in one kernel. Elements are added in an
  /// order that follows from the machines, the number of ranks and the version of NCCL: the same ones give
  /// the same bits. Pieces of which the last are shorter are sent one by one.
  void queue(std::span<const DeviceCollective> group, cudaStream_t stream);
  /// Waits until all work of the stream is done. Throws TH_E_IO after the timeout, or if NCCL reports that
  /// another rank has failed.
  void wait_for(cudaStream_t stream, const char* what);
  /// Runs every kind and size of operation of the program once on temporary memory. NCCL allocates device
  /// memory at the first use of a connection, and the memory of the plan is to be taken after that.
  void warm_up();

 private:
  NcclRanks(std::unique_ptr<executor::HostRanks> host, const step::Program& program);
  /// A group of the ranks and its communicator; null: not connected, or aborted after a failure.
  struct Group {
    RankGroup of;
    GroupMember here;  // this rank in it
    nccl::Comm comm = nullptr;
  };
  void connect(int device, const std::string& device_name);
  void require_complete(nccl::Result r, const char* what);
  nccl::Result state() const;
  bool connected() const;
  const Group& group_of(const Collective& c) const;
  bool poll(const std::function<bool()>& done, std::uint64_t limit_ms);
  [[noreturn]] void fail(const std::string& why);
  void queue_one(const DeviceCollective& c, cudaStream_t stream);

  std::unique_ptr<executor::HostRanks> host_;
  const step::Program& program_;
  nccl::Library nccl_;
  std::vector<Group> groups_;
};

}  // namespace trainhost::cuda
