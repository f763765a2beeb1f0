// Keywords of CUDA C++ as macros. A kernel is an ordinary function. `__shared__` variables are statics,
// because blocks run one after another; their ABI tag lets the emulation find them (symbols.cpp) and
// fill them with NaN before each block.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __attribute__((abi_tag("cuda_shared")))
#define __constant__ static
