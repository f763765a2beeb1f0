// Collective operations among the ranks of a run, as its users see them: the executor, which runs those of a
// step program, and the training loop. core/plugin implements the interface with a communicator plugin (MPI,
// NCCL); tests implement it with threads.
#pragma once
#include <cstdint>

#include "core/base/types.hpp"

namespace trainhost {

enum class CollectiveKind : std::uint32_t {
  kAllReduce = 1,      // every rank gets the sum, or maximum, of all ranks' elements
  kReduceScatter = 2,  // rank r gets the sum of piece r
  kAllGather = 3,      // every rank gets the pieces of all ranks
  kBroadcast = 4,      // every rank gets the elements of `root`
};
enum class Reduction : std::uint32_t { kSum = 1, kMax = 2 };

/// Some of the ranks of a run: `width` of them, `stride` apart. TP ranks are neighbours (stride 1); the DP
/// ranks with the same part of the model are as many ranks apart as there are TP ranks. The ranks form such
/// groups without gaps.
struct RankGroup {
  std::uint32_t width = 0, stride = 1;  // width 0: all ranks
};

/// A rank in its group.
struct GroupMember {
  std::uint32_t number = 0, count = 1;  // of this rank in the group, from 0; of its ranks
  std::uint32_t first = 0, stride = 1;
  /// The rank, among all, of member i.
  std::uint32_t rank(std::uint32_t i) const { return first + i * stride; }
};
inline GroupMember member_of(RankGroup group, std::uint32_t rank, std::uint32_t ranks) {
  if (group.width == 0) return {rank, ranks, 0, 1};
  const std::uint32_t number = rank / group.stride % group.width;
  return {number, group.width, rank - number * group.stride, group.stride};
}

/// One operation on `count` elements at `data`, in place. Piece r is elements [r * piece, (r + 1) * piece),
/// cut at `count`: the last pieces may be shorter or empty. Every rank starts the same operations in the same
/// order. In a group, which every rank starts among its own, ranks are the numbers of its members.
///
/// Reductions add the ranks' elements in the order of the ranks, each element in f32 (f64 for kF64), whatever
/// the number of ranks that share a machine: the same ranks give the same bits.
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kF32;  // kF32, kBF16, kF64, kI32 or kU8 (kU8: not reduced)
  Reduction reduction = Reduction::kSum;
  std::uint32_t root = 0;
  void* data = nullptr;     // kReduceScatter leaves the other ranks' pieces undefined
  std::uint64_t count = 0;  // elements
  std::uint64_t piece = 0;  // elements; used by kReduceScatter and kAllGather
  // Memory of the caller for what other ranks send, until wait() returns. Used in parts, so any size of at
  // least ranks() elements works. Operations are executed one after the other, so all of them may share it.
  void* scratch = nullptr;
  std::uint64_t scratch_bytes = 0;
  RankGroup group;
};

class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t ranks() const = 0;
  /// Starts an operation and returns its ticket. It may run until wait(); `c.data` must not be touched
  /// before. Throws Error.
  virtual std::uint64_t start(const Collective& c) = 0;
  /// Returns when the operation is complete on this rank. Throws Error if a rank failed or the timeout
  /// passed.
  virtual void wait(std::uint64_t ticket) = 0;

  void run(const Collective& c) { wait(start(c)); }
};

}  // namespace trainhost
