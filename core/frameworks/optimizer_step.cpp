#include "core/frameworks/optimizer_step.hpp"

namespace trainhost::frameworks {

void OptimizerStep::run() {
  const bool adam = s_.optimizer == Optimizer::kAdamW;
  const int moments = adam ? 2 : s_.optimizer == Optimizer::kSgdMomentum ? 1 : 0;
  const bool counts = adam && (s_.loop == OptimizerLoop::kFused || t_.options.counters_on_device);
  if (state_.empty())
    for (const Tensor& p : trained_) {
      if (!p->grad) continue;
      for (int i = 0; i < moments; ++i)
        state_.push_back(like(p, p->shape, Purpose::kOptimizerState, "moment"));
      if (counts) state_.push_back(like(p, {}, Purpose::kOptimizerState, "step counter"));
    }
  if (adam && s_.loop == OptimizerLoop::kForeach) {
    // The square roots of all second moments exist at the same time.
    std::vector<Tensor> roots;
    for (const Tensor& p : trained_)
      if (p->grad) roots.push_back(like(p, p->shape, Purpose::kUpdate, "square root of the second moment"));
  }
  if (adam && s_.loop == OptimizerLoop::kForLoop)
    for (const Tensor& p : trained_) {
      if (!p->grad) continue;
      const Tensor root = like(p, p->shape, Purpose::kUpdate, "square root of the second moment");
      like(p, p->shape, Purpose::kUpdate, "square root of the second moment, corrected");
    }
  if (!adam && s_.weight_decay && s_.loop == OptimizerLoop::kForeach) {
    // Weight decay is added to copies of all gradients.
    std::vector<Tensor> decayed;
    for (const Tensor& p : trained_)
      if (p->grad) decayed.push_back(like(p, p->shape, Purpose::kUpdate, "gradient with weight decay"));
  }
  for (const Tensor& p : trained_) p->grad.reset();
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
