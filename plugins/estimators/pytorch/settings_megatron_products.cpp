// Megatron-LM with products in 8 or 4 bits (Transformer Engine): the recipe, the device on which it runs,
// layers that stay in bf16, and sizes that the kernels need. Contradictory keys are errors of the run file
// (core/runfile/product_settings.cpp); here is what depends on the model. Sizes:
// core/frameworks/megatron/quantized.hpp.
#include <algorithm>
#include <string>
#include <utility>

#include "core/base/plural.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::ProductPolicy;
using frameworks::ProductRecipe;

const char* name_of(ProductRecipe r) {
  switch (r) {
    case ProductRecipe::kNone:
      break;
    case ProductRecipe::kDelayed:
      return "delayed";
    case ProductRecipe::kTensorwise:
      return "tensorwise";
    case ProductRecipe::kBlockwise:
      return "blockwise";
    case ProductRecipe::kMxfp8:
      return "mxfp8";
    case ProductRecipe::kNvfp4:
      return "nvfp4";
  }
  return "none";
}

std::string recipe_of(const ProductPolicy& p) {
  return std::string("plan.fp8_recipe = \"") + name_of(p.recipe) + "\"";
}

/// Of what the numbers of rows and of columns of a product's operands are multiples.
struct Multiples {
  std::uint64_t rows, columns;
};

/// assert_dim_for_fp8_exec(), and make_empty() of the quantizers. Blockwise tensors of other sizes are
/// gathered in bf16, which is not replayed.
Multiples multiples_of(const ProductPolicy& p, bool gathers) {
  if (p.recipe == ProductRecipe::kMxfp8) return {32, 32};
  if (p.recipe == ProductRecipe::kNvfp4) return {16, 16};
  if (p.recipe == ProductRecipe::kBlockwise && gathers) return {128, 128};
  return {8, 16};
}

void require_multiple(const ProductPolicy& p, const char* what, std::uint64_t n, std::uint64_t multiple) {
  if (n % multiple)
    reject(recipe_of(p) + " with " + std::to_string(n) + " " + what,
           "its products need a multiple of " + std::to_string(multiple));
}

/// Widths of inputs and outputs of the products of a layer, on one tensor-parallel rank.
void require_widths(const model::Layer& l, std::uint64_t hidden, const Parallelism& ranks,
                    const ProductPolicy& p, std::uint64_t multiple) {
  const std::uint64_t tensor = ranks.tensor;
  const auto check = [&](const char* what, std::uint64_t n) { require_multiple(p, what, n, multiple); };
  const model::Attention& a = l.attention;
  check("elements in a hidden state", hidden);
  if (a.latent) {
    check("elements in the latent of q", a.q_lora_rank);
    check("elements in the latent of keys and values", a.kv_lora_rank);
    check("elements in this latent with its rotated part", std::uint64_t{a.kv_lora_rank} + a.rope_head_dim);
    check("elements in the heads of q per rank", a.heads / tensor * (a.nope_head_dim + a.rope_head_dim));
    check("elements in the output of attention per rank", a.heads / tensor * a.v_head_dim);
  } else {
    check("elements in the output of attention per rank", a.heads / tensor * a.head_dim);
    check("elements in q, k and v per rank", (a.heads + 2 * std::uint64_t{a.kv_heads}) / tensor * a.head_dim);
  }
  if (l.experts.count) {
    check("features in an expert per rank", l.experts.each.width / expert_tensor_ranks(ranks));
    check("features in the shared expert per rank", l.experts.shared.width / tensor);
  } else {
    check("features in the MLP per rank", l.mlp.width / tensor);
  }
}

void require_sizes(const model::Architecture& a, const RunSpec& r, const ProductPolicy& p, bool gathers) {
  const Multiples m = multiples_of(p, gathers);
  const std::uint64_t tokens = std::uint64_t{r.micro_batch} * (r.seq_len / r.parallel.context);
  require_multiple(p, "tokens per rank", gathers ? tokens / r.parallel.tensor : tokens, m.rows);
  for (const model::LayerRun& run : a.layers) require_widths(run.layer, a.hidden, r.parallel, p, m.columns);
}

void set_layers_in_bf16(const model::Architecture& a, const RunSpec& r, const ProductPolicy& p,
                        std::vector<std::string>& notes) {
  const std::uint32_t most = a.layer_count() / std::max(1u, r.parallel.pipeline);
  for (const auto& [key, layers] : {std::pair{"first", p.bf16_first}, {"last", p.bf16_last}})
    if (layers > most)
      reject("plan.bf16_" + std::string(key) + "_layers = " + std::to_string(layers),
             "a pipeline stage has " + plural(most, "layer") + ", and Megatron Core allows no more");
  if (p.bf16_first + p.bf16_last)
    notes.push_back("Products in bf16: those of the first " + std::to_string(p.bf16_first) +
                    " and the last " + std::to_string(p.bf16_last) + " layers, and of the LM head.");
}

/// What depends on the compute capability, or that it is assumed; else "".
std::string described_device(const Options& o) {
  const std::uint32_t capability = o.products.capability;
  std::string text =
      "Compute capability " + std::to_string(capability / 10) + "." + std::to_string(capability % 10);
  if (!o.capability_given) text += ", which is assumed without memory.device";
  if (frameworks::has_tensor_scales(o.products.recipe))
    return text + (frameworks::has_column_copy(o.products)
                       ? ": products in 8 bits read a transposed copy of weights, inputs and gradients."
                       : ": products in 8 bits read both layouts, so there are no transposed copies.");
  return o.capability_given ? "" : text + ".";
}

}  // namespace

void set_products(const model::Architecture& a, const RunSpec& r, const Options& o,
                  frameworks::StepSettings& s, std::vector<std::string>& notes) {
  const ProductPolicy& p = o.products;
  s.megatron.products = p;
  if (p.recipe == ProductRecipe::kNone) return;
  if (p.recipe == ProductRecipe::kNvfp4 && s.checkpoint)
    reject(recipe_of(p) + " with train.recompute = \"full\"",
           "the forward pass without gradients caches weights without the copy that the backward pass reads",
           "set train.recompute to \"none\" or \"selective\"");
  const frameworks::RecomputedModules& m = s.megatron.recomputed;
  if (p.recipe == ProductRecipe::kDelayed && (m.activation || m.norms))
    reject(recipe_of(p) + " with " + (m.activation ? "moe_act" : "layernorm") + " in plan.recompute_modules",
           "Megatron Core refuses to recompute moe_act and layernorm with delayed scaling",
           "set plan.fp8_recipe to \"tensorwise\", or leave it out of plan.recompute_modules");
  require_sizes(a, r, p, s.megatron.sequence_parallel);
  set_layers_in_bf16(a, r, p, notes);
  notes.push_back(std::string("Products of the layers: ") + name_of(p.recipe) +
                  (p.weights ? "; the parameters are kept in 8 bits."
                             : "; each weight has a quantized copy beside the one in 16 bits, which all "
                               "micro-batches of a step share.") +
                  " Attention, norms, embedding, router and LM head are in 16 bits.");
  if (std::string device = described_device(o); !device.empty()) notes.push_back(std::move(device));
}

}  // namespace trainhost::pytorch
