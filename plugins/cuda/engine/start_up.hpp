// What a run does on the device before it takes the memory of its plan. CUDA loads a kernel at its first use,
// and so does cuBLASLt; both allocate device memory for it. On a device that the plan fills, a first use
// after the allocation of the arena would fail.
#pragma once
#include "plugins/cuda/engine/nccl_ranks.hpp"
#include "plugins/cuda/engine/op_context.hpp"
#include "trainhost/host.h"

namespace trainhost::cuda {

/// Loads every kernel that the program uses, and registers every product with ctx.gemm: with full
/// micro-batches, and with the pieces of the head. Queues nothing. Addresses of ctx.arenas need not be valid.
void load_kernels(OpContext& ctx);

/// All of it: kernels, algorithms of products, then the arenas. Afterwards nothing allocates device memory.
/// The device must be current. Reads the option plugin.cuda.products of the host.
/// ranks: null in a run of one rank.
void start_up(const th_host* host, int device, const step::Program& program, Gemm& gemm, Arenas& arenas,
              NcclRanks* ranks);

}  // namespace trainhost::cuda
