// Part of Executor: norms of the gradients of single layers. They are computed when they are asked for, of the
// gradients that the last update has left, so other steps cost nothing and the plan has no buffer for them.
// Gradients have their memory during micro-batches and update (core/placement/lifetimes.cpp), not in other
// sections.
#include <array>
#include <cassert>
#include <numeric>

#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"
#include "plugins/cuda/engine/executor.hpp"

namespace trainhost::cuda {

using step::OpKind;
using namespace step::operand;

double Executor::layer_grad_squares(std::int32_t layer) {
  if (!gradients_complete_) return -1.0;
  std::array<double, step::kScalarCount> scalars{};  // for operations of the host, which add to kNorm2
  double* partials = nullptr;
  const std::uint32_t slots = program_.traits.slots;
  const step::Section s = program_.section(step::SectionKind::kUpdate);
  // The operations of the update name the gradients that this rank counts, and its shards of them.
  for (std::uint32_t i = s.begin; i < s.end; ++i) {
    const step::Op& op = program_.ops[i];
    if (op.kind != OpKind::kGradSquares || op.layer != layer) continue;
    const step::BufferId grad = op[grad_squares::kGrad];
    if (step::runs_on_host(program_, op)) {
      host::Operands at;
      at.in[grad_squares::kGrad.slot] = ctx_.get<void>(grad);
      at.in[grad_squares::kScalars.slot] = scalars.data();
      host::run_squares(pool_, program_, op, at);
      continue;
    }
    const Shard part = step::shard_of(program_, grad);
    Pieces<GradPiece> piece{};
    piece.piece[piece.count++] = {part.count, ctx_.get<float>(grad) + part.first};
    const bool first = !partials;
    // Scratch of the update, beside all gradients.
    partials = ctx_.get<double>(op[grad_squares::kPartials]);
    check(cuda::grad_squares(kernels_, piece, slots, first, partials), "adding up gradients of a layer");
  }
  if (!partials) return scalars[step::kNorm2];
  const step::BufferId staging = program_.find(step::role::kStaging);
  assert(program_[staging].bytes() >= slots * sizeof(double));
  check(cudaMemcpyAsync(arenas_.at(staging), partials, slots * sizeof(double), cudaMemcpyDeviceToHost,
                        kernels_),
        "fetching sums of gradients");
  kernels_.wait_for_all();
  const double* sums = arenas_.get<double>(staging);
  return std::accumulate(sums, sums + slots, scalars[step::kNorm2]);
}

}  // namespace trainhost::cuda
