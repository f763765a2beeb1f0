// One run of Calculon's memory model with what Calculon itself gives for it: the row of calculon_golden and
// calculon_upstream. Bytes as the source prints them: Python floats, so a share of a byte may stand there.
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
