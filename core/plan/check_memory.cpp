// See check_memory.hpp.
#include "core/plan/check_memory.hpp"

#include <iterator>

namespace trainhost::plan {

/// Takes [begin, end) out of every piece; all owners but `keep` have lost bytes.
void ArenaMap::cut(std::uint64_t begin, std::uint64_t end, BufferId keep, std::uint32_t op) {
  auto at = pieces_.upper_bound(begin);
  if (at != pieces_.begin() && std::prev(at)->second.end > begin) --at;
  while (at != pieces_.end() && at->first < end) {
    const std::uint64_t from = at->first;
    const Piece piece = at->second;
    at = pieces_.erase(at);
    if (piece.owner != keep && lost_to_[piece.owner] == kNobody) lost_to_[piece.owner] = op;
    if (from < begin) pieces_[from] = {begin, piece.owner};
    if (piece.end > end) at = std::next(pieces_.emplace(end, Piece{piece.end, piece.owner}).first);
  }
}

void ArenaMap::write(BufferId b, std::uint32_t op) {
  if (p_[b].storage == Storage::kExternal) return;
  const std::uint64_t begin = plan_.offset[b], end = begin + p_[b].bytes();
  if (begin == end) return;
  cut(begin, end, b, op);
  pieces_[begin] = {end, b};
  lost_to_[b] = kNobody;
}

bool ArenaMap::overlap(BufferId a, BufferId b) const {
  if (a == b || p_[a].storage == Storage::kExternal || p_[b].storage == Storage::kExternal) return false;
  return plan_.offset[a] < plan_.offset[b] + p_[b].bytes() &&
         plan_.offset[b] < plan_.offset[a] + p_[a].bytes();
}

}  // namespace trainhost::plan
