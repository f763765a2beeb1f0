// A lower bound on the arena of a run, without building its whole program or placing it: layers with the same
// recompute policy are alike, so a program with a few layers of each kind represents thousands. Searches for
// a run that fits evaluate this bound first (core/step/choose_recompute.hpp).
#pragma once
#include <cstdint>

#include "core/step/program.hpp"

namespace trainhost::placement {

using namespace step;

/// Lower bound, in bytes, on the compute tier's arena of any placement of build_program(model, run, traits):
/// persistent buffers plus the maximum over operations of padded live bytes; a multiple of the alignment.
/// Equals the same sum over the whole program; its cost does not depend on the number of layers. Errors:
/// those of build_program() and place(): usage_error, or an error if sizes exceed 63 bits.
std::uint64_t least_arena(const ModelSpec& model, const RunSpec& run, const TrainerTraits& traits);

/// The same for an existing program.
std::uint64_t least_arena(const Program& program);

}  // namespace trainhost::placement
