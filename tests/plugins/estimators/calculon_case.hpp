// One run of Calculon's memory model with Calculon's own results: a row of calculon_golden.hpp and
// calculon_upstream.hpp. Bytes as printed by the source: Python floats, possibly with a fraction.
#pragma once
#include "plugins/estimators/calculon/closed_form.hpp"

namespace trainhost::calculon {

struct Case {
  const char* name;
  Application application;
  Execution execution;
  struct {
    double weight_space, act_space, act_checkpoint_size, act_grad_space, weight_grad_space, optimizer_space,
        tier1, tier2;
  } out;
};

}  // namespace trainhost::calculon
