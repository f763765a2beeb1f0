// Optimizers that update tensor by tensor, on the host: AdamW with 8-bit moments, Adafactor, and Muon but its
// products, which the device computes. Called by run_update() of host_ops.hpp, which decides whether the
// update is applied.
#pragma once
#include "plugins/cuda/host/host_loops.hpp"
#include "plugins/cuda/host/host_ops.hpp"

namespace trainhost::cuda::host {

/// kAdamW8bit, block by block.
void run_adamw_8bit(ThreadPool& pool, const step::Program& p, const step::Op& op, const Operands& at,
                    const Adam& c);
/// kAdafactor. clip: clip factor; decay: 1 - lr * weight_decay, or 1.
void run_adafactor(ThreadPool& pool, const step::Program& p, const step::Op& op, const Operands& at,
                   float clip, float decay);
/// kMuonDirection.
void run_muon_direction(ThreadPool& pool, const step::Program& p, const step::Op& op, const Operands& at,
                        float clip);
/// kMuon with a direction.
void run_muon_apply(ThreadPool& pool, const step::Program& p, const step::Op& op, const Operands& at,
                    float decay);

}  // namespace trainhost::cuda::host
