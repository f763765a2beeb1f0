// What Transformer Engine 2.11 stores of a tensor that it quantizes for a matrix product: 8-bit or 4-bit
// data, a copy scaled along the rows, one along the columns, and the scales of each with their padding. Sizes
// only; which tensors of a step are quantized, and how long each copy exists: megatron_quantized.cpp.
#pragma once
#include <cstdint>

namespace trainhost::frameworks {

/// FP8 with one scale per tensor, from a history of maxima (delayed) or from the tensor itself (tensorwise);
/// FP8 with an f32 scale per 128 elements, or per 128 x 128 of a weight (blockwise); MXFP8, an 8-bit scale
/// per 32 elements; NVFP4, an 8-bit scale per 16 elements and an f32 maximum per tensor.
enum class ProductRecipe : std::uint8_t { kNone, kDelayed, kTensorwise, kBlockwise, kMxfp8, kNvfp4 };

/// The quantized products of a run.
struct ProductPolicy {
  ProductRecipe recipe = ProductRecipe::kNone;
  std::uint32_t capability = 90;  // compute capability of the device, times 10
  bool weights = false;           // the parameters are quantized; otherwise copies of them, once per step
  bool swiglu_input = false;      // SwiGLU keeps its input in 8 bits, whatever the recipe
  std::uint32_t bf16_first = 0, bf16_last = 0;  // layers whose products are not quantized
  std::uint32_t amax_history = 1;               // maxima per tensor; delayed only
  bool operator==(const ProductPolicy&) const = default;
};

/// One scale for a whole tensor.
bool has_tensor_scales(ProductRecipe recipe);

/// Whether the copy along the columns is memory of its own. Tensor cores before compute capability 10.0, and
/// those of 12.x, multiply FP8 operands of one layout only (is_non_tn_fp8_gemm_supported()); with scales
/// along one dimension the data differ.
bool has_column_copy(const ProductPolicy& policy);

enum class Operand : std::uint8_t { kActivation, kWeight };

/// Bytes of one copy. A scale per tensor belongs to the copy along the rows; the maximum of NVFP4 counts as a
/// part of the scales.
struct CopyBytes {
  std::uint64_t data = 0, scales = 0;
  bool operator==(const CopyBytes&) const = default;
};

/// The copy of a [rows, columns] tensor that is scaled along its rows, or along its columns (by_columns).
/// Scales are padded as cuBLAS reads them: blockwise to 4 in the inner dimension, MXFP8 and NVFP4 to tiles of
/// 128 x 4.
CopyBytes copy_bytes(ProductRecipe recipe, Operand operand, std::int64_t rows, std::int64_t columns,
                     bool by_columns);

/// Bytes of the scales of one operand in the order in which cuBLAS reads them, which exist during the
/// product: MXFP8, NVFP4, and blockwise from compute capability 10.0 on, where the product is one of MXFP8.
/// Else 0.
std::uint64_t reordered_scale_bytes(const ProductPolicy& policy, std::int64_t rows, std::int64_t columns,
                                    bool by_columns);

/// Bytes that quantizing [rows, columns] along the columns needs while it runs: NVFP4 transforms activations
/// and gradients in bf16 where its fused kernel does not apply (rows not a multiple of 64, columns of 128).
/// Else 0.
std::uint64_t transform_bytes(ProductRecipe recipe, std::int64_t rows, std::int64_t columns);

/// Bytes of scales and maxima that a module with `products` matrix products keeps, in blocks of the
/// allocator: three tensors of each are quantized in the forward pass, two in the backward pass.
std::uint64_t scaling_state_bytes(const ProductPolicy& policy, std::int64_t products);

/// Multiple to which the tokens of an expert are padded.
std::int64_t expert_row_multiple(ProductRecipe recipe);

}  // namespace trainhost::frameworks
