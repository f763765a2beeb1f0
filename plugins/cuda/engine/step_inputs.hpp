// What a step hands to the device beside bulk data, through one page-locked buffer: token ids, targets, the
// order in which the embedding's gradient is added, and the scalars; and the scalars on their way back. A few
// kilobytes, counted apart.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "plugins/cuda/engine/arenas.hpp"
#include "plugins/cuda/host/host_ops.hpp"

namespace trainhost::cuda {

class StepInputs {
 public:
  StepInputs(const step::Program& program, const Arenas& arenas);

  /// The ids of a whole update (or of one evaluation: fewer tokens), sorted by micro-batch. Nothing may be
  /// under way.
  void fill(const std::int32_t* tokens, const std::int32_t* targets, std::uint64_t micro_batches,
            std::uint64_t rows);
  /// What the host's operations of a micro-batch see of its rows [first, first + rows).
  host::Step host_step(std::uint64_t micro, std::uint64_t first, std::uint64_t rows) const;
  /// Queues the copies of one micro-batch's share.
  void send(cudaStream_t stream, std::uint64_t micro, std::uint64_t rows, std::uint32_t instance) const;
  void send_token(cudaStream_t stream, std::int32_t token) const;

  /// Page-locked scalars: what goes up before a section, and what came back.
  double* up() const { return up_; }
  const double* back() const { return back_; }
  void send_scalars(cudaStream_t stream) const;
  void fetch_scalars(cudaStream_t stream) const;

 private:
  void sort(const std::int32_t* tokens, std::uint64_t rows, std::int32_t* order);

  const step::Program& program_;
  const Arenas& arenas_;
  step::BufferId ids_, targets_, order_, token_, scalars_;
  std::int32_t* staged_;  // [accumulate][ids | targets | order][M]
  double *up_, *back_;
  std::vector<std::uint32_t> count_;  // by id, for sorting
};

}  // namespace trainhost::cuda
