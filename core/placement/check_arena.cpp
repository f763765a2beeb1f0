// See check_arena.hpp.
#include "core/placement/check_arena.hpp"

#include <cassert>
#include <iterator>

namespace trainhost::placement {

/// Removes [begin, end) from every piece. Records for all owners except `keep` that `op` overwrote them.
void ArenaMap::cut(Pieces& pieces, std::uint64_t begin, std::uint64_t end, std::size_t keep,
                   std::uint32_t op) {
  auto at = pieces.upper_bound(begin);
  if (at != pieces.begin() && std::prev(at)->second.end > begin) --at;
  while (at != pieces.end() && at->first < end) {
    const std::uint64_t from = at->first;
    const Piece piece = at->second;
    at = pieces.erase(at);
    if (piece.owner != keep && lost_to_[piece.owner] == kNone) lost_to_[piece.owner] = op;
    if (from < begin) pieces[from] = {begin, piece.owner};
    if (piece.end > end) at = std::next(pieces.emplace(end, Piece{piece.end, piece.owner}).first);
  }
}

void ArenaMap::write(BufferId b, std::uint32_t op, std::uint32_t instance) {
  if (p_[b].storage == Storage::kExternal) return;
  const std::size_t me = index(b, instance);
  const std::uint64_t begin = plan_.offset[b] + me % 2 * p_[b].instance_stride(),
                      end = begin + p_[b].instance_bytes();
  if (begin == end) return;
  Pieces& pieces = tiers_[p_[b].tier];
  cut(pieces, begin, end, me, op);
  assert((pieces.lower_bound(begin) == pieces.end() || pieces.lower_bound(begin)->first >= end) &&
         "pieces are disjoint");
  pieces[begin] = {end, me};
  lost_to_[me] = kNone;
}

bool ArenaMap::overlap(BufferId a, BufferId b) const {
  if (a == b || p_[a].storage == Storage::kExternal || p_[b].storage == Storage::kExternal) return false;
  return p_[a].tier == p_[b].tier && plan_.offset[a] < plan_.offset[b] + p_[b].bytes() &&
         plan_.offset[b] < plan_.offset[a] + p_[a].bytes();
}

}  // namespace trainhost::placement
