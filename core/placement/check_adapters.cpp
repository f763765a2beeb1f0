// The rules of the checker for adapters of products (LoRA, DoRA) and their dropout: which quantity each
// operation must find in its inputs and which it writes. Adapters of the head and of the embedding are with
// these, in check_ops.cpp.
#include "core/placement/check_execution.hpp"
#include "core/step/operands.hpp"

namespace trainhost::placement {

using namespace operand;

/// Of each product of a layer, by AdapterGroup.
static constexpr TensorRole kFirstMatrix[] = {TensorRole::kQ, TensorRole::kO, TensorRole::kGate,
                                              TensorRole::kDown};

/// A of the adapter of the head from B of that of the embedding.
void ValueRun::transpose() {
  weight(operand::transpose::kMatrix, TensorRole::kEmbed, -1, AdapterPart::kB);
  if (!ties_adapter()) f_.at(i_, "transposes B of an adapter that the head does not have");
  give(operand::transpose::kY, value(Quantity::kTransposed, 0));
}

/// True if slot k has A of the adapters of a product, or a transpose.
bool ValueRun::has_a_of_adapter(In k) const {
  return contents(in(k)).quantity == Quantity::kTransposed ||
         params_.adapter_part(original(in(k))) == AdapterPart::kA;
}

/// The product whose A is in slot k. False, with a finding, for other buffers.
bool ValueRun::a_of_adapter(In k, Product& out, TensorRole& r, std::int32_t& l) {
  if (contents(in(k)).quantity != Quantity::kTransposed) {
    if (!adapted_product(k, AdapterPart::kA, out, r, l)) return false;
    weight(k, r, l, AdapterPart::kA);
    return true;
  }
  need(k, value(Quantity::kTransposed, 0));
  r = TensorRole::kHead, l = -1;
  return product(r, l, out);
}

/// y += scale * u B^T completes the output of an adapted product, with DoRA the unscaled one. With dropout,
/// the output of the product has this part too, and lacks only what the magnitudes change.
void ValueRun::lora_b() {
  Product q;
  TensorRole r{};
  std::int32_t l = -1;
  if (!adapted_product(lora_b::kWeight, AdapterPart::kB, q, r, l)) return;
  need(lora_b::kU, inner(q, r, l));
  weight(lora_b::kWeight, r, l, AdapterPart::kB);
  const bool of_output = has_magnitudes(r, l) && drops() && contents(in(lora_b::kY)) == without_adapters(q.y);
  const Value sum = of_output ? q.y : sum_with_adapters(r, l, q);
  need(lora_b::kY, without_adapters(sum));
  // Of TP ranks, the part of a sum where the product divides its inputs.
  give(lora_b::kYOut, of_output ? without_magnitudes(sum) : of_inputs(q, sum));
}

/// The norms of the rows of W + scale * B A and the magnitudes, as factors of the outputs.
void ValueRun::dora_scale() {
  Product q;
  TensorRole r{};
  std::int32_t l = -1;
  if (!adapted_product(dora_scale::kMagnitude, AdapterPart::kMagnitude, q, r, l)) return;
  if (q.divides_inputs && has_tensor_ranks()) f_.at(i_, "takes norms of this rank's columns of a row");
  weight(dora_scale::kWeight, matrix_of(r), l);
  if (r == TensorRole::kHead && ties_adapter()) {
    need(dora_scale::kA, value(Quantity::kTransposed, 0));
    weight(dora_scale::kB, TensorRole::kEmbed, -1, AdapterPart::kA);
  } else {
    weight(dora_scale::kA, r, l, AdapterPart::kA), weight(dora_scale::kB, r, l, AdapterPart::kB);
  }
  weight(dora_scale::kMagnitude, r, l, AdapterPart::kMagnitude);
  give(dora_scale::kScale, of_product(Quantity::kDoraScale, r, l));
}

void ValueRun::dora_squares() {
  Product q;
  TensorRole r{};
  std::int32_t l = -1;
  if (!adapted_product(dora_squares::kB, AdapterPart::kB, q, r, l)) return;
  weight(dora_squares::kWeight, matrix_of(r), l);
  weight(dora_squares::kA, r, l, AdapterPart::kA), weight(dora_squares::kB, r, l, AdapterPart::kB);
  give(dora_squares::kSquares, of_inputs(q, of_product(Quantity::kDoraSquares, r, l)));
}

void ValueRun::dora_factors() {
  Product q;
  TensorRole r{};
  std::int32_t l = -1;
  if (!adapted_product(dora_factors::kMagnitude, AdapterPart::kMagnitude, q, r, l)) return;
  weight(dora_factors::kMagnitude, r, l, AdapterPart::kMagnitude);
  need(dora_factors::kSquares, of_product(Quantity::kDoraSquares, r, l));
  give(dora_factors::kScale, of_product(Quantity::kDoraScale, r, l));
}

/// The first matrix of the product with this number (adapted_product_number()).
TensorRole ValueRun::role_of_product(std::int32_t number) const {
  if (number < 4 * layers_) return kFirstMatrix[number % 4];
  return number == 4 * layers_ ? TensorRole::kEmbed : TensorRole::kHead;
}

/// y of the unscaled output; with dropout the change of y. If TP ranks divide the inputs, only the first rank
/// adds bias and residual.
void ValueRun::dora() {
  const Value unscaled = contents(in(dora::kUnscaled));
  if (unscaled.quantity != Quantity::kUnscaled)
    return f_.at(i_, p_[in(dora::kUnscaled)].name() + " is not the unscaled output of a product");
  const TensorRole r = role_of_product(unscaled.at);
  const std::int32_t l = unscaled.at < 4 * layers_ ? unscaled.at / 4 : -1;
  const bool dropped = drops() && r != TensorRole::kEmbed;
  Product q;
  product(r, l, q);
  need(dora::kUnscaled, of_inputs(q, of_product(Quantity::kUnscaled, r, l)));
  need(dora::kScale, of_product(Quantity::kDoraScale, r, l));
  if ((in(dora::kAdded) != kNoBuffer) != dropped)
    return f_.at(i_, dropped ? "overwrites the product of the input" : "adds without a dropout");
  const bool adds = !dropped && (!q.has_residual || adds_to_sum()), bias = l >= 0 && biased(q.bias) && adds,
             residual = q.has_residual && adds && !divides_rows();
  if ((in(dora::kBias) != kNoBuffer) != bias)
    f_.at(i_, bias ? "omits the bias" : "has a bias");
  else if (bias)
    weight(dora::kBias, q.bias, l);
  if ((in(dora::kResidual) != kNoBuffer) != residual)
    f_.at(i_, residual ? "omits the residual" : "adds a residual");
  else if (residual)
    need(dora::kResidual, q.residual);
  if (dropped) need(dora::kAdded, without_magnitudes(q.y));
  give(dora::kY, of_inputs(q, q.y));
}

/// unscaled becomes its gradient; with dropout also that of the product of the dropped input.
void ValueRun::dora_bwd() {
  Product q;
  TensorRole r{};
  std::int32_t l = -1;
  if (!adapted_product(dora_bwd::kGradMagnitude, AdapterPart::kMagnitude, q, r, l)) return;
  const Value unscaled = of_product(Quantity::kUnscaled, r, l);
  need(dora_bwd::kDy, grad(q.y)), need(dora_bwd::kUnscaled, of_inputs(q, unscaled));
  need(dora_bwd::kScale, of_product(Quantity::kDoraScale, r, l));
  contributes(dora_bwd::kGradMagnitude, r, l, AdapterPart::kMagnitude);
  give(dora_bwd::kDUnscaled, grad(unscaled));
  give(dora_bwd::kDProduct, grad(without_adapters(unscaled)));
}

/// du = scale * dy B.
void ValueRun::lora_b_dx() {
  Product q;
  TensorRole r{};
  std::int32_t l = -1;
  if (!adapted_product(lora_b_dx::kWeight, AdapterPart::kB, q, r, l)) return;
  need(lora_b_dx::kDy, grad(sum_with_adapters(r, l, q)));
  weight(lora_b_dx::kWeight, r, l, AdapterPart::kB);
  give(lora_b_dx::kDu, d_inner(q, r, l));
}

/// dB += scale * dy^T u.
void ValueRun::lora_b_dw() {
  Product q;
  TensorRole r{};
  std::int32_t l = -1;
  if (!adapted_product(lora_b_dw::kGradWeight, AdapterPart::kB, q, r, l)) return;
  need(lora_b_dw::kDy, grad(sum_with_adapters(r, l, q)));
  need(lora_b_dw::kU, inner(q, r, l));
  contributes(lora_b_dw::kGradWeight, r, l, AdapterPart::kB);
}

/// dx += du A completes the gradient of the input of an adapted product; with DoRA and dropout, that of the
/// dropped input.
void ValueRun::linear_dx_add() {
  Product q;
  TensorRole r{};
  std::int32_t l = -1;
  if (!a_of_adapter(linear_dx_add::kWeight, q, r, l)) return;
  need(linear_dx_add::kDy, d_inner(q, r, l));
  if (drops() && !has_magnitudes(r, l)) f_.at(i_, "adds a gradient without the mask of the dropout");
  const Value x = has_magnitudes(r, l) ? lora_input(r, l, q.x) : q.x;
  need(linear_dx_add::kDx, without_adapters(grad(x)));
  give(linear_dx_add::kDxOut, of_outputs(q, grad(x)));
}

/// The product of layer l whose input is x; the mask of the dropout must be its own.
void ValueRun::dropout() {
  const auto at = static_cast<std::int32_t>(step::dropout_product(p_, *o_));
  Product q;
  product(role_of_product(at), at < 4 * layers_ ? at / 4 : -1, q);  // that of the embedding has no dropout
  const bool forward = o_->kind == OpKind::kDropout;
  if (p_.traits.tier == Tier::kDevice)
    host_input(forward ? dropout::kMicroBatch : dropout_add::kMicroBatch, "micro_batch");
  if (forward) {
    need(dropout::kX, q.x);
    return give(dropout::kY, value(Quantity::kDropped, at));
  }
  need(dropout_add::kDy, of_outputs(q, grad(value(Quantity::kDropped, at))));
  need(dropout_add::kDx, without_adapters(grad(q.x)));
  give(dropout_add::kDxOut, of_outputs(q, grad(q.x)));
}

}  // namespace trainhost::placement
