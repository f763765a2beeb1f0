// See local_processes.hpp.
#include "plugins/mpi/local_processes.hpp"

#include <algorithm>

namespace trainhost::mpi {

void LocalRanks::set(std::uint32_t own, const std::vector<RankProcess>& all) {
  for (const RankProcess& p : all)
    if (p.rank != own && p.process.start != 0 && !has_ended(p.process)) others_.push_back(p);
}

std::optional<RankProcess> LocalRanks::ended() const {
  const auto found = std::ranges::find_if(others_, [](const RankProcess& p) { return has_ended(p.process); });
  return found == others_.end() ? std::nullopt : std::optional(*found);
}

}  // namespace trainhost::mpi
