// Whether the other ranks on this machine still run. MPI does not report a process that was killed: its
// launcher ends the others, if it does not hang itself.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/process/process_id.hpp"

namespace trainhost::mpi {

struct RankProcess {
  std::uint32_t rank = 0;
  ProcessId process;
};

/// Ranks of this machine that have said which process they are.
class LocalRanks {
 public:
  /// Leaves out processes that are not seen from here: those of other containers.
  void set(std::uint32_t own, const std::vector<RankProcess>& all);
  /// One that has ended.
  std::optional<RankProcess> ended() const;

 private:
  std::vector<RankProcess> others_;
};

}  // namespace trainhost::mpi
