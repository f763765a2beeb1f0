// Replaces cuda_runtime.h of the CUDA toolkit in tests: the sources of the CUDA trainer, kernels included,
// are compiled by the host compiler against it and run on the CPU. Declares the part of the language and of
// the runtime that the trainer uses, with the names and signatures of the toolkit; anything else does not
// compile.
#pragma once
#define TRAINHOST_CUDA_EMULATION 1

#include "cuda_emulation/language.h"
#include "cuda_emulation/vectors.h"

#include "cuda_emulation/execution.h"
#include "cuda_emulation/intrinsics.h"

#include "cuda_emulation/runtime_api.h"
