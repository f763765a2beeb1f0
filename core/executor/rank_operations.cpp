// See rank_operations.hpp.
#include "core/executor/rank_operations.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <string>

#include "core/abi/error_guard.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"

namespace trainhost::executor {
namespace {

using step::OpKind;
using Clock = std::chrono::steady_clock;

}  // namespace

std::uint64_t bytes_sent(const Collective& c, std::uint32_t rank, std::uint32_t ranks) {
  const Shard own{std::min(c.count, c.piece * rank),
                  std::min(c.piece, c.count - std::min(c.count, c.piece * rank))};
  const std::uint64_t others = c.count - own.count, copies = std::uint64_t{ranks} - 1;
  std::uint64_t elements = 0;
  if (c.kind != CollectiveKind::kAllGather) elements += others;  // a part of every other rank's sum
  if (c.kind != CollectiveKind::kReduceScatter)
    elements += own.count * copies;  // its piece to every other rank
  return elements * size_of(c.dtype);
}

void require_ranks_of_run(const step::Program& program, const Collectives* ranks) {
  const Parallelism& p = program.run.parallel;
  if (!ranks)
    throw abi::StatusError(TH_E_ARG, "a run on " + std::to_string(p.data) + " ranks needs a communicator");
  if (ranks->ranks() != p.data || ranks->rank() + 1 != p.data_rank)
    throw abi::StatusError(
        TH_E_ARG, "rank " + std::to_string(ranks->rank()) + " of " + std::to_string(ranks->ranks()) +
                      " in the communicator is not rank " + std::to_string(p.data_rank - 1) + " of " +
                      std::to_string(p.data) + " in the run");
}

Collective collective_of(const step::Program& program, const step::Op& op, void* buffer) {
  const step::Buffer& b = program[op[step::operand::all_reduce::kBuffer]];
  Collective c;
  c.kind = op.kind == OpKind::kReduceScatter ? CollectiveKind::kReduceScatter
           : op.kind == OpKind::kAllGather   ? CollectiveKind::kAllGather
                                             : CollectiveKind::kAllReduce;
  c.dtype = b.dtype, c.data = buffer, c.count = b.rows * b.cols;
  if (op.kind == OpKind::kSumScalars) {
    // In the micro section what the ranks must agree on before it; in the update what they have computed.
    static_assert(step::kNorm2 == step::kLossSum + 1 && step::kCancelled == step::kCounted + 1);
    c.data = static_cast<double*>(buffer) + (op.phase == kUpdate ? step::kLossSum : step::kCounted);
    c.count = 2;
  }
  c.piece = shard_elements(c.count, program.run.parallel.data);
  return c;
}

bool exchanges_weights(const step::Program& program, const step::Op& op) {
  return op.kind == OpKind::kAllGather ||
         (op.kind == OpKind::kWait &&
          std::string_view(program[op[step::operand::wait::kBuffer]].role).starts_with("w."));
}

RankOperations::RankOperations(const step::Program& program, Storage& storage, Collectives* ranks)
    : program_(program), storage_(storage), ranks_(ranks), tickets_(ranks ? program.buffers.size() : 0) {
  const Parallelism& p = program.run.parallel;
  if (program.run.mode == RunMode::kInference || p.data == 1) {
    ranks_ = nullptr;
    return;
  }
  require_ranks_of_run(program, ranks_);
}

/// Copies the shard of this rank to its elements of the whole weight.
void RankOperations::place_shard(const step::Op& op) {
  using namespace step::operand;
  const step::BufferId shard = op[all_gather::kShard], whole = op[all_gather::kBuffer];
  const step::Buffer& s = program_[shard];
  const std::uint64_t first = step::shard_of(program_, whole).first * size_of(s.dtype);
  if (s.bytes() > 0)
    std::memcpy(static_cast<std::byte*>(storage_.at(whole)) + first, storage_.at(shard), s.bytes());
}

void RankOperations::run(const step::Op& op) {
  assert(ranks_ && contains(op.kind));
  const auto start = Clock::now();
  if (op.kind == OpKind::kWait) {
    ranks_->wait(tickets_[op[step::operand::wait::kBuffer]]);
  } else {
    const step::BufferId scratch = op[step::operand::all_reduce::kScratch];
    Collective c = collective_of(program_, op, storage_.at(op[step::operand::all_reduce::kBuffer]));
    c.scratch = storage_.at(scratch), c.scratch_bytes = program_[scratch].bytes();
    if (op.kind == OpKind::kAllGather && op.ins > step::operand::all_gather::kShard.slot) place_shard(op);
    traffic_.bytes += bytes_sent(c, ranks_->rank(), ranks_->ranks());
    const std::uint64_t ticket = ranks_->start(c);
    tickets_[op[step::operand::all_reduce::kBuffer]] = ticket;
    if (op.kind != OpKind::kSumScalars) return;
    ranks_->wait(ticket);
  }
  traffic_.waited_ns += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

/// Through the scratch of the collectives, a part that fits at a time.
void RankOperations::gather(step::BufferId like, std::uint64_t first, std::uint64_t count, const float* own,
                            const std::function<void(std::uint64_t, std::span<const float>)>& to) {
  assert(ranks_);
  const std::uint64_t elements = step::whole_elements(program_, like);
  const step::BufferId scratch = program_.find(step::role::kCollectiveScratch);
  float* const part = storage_.f32(scratch);
  const std::uint64_t most = program_[scratch].bytes() / sizeof(float);
  for (std::uint32_t rank = 0; rank < ranks_->ranks(); ++rank) {
    const Shard shard = trainhost::shard_of(elements, ranks_->ranks(), rank);
    const std::uint64_t end = std::min(first + count, shard.first + shard.count);
    for (std::uint64_t at = std::max(first, shard.first); at < end;) {
      const std::uint64_t n = std::min(most, end - at);
      if (rank == ranks_->rank()) std::copy_n(own + (at - shard.first), n, part);
      Collective c;
      c.kind = CollectiveKind::kBroadcast, c.root = rank, c.data = part, c.count = n;
      ranks_->run(c);
      to(at, {part, n});
      at += n;
    }
  }
}

}  // namespace trainhost::executor
