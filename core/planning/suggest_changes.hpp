// Adds to a plan what the user asked for beyond the estimates: changes that make the run fit, limits, and the
// memory timeline of a step. Every suggestion was planned again; none comes from a formula alone.
#pragma once
#include "core/planning/plan_result.hpp"
#include "core/planning/replan.hpp"

namespace trainhost::planning {

struct PlanDetails {
  bool limits = false;    // largest micro-batch, longest sequence, fewest devices
  bool timeline = false;  // live bytes in each phase of a step
};

/// Adds changes where the first estimate does not fit, and the requested details.
void add_changes_and_limits(PlanResult& v, Replanner& replan, const TrainerTraits& traits,
                            const PlanDetails& wanted);

/// Changes that make the run fit, cheapest first: of each setting the mildest value that fits. If fewer than
/// three single changes fit, combinations with full recomputation, one sequence per micro-batch, tensor and
/// pipeline parallelism are tried too. Sets v.changes_note to the reason why so few single changes fit.
std::vector<Change> suggest_changes(PlanResult& v, Replanner& replan);

}  // namespace trainhost::planning
