// The meeting of the processes of a run before NCCL connects them: each says where it is, the first gives all
// of them the id of the NCCL communicator. An error of one process ends all of them; the first reports it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/common/nccl_library.hpp"
#include "plugins/nccl/launch_variables.hpp"
#include "plugins/nccl/store.hpp"

namespace trainhost::nccl {

/// What a process says of itself.
struct Introduction {
  std::string host;
  std::string gpu;  // its UUID; "" if the driver does not report it
  int device = 0;   // for messages
};

struct Meeting {
  cuda::nccl::UniqueId id;
  std::uint32_t local_rank = 0, local_ranks = 0;  // on this machine
};

class Rendezvous {
 public:
  /// Connects to the store, which rank 0 serves unless the launcher does. timeout_ms: for the whole meeting;
  /// 0: none. Throws StatusError (TH_E_ARG) if the store cannot be reached.
  Rendezvous(const LaunchVariables& launch, std::uint64_t timeout_ms);
  /// Rank 0 serves the store until the others have read what they need, at most some seconds.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;

  /// Calls f. If it throws, or another process has failed, this process and all others throw: rank 0 the
  /// error of the process that failed, which is named, the others TH_E_CANCELLED. A process whose rank 0 does
  /// not answer throws the error itself.
  void together(const std::function<void()>& f);
  /// Inside together(): waits for all ranks. make_id: called by rank 0. Throws StatusError (TH_E_ARG) if a
  /// rank does not come, or if two processes have one rank or one GPU.
  Meeting meet(const Introduction& own, const std::function<cuda::nccl::UniqueId()>& make_id);
  /// Inside together(): the text that rank 0 makes, on every rank.
  std::string of_first(const std::string& name, const std::function<std::string()>& make);
  /// Inside together(): throws if another process has failed.
  void require_no_failure();

 private:
  /// An error that another process has written into the store.
  struct Posted {
    abi::StatusError error;
  };
  std::string key(const std::string& name) const { return launch_.prefix + name; }
  [[noreturn]] void end(const abi::StatusError& e, bool own);
  void wait_for(const std::string& what, const std::function<bool()>& done,
                const std::function<std::string()>& missing);
  std::string missing_ranks();
  std::vector<std::uint32_t> local_numbers(const std::vector<Introduction>& all) const;
  std::vector<Introduction> read_introductions();

  LaunchVariables launch_;
  std::uint64_t timeout_ms_;
  Clock::time_point deadline_;
  std::unique_ptr<StoreServer> server_;  // of rank 0
  std::optional<StoreClient> store_;
};

}  // namespace trainhost::nccl
