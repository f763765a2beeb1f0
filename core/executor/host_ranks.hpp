// The communicator of a run as the host offers it to a trainer: extension "trainhost.ranks/1".
#pragma once
#include <memory>

#include "core/base/collectives.hpp"
#include "trainhost/communicator.h"

namespace trainhost::executor {

class HostRanks final : public Collectives {
 public:
  /// Null if the host has no ranks: a run of one process. host must outlive it.
  static std::unique_ptr<HostRanks> of(const th_host* host);

  std::uint32_t rank() const override { return ranks_->rank; }
  std::uint32_t ranks() const override { return ranks_->ranks; }
  std::uint64_t timeout_ms() const { return ranks_->timeout_ms; }
  /// Throw abi::StatusError with the code of the host.
  std::uint64_t start(const Collective& c) override;
  void wait(std::uint64_t ticket) override;

 private:
  explicit HostRanks(const th_ranks* ranks) : ranks_(ranks) {}
  const th_ranks* ranks_;
};

}  // namespace trainhost::executor
