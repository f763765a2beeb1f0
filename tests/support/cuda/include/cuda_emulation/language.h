// The words of CUDA C++ as macros. A kernel is an ordinary function; shared memory is static memory of the
// thread that runs the block (blocks run one after another); its tag lets the emulation find it and fill it
// with NaN before each block.
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
#define __shared__ static thread_local __attribute__((abi_tag("cuda_shared")))
#define __constant__ static
