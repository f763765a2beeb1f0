// The Lion optimizer as a function that queues it on a stream; in update.cu. A header of its own, so that a
// change of it does not compile the kernels of attention again.
#pragma once
#include "plugins/cuda/kernels/kernel_functions.hpp"

namespace trainhost::cuda {

struct LionBetas {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;  // 1 - beta computed in double, then rounded
};

/// With g' = g * clip: w = w * decay - lr * sign(b1 m + (1-b1) g'), where sign(0) = 0; then m = b2 m + (1-b2)
/// g'. Pieces, scalars and kApplied as for adamw().
template <class T>
cudaError_t lion(cudaStream_t stream, const Pieces<ParamPiece<T>>& pieces, const LionBetas& c,
                 const double* scalars);

}  // namespace trainhost::cuda
