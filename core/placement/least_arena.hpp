// The least arena that any placement of a run can have, without its program: layers of one kind are alike, so
// a program of a few of each kind stands for one of thousands. Never places anything (place.cpp does) and
// never says more than a placement would. Who searches for a run that fits asks this first
// (choose_recompute.hpp).
#pragma once
#include <cstdint>

#include "core/step/program.hpp"

namespace trainhost::placement {

using namespace step;

/// Bytes of the compute tier's arena below which no placement of `build_program(model, run, traits)` lies:
/// what persists and, above it, the most padded bytes alive at one operation of any section; a multiple of
/// the alignment. Equal to the same sum over the whole program, at a cost that does not grow with the number
/// of layers. Throws what build_program() and place() would: usage_error for what has no program, an error
/// where sizes leave 63 bits.
std::uint64_t least_arena(const ModelSpec& model, const RunSpec& run, const TrainerTraits& traits);

/// The same of a program that is at hand: every layer counted as it stands.
std::uint64_t least_arena(const Program& program);

}  // namespace trainhost::placement
