// MEM-001 to MEM-005 and MEM-EXACT-001 of CONTRACTS.md section 1, one function each. They judge any trainer
// by what it saves and by the ledger; the trainer's own plan is asked only for what a byte is called.
#pragma once
#include "core/verify/check.hpp"

namespace trainhost::verify {

Result check_parameters(Context& c);       // parameters.cpp
Result check_activations(Context& c);      // activations.cpp
Result check_activations_run(Context& c);  // activations.cpp: the run's own policy, which never decides
Result check_whole_run(Context& c);        // whole_run.cpp
Result check_weight_bytes(Context& c);     // state_bytes.cpp
Result check_optimizer_bytes(Context& c);  // state_bytes.cpp
Result check_small_box(Context& c);        // small_box.cpp

}  // namespace trainhost::verify
