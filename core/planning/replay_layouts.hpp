// Checks the fastest layouts of a search by the estimator of the run's framework.
#pragma once
#include "core/planning/replan.hpp"
#include "core/planning/search_result.hpp"

namespace trainhost::planning {

/// Plans the layouts of `v.best` in their order, until one fits or five were planned, and removes those that
/// do not fit from both lists: the closed form, by which they were found, assumes fused kernels. Adds a note
/// with the bytes. replan: of the searched run. Does nothing where the estimator of the framework does not
/// describe a layout.
void replay_fastest_layouts(SearchResult& v, Replanner& replan);

}  // namespace trainhost::planning
