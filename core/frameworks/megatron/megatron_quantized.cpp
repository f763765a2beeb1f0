// Products of MegatronDecoder in 8 or 4 bits, as Linear, LayerNormLinear and GroupedLinear of Transformer
// Engine compute them: which copies of inputs, weights and gradients exist, and which of them are kept for
// the backward pass. Sizes: quantized.hpp. A product y = x W^T reads x and W by rows; the gradient of x reads
// that of y by rows and W by columns; the gradient of W reads x and the gradient of y by columns.
#include <array>
#include <utility>
#include <vector>

#include "core/frameworks/autograd/operators.hpp"
#include "core/frameworks/megatron/decoder_megatron.hpp"

namespace trainhost::frameworks {
namespace {

/// What exists of `q`, for autograd to save.
void append(std::vector<Tensor>& to, const auto& q) {
  for (const Tensor* t : {&q.rows, &q.row_scales, &q.columns, &q.column_scales})
    if (*t) to.push_back(*t);
}

Shape bytes_shape(std::uint64_t bytes) { return {static_cast<std::int64_t>(bytes)}; }

}  // namespace

/// Copies of a tensor that exists in bf16. parts: tensors that one call quantizes, of equal numbers of rows.
MegatronDecoder::Quantized MegatronDecoder::quantize(const Shape& shape, Copies copies, std::int64_t parts) {
  const ProductPolicy& policy = s_.megatron.products;
  if (!has_column_copy(policy)) copies = {true, false};  // the rows serve both
  const auto bytes_of_copy = [&](bool by_columns) {
    CopyBytes b = copy_bytes(policy.recipe, Operand::kActivation, shape[0] / parts, shape[1], by_columns);
    b.data *= static_cast<std::uint64_t>(parts), b.scales *= static_cast<std::uint64_t>(parts);
    return b;
  };
  Quantized q;
  const CopyBytes rows = bytes_of_copy(false), columns = bytes_of_copy(true);
  if (copies.rows) q.rows = t_.make(bytes_shape(rows.data), Element::kByte, "quantized by rows");
  if (copies.columns) q.columns = t_.make(bytes_shape(columns.data), Element::kByte, "quantized by columns");
  if (copies.rows || has_tensor_scales(policy.recipe))
    q.row_scales = t_.make(bytes_shape(rows.scales), Element::kByte, "scales");
  if (copies.columns && columns.scales)
    q.column_scales = t_.make(bytes_shape(columns.scales), Element::kByte, "scales by columns");
  if (copies.columns)
    t_.kernel_temporary(transform_bytes(policy.recipe, shape[0] / parts, shape[1]), "transformed in bf16");
  return q;
}

MegatronDecoder::Quantized MegatronDecoder::quantize_weight(const Shape& shape, Copies copies,
                                                            const char* module) {
  const ProductPolicy& policy = s_.megatron.products;
  if (!has_column_copy(policy)) copies.columns = false;
  const auto make = [&](std::uint64_t bytes, const char* name) {
    return bytes ? t_.new_storage(bytes_shape(bytes), Element::kByte, Purpose::kWeights, module, name)
                 : Tensor();
  };
  const CopyBytes rows = copy_bytes(policy.recipe, Operand::kWeight, shape[0], shape[1], false),
                  columns = copy_bytes(policy.recipe, Operand::kWeight, shape[0], shape[1], true);
  Quantized q;
  if (copies.rows)
    q.rows = make(rows.data, "quantized weight"), q.row_scales = make(rows.scales, "scales of the weight");
  if (copies.columns) {
    q.columns = make(columns.data, "quantized weight by columns");
    q.column_scales = make(columns.scales, "scales of the weight by columns");
  }
  return q;
}

/// The backward pass needs no rows of an input.
void MegatronDecoder::keep_columns(Quantized& q) const {
  if (!q.columns) return;
  q.rows.reset();
  if (!has_tensor_scales(s_.megatron.products.recipe)) q.row_scales.reset();
}

/// All tokens of what each rank has quantized. Columns of blockwise and 4-bit tensors arrive in another order
/// and are written into a second tensor, with 4 bits from a third one.
MegatronDecoder::Quantized MegatronDecoder::gather_quantized(const Shape& shape, Copies copies) {
  const ProductRecipe recipe = s_.megatron.products.recipe;
  Quantized all = quantize(shape, copies);
  const auto like_columns = [&](const char* name) {
    return t_.make(all.columns->shape, Element::kByte, name);
  };
  if (!all.columns || (recipe != ProductRecipe::kBlockwise && recipe != ProductRecipe::kNvfp4)) return all;
  Tensor gathered;
  if (recipe == ProductRecipe::kNvfp4) gathered = like_columns("gathered columns");
  all.columns = like_columns("quantized by columns");
  return all;
}

/// The gradient of an output, by rows and by columns. `gathers`: of all tokens, from `rows_` of them. With
/// one scale per tensor the rows are gathered, and transposed afterwards.
MegatronDecoder::Quantized MegatronDecoder::gradient_of_output(std::int64_t rows, std::int64_t width,
                                                               bool gathers, std::int64_t parts) {
  if (!gathers) return quantize({rows, width}, {true, true}, parts);
  const Quantized own = quantize({rows_, width}, {true, !has_tensor_scales(s_.megatron.products.recipe)});
  return gather_quantized({rows, width}, {true, true});
}

/// Scales of both operands in the order of cuBLAS, during `parts` products of such operands.
void MegatronDecoder::reorder_scales(const Shape& a, bool a_by_columns, const Shape& b, bool b_by_columns,
                                     std::int64_t parts) {
  const ProductPolicy& policy = s_.megatron.products;
  const auto n = static_cast<std::uint64_t>(parts);
  const std::uint64_t bytes = n * reordered_scale_bytes(policy, a[0], a[1], a_by_columns) +
                              n * reordered_scale_bytes(policy, b[0], b[1], b_by_columns);
  t_.kernel_temporary(bytes, "reordered scales");
}

/// A parameter that is kept in 8 bits. buffer: of the distributed optimizer, which gets its rows; none for
/// MXFP8, whose weights are gathered in bf16 in the buffer of gradients
/// (--reuse-grad-buf-for-mxfp8-param-ag).
Tensor MegatronDecoder::quantized_parameter(const Planned& p, Quantized copies, const Tensor& buffer) {
  Tensor parameter = t_.alias(buffer ? buffer : copies.rows, p.shape);
  parameter->parameter = parameter->requires_grad = true;
  copies.rows = t_.alias(parameter);
  quantized_weights_[parameter.get()] = {std::move(copies), {}, true};
  return parameter;
}

/// get_weight_workspace(): quantizes the weight in the first micro-batch of a step, into a copy that the
/// module keeps. A forward pass without gradients, whose layer is recomputed, wants no columns; that of a
/// LayerNormLinear then frees them, and the recomputation makes the copy again.
void MegatronDecoder::use_weight(const Tensor& weight, bool columns, const char* module) {
  const ProductPolicy& policy = s_.megatron.products;
  QuantizedWeight& w = quantized_weights_[weight.get()];
  columns = columns && has_column_copy(policy);
  if (!w.state)
    if (const std::uint64_t bytes = scaling_state_bytes(policy, 1))
      w.state =
          t_.new_storage(bytes_shape(bytes), Element::kByte, Purpose::kBuffers, module, "scales and maxima");
  const bool first_use = std::exchange(w.step, step_) != step_;
  if (first_use && !columns && !w.parameter) w.copies.columns.reset(), w.copies.column_scales.reset();
  if (w.copies.rows && (!columns || w.copies.columns)) return;
  if (w.copies.rows && policy.recipe == ProductRecipe::kBlockwise) {
    Quantized added = quantize_weight(weight->shape, {false, true}, module);
    w.copies.columns = std::move(added.columns), w.copies.column_scales = std::move(added.column_scales);
    return;
  }
  w.copies = {};  // before the new copy is made
  w.copies = quantize_weight(weight->shape, {true, columns}, module);
}

/// cast_master_weights_to_fp8(): main weights are cast to bf16, all of them, then to 8 bits. MXFP8: main
/// weights are copied to the buffer of gradients, from which each weight is quantized in place.
void MegatronDecoder::update_quantized_parameters() {
  const ProductPolicy& policy = s_.megatron.products;
  if (!policy.weights || policy.recipe == ProductRecipe::kMxfp8) return;
  std::vector<Tensor> cast;
  for (std::size_t i = 0; i < planned_.size(); ++i)
    if (planned_[i].quantized && shards_[i] > 0) {
      t_.layer = planned_[i].layer;
      cast.push_back(t_.new_storage({shards_[i]}, s_.weights, Purpose::kUpdate, planned_[i].module,
                                    "main weight in bf16"));
    }
  if (policy.recipe != ProductRecipe::kBlockwise) return;
  for (const Planned& p : planned_)
    if (p.quantized) {
      Quantized& q = quantized_weights_[p.target->get()].copies;
      q.columns.reset(), q.column_scales.reset();
    }
}

/// Keeps, instead of the output of the norm in bf16, its quantized columns. Under sequence parallelism with
/// one scale per tensor it keeps rows, which can be gathered.
Tensor MegatronDecoder::quantized_norm_linear(const Tensor& x, const Tensor& norm, const Tensor& weight,
                                              const Tensor& bias, const char* module) {
  const ModuleScope scope(t_, module);
  const ProductRecipe recipe = s_.megatron.products.recipe;
  const std::int64_t width = x->shape[1], outputs = weight->shape[0];
  const bool gathers = s_.megatron.sequence_parallel, rows_only = gathers && has_tensor_scales(recipe);
  const Tensor scale = t_.make({rows_}, Element::kF32, "1/rms");
  Quantized input = quantize({rows_, width}, {true, t_.grad_enabled && !rows_only});
  // Delayed scaling knows the scale before the norm is computed; the others quantize its output.
  if (recipe != ProductRecipe::kDelayed) t_.make({rows_, width}, x->type, "output of the norm");
  Tensor out;
  {
    Quantized all;
    if (gathers) all = gather_quantized({tokens_, width}, {true, false});
    use_weight(weight, t_.grad_enabled, module);
    out = t_.make({tokens_, outputs}, x->type, "output");
    reorder_scales({tokens_, width}, false, weight->shape, false);
  }
  if (!rows_only) keep_columns(input);
  std::vector<Tensor> saved{x, scale};
  append(saved, input);
  input = {};
  const std::array inputs{x, norm, bias};
  return t_.apply_view({"output", inputs, saved, false,
                        [this, weight, width, outputs, gathers, rows_only](BackwardCall& c) {
                          const Element type = c.grads[0]->type;
                          Quantized gradient = gradient_of_output(tokens_, outputs, false);
                          Quantized all;
                          if (gathers) all = gather_quantized({tokens_, width}, {rows_only, !rows_only});
                          const Tensor product = t_.make({tokens_, width}, type, "gradient of the norm");
                          reorder_scales({tokens_, outputs}, false, weight->shape, true);
                          const Tensor own = scattered(product, "gradient of the rank's tokens");
                          if (rows_only && has_column_copy(s_.megatron.products))
                            all.columns = t_.make({tokens_, width}, Element::kByte, "quantized by columns");
                          reorder_scales({tokens_, width}, true, {tokens_, outputs}, true);
                          for (std::size_t i = 2; i < c.saved.size(); ++i) c.saved[i].reset();
                          all = {};
                          c.results[0] = t_.make({rows_, width}, type, "gradient");
                          c.results[1] = t_.make({width}, type, "gradient of the weight");
                          if (c.needs(2)) c.results[2] = t_.make({outputs}, type, "gradient of the bias");
                          dummy_gradient(weight);
                        }},
                       out, out->shape);
}

/// weights: of one product, or of the experts, which have equal parts of the rows.
Tensor MegatronDecoder::quantized_linear(const Tensor& x, std::span<const Tensor> weights, const char* module,
                                         LinearKind kind) {
  const ModuleScope scope(t_, module);
  const Tensor& weight = weights.front();
  const auto parts = static_cast<std::int64_t>(weights.size());
  const std::int64_t rows = x->shape[0], width = x->shape[1], outputs = weight->shape[0];
  const bool gathers = kind.row_parallel && s_.megatron.sequence_parallel;
  if (kind.column_parallel && s_.megatron.sequence_parallel)
    return quantized_column_linear(x, weight, module, kind.keeps_input);
  Quantized input = quantize({rows, width}, {true, t_.grad_enabled && !kind.keeps_input}, parts);
  // With columns even in a forward pass without gradients.
  for (const Tensor& w : weights) use_weight(w, true, module);
  Tensor out = t_.make({rows, outputs}, x->type, "output");
  reorder_scales({rows / parts, width}, false, weight->shape, false, parts);
  if (kind.row_parallel) out = scattered(out, "output of the rank's tokens");
  keep_columns(input);
  std::vector<Tensor> saved;
  if (kind.keeps_input)
    saved = {x};
  else
    append(saved, input);
  input = {};
  const std::array inputs{x};
  return t_.apply_view(
      {"output", inputs, saved, false,
       [this, weight, rows, width, outputs, gathers, parts, keeps_input = kind.keeps_input](BackwardCall& c) {
         const Element type = c.grads[0]->type;
         Quantized gradient = gradient_of_output(rows, outputs, gathers, parts);
         Quantized again;
         if (keeps_input)
           again = quantize({rows, width}, {has_tensor_scales(s_.megatron.products.recipe), true}, parts);
         c.results[0] = t_.make({rows, width}, type, "gradient of the input");
         reorder_scales({rows / parts, outputs}, false, weight->shape, true, parts);
         reorder_scales({rows / parts, width}, true, {rows / parts, outputs}, true, parts);
         if (!keeps_input) c.saved.clear();
         if (gathers) gradient = {};
         dummy_gradient(weight);
       }},
      out, out->shape);
}

/// Under sequence parallelism: gathers its quantized input in both passes. With one scale per tensor it keeps
/// rows, which can be gathered.
Tensor MegatronDecoder::quantized_column_linear(const Tensor& x, const Tensor& weight, const char* module,
                                                bool keeps_input) {
  const std::int64_t width = x->shape[1], outputs = weight->shape[0];
  const bool rows_only = has_tensor_scales(s_.megatron.products.recipe);
  Quantized input = quantize({rows_, width}, {true, t_.grad_enabled && !keeps_input && !rows_only});
  Tensor out;
  {
    const Quantized all = gather_quantized({tokens_, width}, {true, false});
    use_weight(weight, true, module);
    out = t_.make({tokens_, outputs}, x->type, "output");
    reorder_scales({tokens_, width}, false, weight->shape, false);
  }
  if (!rows_only) keep_columns(input);
  std::vector<Tensor> saved;
  if (keeps_input)
    saved = {x};
  else
    append(saved, input);
  input = {};
  const std::array inputs{x};
  return t_.apply_view({"output", inputs, saved, false,
                        [this, weight, width, outputs, rows_only, keeps_input](BackwardCall& c) {
                          const Element type = c.grads[0]->type;
                          Quantized gradient = gradient_of_output(tokens_, outputs, false);
                          Quantized again;
                          if (keeps_input) again = quantize({rows_, width}, {rows_only, !rows_only});
                          Quantized all = gather_quantized({tokens_, width}, {rows_only, !rows_only});
                          const Tensor product = t_.make({tokens_, width}, type, "gradient of all tokens");
                          reorder_scales({tokens_, outputs}, false, weight->shape, true);
                          if (rows_only && has_column_copy(s_.megatron.products))
                            all.columns = t_.make({tokens_, width}, Element::kByte, "quantized by columns");
                          reorder_scales({tokens_, width}, true, {tokens_, outputs}, true);
                          if (!keeps_input) c.saved.clear();
                          c.results[0] = scattered(product, "gradient of the rank's tokens");
                          dummy_gradient(weight);
                        }},
                       out, out->shape);
}

}  // namespace trainhost::frameworks
