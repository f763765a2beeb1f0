// See quantized.hpp. Read from the tensor classes, quantizers and recipe states of Transformer Engine 2.11,
// and from its functions that swizzle scales.
#include "core/frameworks/megatron/quantized.hpp"

#include <utility>

namespace trainhost::frameworks {
namespace {

constexpr std::int64_t kBlock = 128, kMxBlock = 32, kNvBlock = 16;
constexpr std::uint64_t kScale = 4;  // bytes of an f32

std::int64_t parts(std::int64_t n, std::int64_t of) { return (n + of - 1) / of; }

std::uint64_t padded(std::int64_t n, std::int64_t multiple) {
  return static_cast<std::uint64_t>(parts(n, multiple) * multiple);
}

/// 8-bit scales in tiles of 128 x 4.
std::uint64_t tiled_scales(std::int64_t outer, std::int64_t inner, std::int64_t block) {
  return padded(outer, 128) * padded(parts(inner, block), 4);
}

}  // namespace

bool has_tensor_scales(ProductRecipe recipe) {
  return recipe == ProductRecipe::kDelayed || recipe == ProductRecipe::kTensorwise;
}

bool has_column_copy(const ProductPolicy& policy) {
  const bool any_layout = (policy.capability >= 100 && policy.capability < 120) || policy.capability >= 130;
  return !has_tensor_scales(policy.recipe) || !any_layout;
}

CopyBytes copy_bytes(ProductRecipe recipe, Operand operand, std::int64_t rows, std::int64_t columns,
                     bool by_columns) {
  const auto elements = static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(columns);
  // Along the columns, the tensor is the transposed one.
  const std::int64_t outer = by_columns ? columns : rows, inner = by_columns ? rows : columns;
  switch (recipe) {
    case ProductRecipe::kNone:
      return {};
    case ProductRecipe::kDelayed:
    case ProductRecipe::kTensorwise:
      return {elements, by_columns ? 0 : kScale};
    case ProductRecipe::kBlockwise:
      if (operand == Operand::kWeight)
        return {elements,
                kScale * static_cast<std::uint64_t>(parts(outer, kBlock)) * padded(parts(inner, kBlock), 4)};
      return {elements, kScale * static_cast<std::uint64_t>(parts(inner, kBlock)) * padded(outer, 4)};
    case ProductRecipe::kMxfp8:
      return {elements, tiled_scales(outer, inner, kMxBlock)};
    case ProductRecipe::kNvfp4:
      return {elements / 2, tiled_scales(outer, inner, kNvBlock) + kScale};
  }
  return {};
}

std::uint64_t reordered_scale_bytes(const ProductPolicy& policy, std::int64_t rows, std::int64_t columns,
                                    bool by_columns) {
  if (by_columns) std::swap(rows, columns);
  if (policy.recipe == ProductRecipe::kNvfp4) return tiled_scales(rows, columns, kNvBlock);
  const bool mx = policy.recipe == ProductRecipe::kMxfp8 ||
                  (policy.recipe == ProductRecipe::kBlockwise && policy.capability >= 100);
  return mx ? tiled_scales(rows, columns, kMxBlock) : 0;
}

std::uint64_t transform_bytes(ProductRecipe recipe, std::int64_t rows, std::int64_t columns) {
  if (recipe != ProductRecipe::kNvfp4 || (rows % 64 == 0 && columns % 128 == 0)) return 0;
  return 2 * static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(columns);
}

std::uint64_t scaling_state_bytes(const ProductPolicy& policy, std::int64_t products) {
  constexpr std::uint64_t kForward = 3, kBackward = 2, kAllocated = 512;
  const auto n = static_cast<std::uint64_t>(products);
  const auto block = [](std::uint64_t bytes) { return (bytes + kAllocated - 1) / kAllocated * kAllocated; };
  if (policy.recipe == ProductRecipe::kTensorwise)  // a scale and a maximum of each tensor
    return 2 * n * (kForward + kBackward) * block(kScale);
  if (policy.recipe != ProductRecipe::kDelayed) return 0;
  std::uint64_t bytes = 0;
  for (const std::uint64_t tensors : {kForward * n, kBackward * n})
    bytes += block(kScale * tensors) + block(kScale * tensors * policy.amax_history);
  return bytes;
}

std::int64_t expert_row_multiple(ProductRecipe recipe) {
  if (recipe == ProductRecipe::kNvfp4) return 64;
  return recipe == ProductRecipe::kMxfp8 ? 32 : 16;
}

}  // namespace trainhost::frameworks
