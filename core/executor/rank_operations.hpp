// The collective operations of a step program, executed through the communicator of the run. The walker calls
// it in place of the backend.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/base/collectives.hpp"
#include "core/executor/storage.hpp"
#include "core/model/tensor_parts.hpp"
#include "core/step/program.hpp"

namespace trainhost::executor {

/// Bytes and time of the collectives of a run, on this rank. See th_counters.
struct RankTraffic {
  std::uint64_t bytes = 0;      // that this rank sends: 2(N-1)/N of a sum on all ranks, (N-1)/N of the others
  std::uint64_t waited_ns = 0;  // in kWait and kSumScalars
};

/// The collective operation that `op`, not a kWait, starts, without scratch. `buffer`: the address of its
/// first operand.
Collective collective_of(const step::Program& program, const step::Op& op, void* buffer);

/// Bytes that rank `rank` sends, whatever the algorithm: its pieces to the others, and others' pieces to
/// them.
std::uint64_t bytes_sent(const Collective& c, std::uint32_t rank, std::uint32_t ranks);

/// True for the operations without which a rank cannot compute a pass over the program: those that exchange
/// the weights of ZeRO 3, and all of tensor parallelism.
bool is_needed_to_compute(const step::Program& program, const step::Op& op);

/// Throws StatusError (TH_E_ARG) if the communicator is not that of the run; null: of one process.
void require_ranks_of_run(const step::Program& program, const Collectives* ranks);

/// The elements of this rank's TP part of a tensor that it writes to a checkpoint; the ranks together write
/// each element once. Of what DP ranks divide (`sharded`; `like`: a buffer of the parameter, `offset`: the
/// first element of the part in the parameter) its shard; what several ranks have they divide evenly.
Shard elements_to_write(const step::Program& program, const TensorInfo& whole, bool sharded,
                        step::BufferId like, std::uint64_t offset);

/// What the ranks have of a tensor, its values or its state.
struct DividedTensor {
  TensorInfo whole;
  step::BufferId like;   // the weight or gradient of the parameter that the tensor is in; used if sharded
  std::uint64_t offset;  // of the tensor, or of a TP rank's part of it, in the parameter
  bool sharded;          // a DP rank has its shard of the parameter alone
  // Copies `count` elements of this rank, `first` counted from the first one of the parameter that it has.
  std::function<void(std::uint64_t first, std::uint64_t count, float* to)> read;
};
using WholeTensorSink = std::function<void(std::uint64_t first, std::span<const float> values)>;
/// Passes a whole tensor to `to`, a part at a time, in order, on every rank. All ranks call it. `scratch`: at
/// least two floats, in host memory.
void gather_tensor(const step::Program& program, Collectives& ranks, std::span<float> scratch,
                   const DividedTensor& tensor, const WholeTensorSink& to);

class RankOperations {
 public:
  /// `ranks`: null in a run of one rank, which has no such operations. All arguments must outlive it. Throws
  /// StatusError (TH_E_ARG) if the communicator is not that of the run.
  RankOperations(const step::Program& program, Storage& storage, Collectives* ranks);

  static bool contains(step::OpKind kind) {
    return kind == step::OpKind::kAllReduce || kind == step::OpKind::kReduceScatter ||
           kind == step::OpKind::kAllGather || kind == step::OpKind::kWait ||
           kind == step::OpKind::kSumScalars;
  }
  bool present() const { return ranks_ != nullptr; }
  /// Runs one operation. Throws Error if another rank failed.
  void run(const step::Op& op);
  const RankTraffic& traffic() const { return traffic_; }

  /// gather_tensor() through the scratch of the collectives.
  void gather(const DividedTensor& tensor, const WholeTensorSink& to);

 private:
  void place_shard(const step::Op& op);

  const step::Program& program_;
  Storage& storage_;
  Collectives* ranks_;
  std::vector<std::uint64_t> tickets_;  // by buffer, of the collective that was started last on it
  RankTraffic traffic_;
};

}  // namespace trainhost::executor
