// A complete trainer in plain loops: twenty-one kernels and a manifest. It trains llama, mistral, qwen2 and
// qwen3 models of any shape in f32. The executor provides exact plans, recompute, accumulation, checkpoints
// and generation. The kernels are in plain_kernels.hpp; core/executor/kernels.hpp documents their arguments.
// To write a backend, copy this folder and replace kernels; `trainhost plugins check` and kernel_check test
// the result.
//
// The innermost loops run over contiguous memory, without a sum where possible, so that the compiler
// vectorizes them. One thread and a fixed order of every sum make the results bit-identical.

#include "core/executor/trainer.hpp"
#include "plain_kernels.hpp"

TH_MANIFEST(
    "id = \"plain\"\n"
    "version = \"1.0\"\n"
    "kind = \"trainer\"\n"
    "summary = \"trains in f32 on one thread, in plain loops: an example\"\n"
    "families = [\"llama\", \"mistral\", \"qwen2\", \"qwen3\"]\n"
    "options = []\n"
    "priority = -100\n");

TRAINHOST_TRAINER(plain::Kernels)
