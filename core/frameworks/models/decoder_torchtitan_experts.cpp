// Mixture of experts of torchtitan 0.2, with the experts on all ranks, or on the ranks of expert parallelism.
// N tokens, k experts per token, R = N * k rows, E experts on this rank, I their width. Every rank sends and
// receives R rows: how many an expert has depends on values. Tensor-parallel ranks divide the width of each
// expert; with expert parallelism they divide the rows, and are a part of its ranks
// (expert_tensor_parallel_degree = 1).
#include <array>

#include "core/frameworks/autograd/operators.hpp"
#include "core/frameworks/models/decoder_torchtitan.hpp"

namespace trainhost::frameworks {
namespace {

/// Rows of each expert are padded to a multiple of this (TOKEN_GROUP_ALIGN_SIZE_M).
constexpr std::int64_t kAlignment = 8;

/// x.gather(dim, index), which saves x and the index.
Tensor gathered(Tape& t, const Tensor& x, const Tensor& index, const Shape& shape, const char* name) {
  const std::array saved{x, index};
  return t.apply({name, std::span(&x, 1), saved, false,
                  [](BackwardCall& c) {
                    const Shape before = c.saved[0]->shape.made_contiguous();
                    Tensor zeros = c.tape.make(before, c.grads[0]->type, "gradient");
                    if (c.tape.options.subclass_gradients)  // scatter_add() instead of scatter_add_()
                      zeros = c.tape.make(before, c.grads[0]->type, "gradient");
                    c.results[0] = std::move(zeros);
                  }},
                 shape, x->type);
}

/// a / b for [N, k] and [N, 1].
Tensor normalised(Tape& t, const Tensor& a, const Tensor& b) {
  const std::array inputs{a, b};
  return t.apply({"weights", inputs, inputs, false,
                  [](BackwardCall& c) {
                    const Tensor g = c.take();
                    const auto make = [&](const Shape& s) { return c.tape.make(s, g->type, "gradient"); };
                    c.results[0] = make(g->shape);
                    // -grad * ((a / b) / b), summed over the experts.
                    Tensor quotient = make(g->shape);
                    quotient = make(g->shape);
                    const Tensor negative = make(g->shape);
                    const Tensor product = make(g->shape);
                    c.results[1] = make(c.saved[1]->shape);
                  }},
                 a->shape, a->type);
}

}  // namespace

void TorchtitanDecoder::add_experts(const model::Experts& given, Layer& w) {
  Experts& e = w.experts;
  e.count = given.count, e.active = given.active;
  const std::int64_t here = e.count / s_.expert;
  const std::int64_t width = given.each.width / (s_.expert == 1 ? s_.tensor : 1);
  const auto add = [&](const Shape& shape, const char* module) {
    if (s_.expert == 1) return weight(t_.layer, shape, module);
    // Sharded by experts, or where there are fewer of them than ranks, by rows.
    const int dim = static_cast<std::int64_t>(s_.fsdp.ranks) * s_.tensor > e.count ? 1 : 0;
    Tensor shard;
    const Tensor full = units_->expert_parameter(t_.layer, shape, s_.weights, module, dim, shard);
    full->copies_gradient = true;
    trained_.push_back(shard);
    return full;
  };
  e.w1 = add({here, width, hidden_}, "moe.experts.w1");
  e.w2 = add({here, hidden_, width}, "moe.experts.w2");
  e.w3 = add({here, width, hidden_}, "moe.experts.w3");
  e.router = weight(t_.layer, {e.count, hidden_}, "moe.router.gate");
  if (const std::int64_t shared = given.shared.width / s_.tensor) {
    e.shared1 = weight(t_.layer, {shared, hidden_}, "moe.shared_experts.w1");
    e.shared2 = weight(t_.layer, {hidden_, shared}, "moe.shared_experts.w2");
    e.shared3 = weight(t_.layer, {shared, hidden_}, "moe.shared_experts.w3");
  }
  for (const char* name : {"expert_bias", "tokens_per_expert"})
    e.buffers.push_back(t_.new_storage({e.count}, Element::kF32, Purpose::kBuffers, "moe", name));
}

Tensor TorchtitanDecoder::mixture(const Tensor& x, const Layer& w) {
  const ModuleScope scope(t_, "moe");
  const Experts& e = w.experts;
  const std::int64_t tokens = batch_ * sequence_;
  const std::int64_t rows = tokens * e.active / (s_.expert > 1 ? s_.tensor : 1);
  const Tensor flat = view(t_, x, {tokens, hidden_});
  const Shape chosen_shape{tokens, e.active};
  // TokenChoiceTopKRouter.
  Tensor weights, chosen;
  {
    const ModuleScope router(t_, "moe.router");
    Tensor scores = linear(t_, flat, e.router);
    scores = softmax(t_, to(t_, scores, Element::kF32), "scores");
    Tensor unused;  // of topk(), a variable
    {
      const Tensor biased = add_number(t_, scores);
      unused = t_.make(chosen_shape, Element::kF32, "largest scores");
      chosen = t_.make(chosen_shape, Element::kI64, "experts");
    }
    weights = gathered(t_, scores, chosen, chosen_shape, "weights");
    if (!llama4_) {
      const Tensor total = add_number(t_, sum(t_, weights));
      weights = normalised(t_, weights, total);
    }
    weights = mul_number(t_, weights);
  }
  Tensor counts = t_.make({e.count}, Element::kI64, "tokens per expert");
  // TokenReorderer: the rows in the order of the experts.
  Tensor row_weights, token;
  {
    counts = t_.make({e.count}, Element::kI64, "tokens per expert");
    Tensor order;
    {
      const Tensor sorted = t_.make({rows}, Element::kI64, "experts, sorted");
      order = t_.make({rows}, Element::kI64, "order of the rows");
    }
    // ReordererSequenceParallel: this rank's part of the tokens.
    const Tensor own = rows == tokens * e.active ? weights : slice(t_, weights, 0, rows / e.active);
    row_weights = selected_rows(t_, view(t_, own, {rows}), order);
    token = t_.make({rows}, Element::kI64, "token of each row");
  }
  // In f32, before the experts in Llama 4 and after them in the others.
  const auto weighted = [&](const Tensor& given) {
    Tensor wide = to(t_, given, Element::kF32);
    const Tensor product = mul(t_, wide, view(t_, row_weights, {rows, 1}));
    wide.reset();
    return to(t_, product, flat->type);
  };
  Tensor routed = gathered(t_, flat, token, {rows, hidden_}, "rows of the experts");
  if (llama4_) routed = weighted(routed);
  Tensor output = of_experts(routed, e);
  Tensor sum_of_all;
  if (e.shared1) {
    const auto project = [&](const Tensor& input, const Tensor& weight, const char* module) {
      const ModuleScope inner(t_, module);
      return linear(t_, input, weight);
    };
    Tensor active = silu(t_, project(flat, e.shared1, "moe.shared_experts.w1"));
    Tensor up = project(flat, e.shared3, "moe.shared_experts.w3");
    const Tensor product = mul(t_, active, up);
    active.reset();
    up.reset();
    sum_of_all = project(product, e.shared2, "moe.shared_experts.w2");
  } else {
    sum_of_all = t_.make({tokens, hidden_}, flat->type, "zeros");
  }
  if (!llama4_) output = weighted(output);
  // out.scatter_add(0, index, rows): a copy of `out`.
  const std::array inputs{sum_of_all, output};
  sum_of_all = t_.apply({"output", inputs, std::span(&token, 1), false,
                         [shape = output->shape](BackwardCall& c) {
                           if (c.needs(1)) c.results[1] = c.tape.make(shape, c.grads[0]->type, "gradient");
                           c.results[0] = c.take();
                         }},
                        {tokens, hidden_}, flat->type);
  return view(t_, sum_of_all, {batch_, sequence_, hidden_});
}

Tensor TorchtitanDecoder::exchanged(const Tensor& rows, const char* name) {
  // all_to_all_single_autograd(): DeepSeek V3 has it in the list of selective recomputation, Qwen3 has not.
  const Tensor out = t_.make_result(rows->shape, rows->type, name, !qwen3_);
  return t_.apply_view({name,
                        std::span(&rows, 1),
                        {},
                        false,
                        [](BackwardCall& c) {
                          const Tensor g = c.take();
                          c.results[0] = c.tape.make(g->shape.made_contiguous(), g->type, "gradient");
                        }},
                       out, out->shape);
}

Tensor TorchtitanDecoder::of_experts(const Tensor& given, const Experts& e) {
  const ModuleScope scope(t_, "moe.experts");
  const bool parallel = s_.expert > 1;
  const std::int32_t unit = Fsdp::kExperts - t_.layer;
  if (parallel) units_->before_forward(unit);
  const Tensor routed = parallel ? units_->input(unit, given) : given;
  const std::int64_t rows = routed->shape[0], here = e.w1->shape[0];
  const std::int64_t padded = (rows + here * kAlignment + kAlignment - 1) / kAlignment * kAlignment;
  Tensor order, x;
  {
    const Tensor received = parallel ? exchanged(routed, "rows of all ranks") : routed;
    order = t_.make({padded}, Element::kI32, "order of the rows, padded");
    // vstack() with a row of zeros, to which padding refers.
    const Tensor extended = t_.apply({"rows and zeros",
                                      std::span(&received, 1),
                                      {},
                                      false,
                                      [](BackwardCall& c) {
                                        const Tensor g = c.take();
                                        Shape s = g->shape;
                                        s.size[0] -= 1;
                                        c.results[0] = c.tape.alias(g, s);
                                      }},
                                     {rows + 1, hidden_}, routed->type);
    x = selected_rows(t_, extended, order);
  }
  const Tensor padded_counts = t_.make({here}, Element::kI32, "tokens per expert, padded");
  const Tensor offsets = t_.make({here}, Element::kI32, "offsets");
  Tensor output;
  {
    Tensor h = silu(t_, grouped_product(t_, x, e.w1, offsets));
    h = mul(t_, h, grouped_product(t_, x, e.w3, offsets));
    output = grouped_product(t_, h, e.w2, offsets);
  }
  {
    // new_empty() and index_put_() of the rows, without that of zeros.
    const Tensor back = t_.apply(
        {"rows", std::span(&output, 1), std::span(&order, 1), false,
         [shape = output->shape](BackwardCall& c) {
           const Tensor g = c.take();
           const Tensor zeros = c.tape.make({g->shape[0] + 1, g->shape[1]}, g->type, "gradient, with zeros");
           c.results[0] = c.tape.make(shape, g->type, "gradient");
         }},
        {rows + 1, hidden_}, output->type);
    const Tensor part = t_.apply_view(
        {"rows", std::span(&back, 1), {}, false, [](BackwardCall& c) { c.results[0] = c.take(); }}, back,
        {rows, hidden_});
    Tensor result = parallel ? exchanged(part, "rows of this rank") : part;
    output = std::move(result);
  }
  if (parallel) units_->after_forward(unit, output);
  return output;
}

}  // namespace trainhost::frameworks
