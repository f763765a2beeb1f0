// See optimizer_step.hpp. Temporaries are those of the implementation: `foreach` makes lists of tensors with
// one per parameter, `fused` none, `for-loop` those of one parameter at a time.
#include "core/frameworks/optimizer_step.hpp"

namespace trainhost::frameworks {

void OptimizerStep::run() {
  if (s_.modules == ModelSource::kTorchtune && !s_.update_in_backward) {
    const Tensor tokens = t_.new_storage({}, Element::kI64, Purpose::kUpdate, "", "number of tokens");
    const Tensor inverse = t_.new_storage({}, Element::kF32, Purpose::kUpdate, "", "1/tokens");
    const Tensor scale = t_.new_storage({}, Element::kF32, Purpose::kUpdate, "", "1/tokens");
  }
  run(trained_);
}

void OptimizerStep::run(std::span<const Tensor> parameters) {
  if (s_.optimizer == Optimizer::kAdamW8bit) {
    run_8bit(parameters);
    return;
  }
  const bool adam = s_.optimizer == Optimizer::kAdamW;
  const int moments = adam ? 2 : s_.optimizer == Optimizer::kSgdMomentum ? 1 : 0;
  const bool counts = adam && (s_.loop == OptimizerLoop::kFused || t_.options.counters_on_device);
  if (state_.empty() || s_.update_in_backward)
    for (const Tensor& p : parameters) {
      if (!p->grad || !updated_.insert(p.get()).second) continue;
      for (int i = 0; i < moments; ++i)
        state_.push_back(like(p, p->shape, Purpose::kOptimizerState, "moment"));
      if (counts) state_.push_back(like(p, {}, Purpose::kOptimizerState, "step counter"));
    }
  if (adam && s_.loop == OptimizerLoop::kForeach) {
    // The square roots of all second moments exist at the same time.
    std::vector<Tensor> roots;
    for (const Tensor& p : parameters)
      if (p->grad) roots.push_back(like(p, p->shape, Purpose::kUpdate, "square root of the second moment"));
  }
  if (adam && s_.loop == OptimizerLoop::kForLoop)
    for (const Tensor& p : parameters) {
      if (!p->grad) continue;
      const Tensor root = like(p, p->shape, Purpose::kUpdate, "square root of the second moment");
      like(p, p->shape, Purpose::kUpdate, "square root of the second moment, corrected");
    }
  if (!adam && s_.weight_decay && s_.loop == OptimizerLoop::kForeach) {
    // Weight decay is added to copies of all gradients.
    std::vector<Tensor> decayed;
    for (const Tensor& p : parameters)
      if (p->grad) decayed.push_back(like(p, p->shape, Purpose::kUpdate, "gradient with weight decay"));
  }
  for (const Tensor& p : parameters) p->grad.reset();
}

void OptimizerStep::run_8bit(std::span<const Tensor> parameters) {
  constexpr std::uint64_t kSmall = 4096, kPaged = 100'000, kBlock = 256;
  for (const Tensor& p : parameters) {
    if (!p->grad || !updated_.insert(p.get()).second) continue;
    const std::uint64_t n = p->shape.count();
    const auto blocks = static_cast<std::int64_t>((n + kBlock - 1) / kBlock);
    const auto state = [&](Element type, const Shape& shape, const char* name) {
      state_.push_back(moment(p, type, shape, Purpose::kOptimizerState, name));
    };
    for (int i = 0; i < 2; ++i) {
      if (n < kSmall) {
        state(s_.paged_optimizer ? Element::kF32 : p->type, p->shape, "moment");
        continue;
      }
      if (!s_.paged_optimizer || n < kPaged) state(Element::kByte, p->shape, "moment of one byte");
      state(Element::kF32, {blocks}, "scales of the moment");
    }
  }
  // The compiled step of torchao writes both moments in f32, divided by their scales, before it rounds
  // them.
  for (const Tensor& p : parameters)
    if (p->grad && !s_.paged_optimizer && p->shape.count() >= kSmall) {
      const Tensor first = moment(p, Element::kF32, p->shape, Purpose::kUpdate, "first moment in f32");
      const Tensor second = moment(p, Element::kF32, p->shape, Purpose::kUpdate, "second moment in f32");
    }
  for (const Tensor& p : parameters) p->grad.reset();
}

Tensor OptimizerStep::moment(const Tensor& p, Element type, const Shape& shape, Purpose purpose,
                             const char* tensor) {
  const TraceStorage own = t_.storage(p);
  t_.layer = own.layer;
  Tensor out = t_.new_storage(shape, type, purpose, "", tensor);
  t_.storage(out).module = own.module;
  t_.layer = -1;
  return out;
}

Tensor OptimizerStep::like(const Tensor& p, const Shape& shape, Purpose purpose, const char* tensor) {
  const TraceStorage own = t_.storage(p);
  t_.layer = own.layer;
  Tensor out = t_.new_storage(shape, shape.dims ? p->type : Element::kF32, purpose, "", tensor);
  t_.storage(out).module = own.module;
  t_.layer = -1;
  return out;
}

}  // namespace trainhost::frameworks
