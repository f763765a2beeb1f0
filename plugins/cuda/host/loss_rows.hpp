// Loss and gradient of one row of logits, in a variant for AVX-512, for AVX2 and for baseline x86-64. Both of
// the wider ones give the same bits; the baseline one has no FMA and may differ in the last bit. See
// cross_entropy_row() of host_loops.hpp.
#pragma once
#include <cstdint>
#include <span>

#include "plugins/cuda/host/host_loops.hpp"

namespace trainhost::cuda::host {

struct LossRows {
  const char* name;
  double (*f32)(std::uint64_t n, float* row, std::int64_t target, float scale);
  double (*bf16)(std::uint64_t n, Half* row, std::int64_t target, float scale);
};
/// The variants that this processor can run, the fastest first.
std::span<const LossRows> runnable_loss_rows();

}  // namespace trainhost::cuda::host
