// Stands where the CUDA toolkit's header of this name stands, for tests alone: the product's own sources,
// kernels included, are compiled by g++ against it and run on the CPU. Holds the part of the language and of
// the runtime that the product uses, with the toolkit's names and signatures; what is not here does not
// compile, which is the point.
#pragma once
#define TRAINHOST_CUDA_EMULATION 1

#include "cuda_emulation/language.h"
#include "cuda_emulation/vectors.h"

#include "cuda_emulation/execution.h"
#include "cuda_emulation/intrinsics.h"

#include "cuda_emulation/runtime_api.h"
