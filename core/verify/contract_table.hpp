// One function per contract of docs/memory-model.md (section "Contract of the CUDA trainer" for GPU-...).
// Each is in the file named in its line. They test any trainer: `--backend=cpu` runs the same code. The MEM
// checks use what the trainer saves and the ledger; the trainer's own plan only names the components of its
// bytes.
#pragma once
#include "core/verify/contract_check.hpp"

namespace trainhost::verify {

Result check_parameters(Context& c);        // MEM-001: check_parameters.cpp
Result check_activations(Context& c);       // MEM-002: check_activations.cpp
Result check_activations_run(Context& c);   // MEM-002/run: check_activations.cpp
Result check_whole_run(Context& c);         // MEM-003: check_whole_run.cpp
Result check_weight_bytes(Context& c);      // MEM-004: check_state_bytes.cpp
Result check_optimizer_bytes(Context& c);   // MEM-005: check_state_bytes.cpp
Result check_small_models(Context& c);      // MEM-EXACT-001: check_small_models.cpp
Result check_reference(Context& c);         // REF-001: check_reference.cpp
Result check_loss(Context& c);              // GPU-001: check_loss.cpp
Result check_weight_sync(Context& c);       // GPU-002: check_weight_sync.cpp
Result check_fallback(Context& c);          // GPU-003: check_fallback.cpp
Result check_utilization(Context& c);       // GPU-004: check_utilization.cpp
Result check_transfers(Context& c);         // GPU-005: check_transfers.cpp
Result check_clipping(Context& c);          // GPU-006: check_clipping.cpp
Result check_hyper_parameters(Context& c);  // GPU-007: check_hyper_parameters.cpp
Result check_copy_order(Context& c);        // GPU-008: check_copy_order.cpp

}  // namespace trainhost::verify
