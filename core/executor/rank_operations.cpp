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

/// Number of this rank, from 0, among all.
std::uint32_t number_of(const Parallelism& p) {
  const std::uint32_t data = p.data_rank ? p.data_rank - 1 : 0,
                      tensor = p.tensor_rank ? p.tensor_rank - 1 : 0;
  return data * p.tensor + tensor;
}

}  // namespace

std::uint64_t bytes_sent(const Collective& c, std::uint32_t rank, std::uint32_t ranks) {
  const GroupMember here = member_of(c.group, rank, ranks);
  const Shard own{std::min(c.count, c.piece * here.number),
                  std::min(c.piece, c.count - std::min(c.count, c.piece * here.number))};
  const std::uint64_t others = c.count - own.count, copies = std::uint64_t{here.count} - 1;
  std::uint64_t elements = 0;
  if (c.kind != CollectiveKind::kAllGather) elements += others;  // a part of every other rank's sum
  if (c.kind != CollectiveKind::kReduceScatter)
    elements += own.count * copies;  // its piece to every other rank
  return elements * size_of(c.dtype);
}

void require_ranks_of_run(const step::Program& program, const Collectives* ranks) {
  const Parallelism& p = program.run.parallel;
  const std::uint32_t all = p.data * p.tensor, number = number_of(p);
  if (!ranks)
    throw abi::StatusError(TH_E_ARG, "a run on " + std::to_string(all) + " ranks needs a communicator");
  if (ranks->ranks() != all || ranks->rank() != number)
    throw abi::StatusError(TH_E_ARG, "rank " + std::to_string(ranks->rank()) + " of " +
                                         std::to_string(ranks->ranks()) +
                                         " in the communicator is not rank " + std::to_string(number) +
                                         " of " + std::to_string(all) + " in the run");
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
  // The ranks agree on scalars all together. TP ranks have equal pieces of what they gather and scatter.
  const Parallelism& p = program.run.parallel;
  const bool tensor = op.flags & step::kAmongTensorRanks;
  if (tensor)
    c.group = {p.tensor, 1};
  else if (op.kind != OpKind::kSumScalars && p.tensor > 1)
    c.group = {p.data, p.tensor};
  const std::uint32_t members = c.group.width ? c.group.width : p.data * p.tensor;
  c.piece = tensor && op.kind != OpKind::kAllReduce ? c.count / members : shard_elements(c.count, members);
  return c;
}

bool is_needed_to_compute(const step::Program& program, const step::Op& op) {
  return op.kind == OpKind::kAllGather || (op.flags & step::kAmongTensorRanks) ||
         (op.kind == OpKind::kWait &&
          std::string_view(program[op[step::operand::wait::kBuffer]].role).starts_with("w."));
}

Shard elements_to_write(const step::Program& program, const TensorInfo& whole, bool sharded,
                        step::BufferId like, std::uint64_t offset) {
  const Parallelism& p = program.run.parallel;
  const std::uint32_t number = number_of(p), data = number / p.tensor, tensor = number % p.tensor;
  const std::uint64_t elements = part_of_tensor(whole, p, tensor).elements();
  const bool in_parts = elements < whole.elements();
  if (!sharded)
    return in_parts ? trainhost::shard_of(elements, p.data, data)
                    : trainhost::shard_of(elements, p.data * p.tensor, number);
  if (!in_parts && tensor > 0) return {};  // the first of the TP ranks has the same
  const Shard shard = trainhost::shard_of(step::whole_elements(program, like), p.data, data);
  const std::uint64_t begin = std::max(offset, shard.first),
                      end = std::min(offset + elements, shard.first + shard.count);
  return begin < end ? Shard{begin - offset, end - begin} : Shard{};
}

RankOperations::RankOperations(const step::Program& program, Storage& storage, Collectives* ranks)
    : program_(program), storage_(storage), ranks_(ranks), tickets_(ranks ? program.buffers.size() : 0) {
  const Parallelism& p = program.run.parallel;
  if (program.run.mode == RunMode::kInference || p.data * p.tensor == 1) {
    ranks_ = nullptr;
    return;
  }
  require_ranks_of_run(program, ranks_);
}

/// Copies the shard of this rank to its elements of the whole weight, its rows to those of all TP ranks.
void RankOperations::place_shard(const step::Op& op) {
  using namespace step::operand;
  const step::BufferId shard = op[all_gather::kShard], whole = op[all_gather::kBuffer];
  const step::Buffer& s = program_[shard];
  const std::uint64_t first = op.flags & step::kAmongTensorRanks
                                  ? (program_.run.parallel.tensor_rank - 1) * s.bytes()
                                  : step::shard_of(program_, whole).first * size_of(s.dtype);
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

/// One half of the scratch has what a rank sends, the other one the elements of the whole.
void gather_tensor(const step::Program& program, Collectives& ranks, std::span<float> scratch,
                   const DividedTensor& tensor, const WholeTensorSink& to) {
  const Parallelism& p = program.run.parallel;
  const std::uint64_t of_parameter = tensor.sharded ? step::whole_elements(program, tensor.like) : UINT64_MAX;
  const std::uint64_t most = scratch.size() / 2;
  float *const sent = scratch.data(), *const values = sent + most;
  // Ranks that have the same elements: the first of them sends.
  const std::uint32_t data = tensor.sharded ? p.data : 1,
                      parts = part_of_tensor(tensor.whole, p, 0).elements() < tensor.whole.elements()
                                  ? p.tensor
                                  : 1;
  for (std::uint64_t first = 0; first < tensor.whole.elements(); first += most) {
    const std::uint64_t count = std::min(most, tensor.whole.elements() - first);
    for (std::uint32_t t = 0; t < parts; ++t) {
      const TensorPart part = part_of_tensor(tensor.whole, p, t);
      const std::uint64_t part_begin = tensor.offset + part.elements_before(first),
                          part_end = tensor.offset + part.elements_before(first + count);
      for (std::uint32_t d = 0; d < data; ++d) {
        const Shard shard =
            tensor.sharded ? trainhost::shard_of(of_parameter, data, d) : Shard{0, of_parameter};
        const std::uint64_t begin = std::max(part_begin, shard.first),
                            end = std::min(part_end, shard.first + shard.count);
        if (begin >= end) continue;
        Collective c;
        c.kind = CollectiveKind::kBroadcast, c.root = d * p.tensor + t, c.data = sent, c.count = end - begin;
        if (c.root == ranks.rank()) tensor.read(begin - shard.first, c.count, sent);
        ranks.run(c);
        const std::uint64_t at = begin - tensor.offset;
        part.for_runs(at, c.count, [&](std::uint64_t i, std::uint64_t whole, std::uint64_t n) {
          std::copy_n(sent + (i - at), n, values + (whole - first));
        });
      }
    }
    to(first, {values, count});
  }
}

void RankOperations::gather(const DividedTensor& tensor, const WholeTensorSink& to) {
  assert(ranks_);
  const step::BufferId scratch = program_.find(step::role::kCollectiveScratch);
  gather_tensor(program_, *ranks_, {storage_.f32(scratch), program_[scratch].bytes() / sizeof(float)}, tensor,
                to);
}

}  // namespace trainhost::executor
