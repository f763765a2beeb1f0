// GPU-001 to GPU-008 of CONTRACTS.md section 5, one function and one file each. They judge any trainer:
// `--backend=cpu` goes through the same code.
#pragma once
#include "core/verify/check.hpp"

namespace trainhost::verify {

Result check_loss(Context& c);              // loss.cpp
Result check_weight_sync(Context& c);       // weight_sync.cpp
Result check_fallback(Context& c);          // fallback.cpp
Result check_utilization(Context& c);       // utilization.cpp
Result check_transfers(Context& c);         // transfers.cpp
Result check_clipping(Context& c);          // clipping.cpp
Result check_hyper_parameters(Context& c);  // hyper_parameters.cpp
Result check_order(Context& c);             // order.cpp

}  // namespace trainhost::verify
