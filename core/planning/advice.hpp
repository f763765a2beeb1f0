// What to change where a run does not fit, and how far one that fits can go: filled into the plan's view.
// Every answer was planned again by whoever decided; nothing is promised from a formula.
#pragma once
#include "core/planning/replan.hpp"
#include "core/report/plan_view.hpp"

namespace trainhost::planning {

struct Answers {
  bool limits = false;    // the largest micro-batch, the longest sequence, the fewest devices
  bool timeline = false;  // bytes alive at the moments of a step
};

/// Changes where the first estimate does not fit (else none), and what `wanted` names.
void add_answers(report::PlanView& v, Replanner& replan, const TrainerTraits& traits, const Answers& wanted);

/// The changes that make it fit, cheapest first: one of each kind, its mildest form. Where fewer than three
/// do by themselves, more are looked for on top of full recomputation and one sequence at a time. Also fills
/// v.changes_note, which says why there are so few.
std::vector<report::Change> find_changes(report::PlanView& v, Replanner& replan);

}  // namespace trainhost::planning
