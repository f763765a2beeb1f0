// @NAME@: a trainer. What it computes is in kernels.hpp; plans to the byte, recompute, gradient accumulation, clipping,
// checkpoints, evaluation, generation and profiling are the skeleton's (trainhost::executor). Go on in kernels.hpp.
#include "core/executor/trainer.hpp"

#include "kernels.hpp"

TH_MANIFEST("id = '@NAME@'\n"
            "version = '0.1.0'\n"
            "kind = 'trainer'\n"
            "summary = 'trains in f32 on one thread'\n"
            "families = ['llama', 'mistral', 'qwen2', 'qwen3']\n"
            "priority = -10\n");

TRAINHOST_TRAINER(@TYPE@)
