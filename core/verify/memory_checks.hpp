// MEM-001 to MEM-005 and MEM-EXACT-001 of CONTRACTS.md section 1, one function each. They judge any trainer
// by what it saves and by the ledger; the trainer's own plan is asked only for what a byte is called.
#pragma once
#include "core/verify/contract_check.hpp"

namespace trainhost::verify {

Result check_parameters(Context& c);       // check_parameters.cpp
Result check_activations(Context& c);      // check_activations.cpp
Result check_activations_run(Context& c);  // check_activations.cpp: the run's own policy, which never decides
Result check_whole_run(Context& c);        // check_whole_run.cpp
Result check_weight_bytes(Context& c);     // check_state_bytes.cpp
Result check_optimizer_bytes(Context& c);  // check_state_bytes.cpp
Result check_small_box(Context& c);        // check_small_models.cpp

}  // namespace trainhost::verify
