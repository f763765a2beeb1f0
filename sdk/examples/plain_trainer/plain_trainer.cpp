// A complete trainer in plain loops: twenty kernels and a manifest. It trains llama, mistral, qwen2 and qwen3
// models of any shape in f32, and gets plans to the byte, recompute, accumulation, checkpoints and generation
// from the skeleton. The kernels are in plain_kernels.hpp; core/executor/kernels.hpp says what each of them
// is given. To make a backend of your own, copy it and replace what your machine does better; trainhost
// plugins check and kernel_check tell whether it is still right.
//
// The one idea of the loops: the innermost one runs along memory, without a sum in it where that can be had,
// so that the compiler turns it into vectors. One thread; every sum in one order; so the same bits each time.

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
