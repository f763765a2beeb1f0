// GPU-001 to GPU-008 of CONTRACTS.md section 5, one function and one file each. They judge any trainer:
// `--backend=cpu` goes through the same code.
#pragma once
#include "core/verify/contract_check.hpp"

namespace trainhost::verify {

Result check_loss(Context& c);              // check_loss.cpp
Result check_weight_sync(Context& c);       // check_weight_sync.cpp
Result check_fallback(Context& c);          // check_fallback.cpp
Result check_utilization(Context& c);       // check_utilization.cpp
Result check_transfers(Context& c);         // check_transfers.cpp
Result check_clipping(Context& c);          // check_clipping.cpp
Result check_hyper_parameters(Context& c);  // check_hyper_parameters.cpp
Result check_order(Context& c);             // check_copy_order.cpp

}  // namespace trainhost::verify
