// Operations of adapters that are no matrix products, as functions that queue them on a stream: dropout of
// the input and transposed factors (elementwise.cu), and matrices in NF4 (convert.cu). A header of its own,
// so that a change of it does not compile the kernels of attention again.
#pragma once
#include "core/model/nf4.hpp"
#include "plugins/cuda/kernels/kernel_functions.hpp"

namespace trainhost::cuda {

/// Which elements are dropped: core/step/dropout.hpp.
struct DropoutMask {
  std::uint32_t seed_low, seed_high, product;
  std::uint32_t first_column;  // column of the mask of column 0
  std::uint32_t dropped_below;
  float scale;
  const std::int32_t* micro_batch;  // [2] in device memory: lower and upper half
};

/// y = x * factor, where the factor of an element is 0 or mask.scale.  x, y: [rows, n].
template <class T>
cudaError_t dropout(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const DropoutMask& mask,
                    const T* x, T* y);
/// dx += dy * factor
template <class T>
cudaError_t dropout_add(cudaStream_t stream, std::uint64_t rows, std::uint32_t n, const DropoutMask& mask,
                        const T* dy, T* dx);

/// y[c, r] = x[r, c].  x: [rows, cols], of the size of a factor of an adapter.
template <class T>
cudaError_t transpose(cudaStream_t stream, std::uint32_t rows, std::uint32_t cols, const T* x, T* y);

/// matrix[layout.elements] = the values of a tensor in NF4, the bits of nf4::dequantize_blocks(), rounded to
/// T. `bytes` may have any alignment.
template <class T>
cudaError_t dequantize_nf4(cudaStream_t stream, const nf4::Layout& layout, const std::byte* bytes, T* matrix);

}  // namespace trainhost::cuda
