// Inputs of a step and its scalar results, in one page-locked buffer (role kFeed): token ids, targets, the
// rows sorted by token id (the order in which the embedding's gradient is summed), and the scalars in both
// directions. These copies are a few kilobytes per step and are not part of the transfer counters.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "plugins/cuda/engine/arenas.hpp"
#include "plugins/cuda/host/host_ops.hpp"

namespace trainhost::cuda {

class StepInputs {
 public:
  /// Both arguments must outlive it.
  StepInputs(const step::Program& program, const Arenas& arenas);

  /// Stores the ids of a whole update, or of one evaluation (micro_batches = 1), and sorts the rows of each
  /// micro-batch by id. rows: of each micro-batch, at most the planned tokens; the others get token 0 and a
  /// target that is not counted. No copy from the buffer may be pending.
  /// starts: of the documents, null unless the run has several per sequence; the other rows are a document
  /// each.
  void fill(const std::int32_t* tokens, const std::int32_t* targets, const std::int32_t* starts,
            std::uint64_t micro_batches, std::uint64_t rows);
  /// Arguments of a host operation that processes rows [first, first + rows) of a micro-batch.
  host::Step host_step(std::uint64_t micro, std::uint64_t first, std::uint64_t rows) const;
  /// Stores the number of each micro-batch of an update, from `first` on; only of runs with dropout.
  void number_micro_batches(std::uint64_t first);
  /// Queues the copies of one micro-batch's ids, targets and order, and of its number, to the device.
  /// instance: of the ring buffers.
  void send(cudaStream_t stream, std::uint64_t micro, std::uint64_t rows, std::uint32_t instance) const;
  /// Queues the copy of one generated token. Overwrites the first stored id.
  void send_token(cudaStream_t stream, std::int32_t token) const;

  /// Page-locked copies of the 16 scalars: what send_scalars() copies to the device, and what fetch_scalars()
  /// has copied back once its stream has finished.
  double* up() const { return up_; }
  const double* back() const { return back_; }
  void send_scalars(cudaStream_t stream) const;
  void fetch_scalars(cudaStream_t stream) const;

 private:
  void sort_rows_by_id(const std::int32_t* tokens, std::uint64_t rows, std::int32_t* order);

  const step::Program& program_;
  const Arenas& arenas_;
  step::BufferId ids_, targets_, order_, starts_, micro_batch_, token_, scalars_;
  std::int32_t* staged_;              // [accumulate][ids | targets | order | starts][tokens of a micro-batch]
  std::int32_t* numbers_;             // [accumulate][2], behind them
  const std::uint64_t fed_;           // numbers per token: 3, or 4 with starts
  double *up_, *back_;                // [kScalarCount] each, in front of staged_
  std::vector<std::uint32_t> count_;  // [vocab + 1], scratch of the counting sort
};

}  // namespace trainhost::cuda
