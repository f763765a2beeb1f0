// @NAME@: a trainer. Its kernels are in kernels.hpp; trainhost::executor adds exact plans, recompute,
// gradient accumulation, clipping, checkpoints, evaluation, generation and profiling.
#include "core/executor/trainer.hpp"

#include "kernels.hpp"

TH_MANIFEST(
    "id = '@NAME@'\n"
    "version = '0.1.0'\n"
    "kind = 'trainer'\n"
    "summary = 'trains in f32 on one thread'\n"
    "families = ['llama', 'mistral', 'qwen2', 'qwen3']\n"
    "priority = -10\n");

TRAINHOST_TRAINER(@TYPE@)
