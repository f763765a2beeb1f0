// See optimizer_step.hpp. Temporaries are those of the implementation: `foreach` makes lists of tensors with
// one per parameter, `fused` none, `for-loop` those of one parameter at a time.
#include "core/frameworks/optimizer_step.hpp"

#include <utility>

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
  if (s_.fsdp.offloads) return;  // it runs on the CPU
  if (s_.optimizer == Optimizer::kAdamW8bit || s_.paged_optimizer) {
    run_8bit_or_paged(parameters);
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

void OptimizerStep::run_8bit_or_paged(std::span<const Tensor> parameters) {
  constexpr std::uint64_t kSmall = 4096, kPaged = 100'000, kBlock = 256;
  constexpr std::int64_t kTable = 256;
  const bool rounds = s_.optimizer == Optimizer::kAdamW8bit;
  const bool bitsandbytes = s_.paged_optimizer || s_.modules == ModelSource::kTransformers;
  for (const Tensor& p : parameters) {
    if (!p->grad || !updated_.insert(p.get()).second) continue;
    const std::uint64_t n = p->shape.count();
    const auto blocks = static_cast<std::int64_t>((n + kBlock - 1) / kBlock);
    const auto state = [&](Element type, const Shape& shape, const char* name) {
      state_.push_back(moment(p, type, shape, Purpose::kOptimizerState, name));
    };
    const bool paged = s_.paged_optimizer && n >= kPaged;
    const bool wide = !rounds || n < kSmall || (s_.f32_embedding_moments && p->embedding);
    // name2qmap: tables of the values of one byte, for each of the two moments.
    if (bitsandbytes && !wide && !std::exchange(has_tables_, true))
      for (int i = 0; i < 2; ++i)
        state_.push_back(
            t_.new_storage({kTable}, Element::kF32, Purpose::kOptimizerState, "", "table of the moments"));
    for (int i = 0; i < 2; ++i) {
      if (wide) {
        if (!paged) state(bitsandbytes ? Element::kF32 : p->type, p->shape, "moment");
        continue;
      }
      if (!paged) state(Element::kByte, p->shape, "moment of one byte");
      state(Element::kF32, {blocks}, "scales of the moment");
    }
  }
  for (const Tensor& p : parameters)
    if (p->grad && !bitsandbytes && p->shape.count() >= kSmall) run_compiled_8bit(p);
  for (const Tensor& p : parameters) p->grad.reset();
}

void OptimizerStep::run_compiled_8bit(const Tensor& p) {
  const auto elements = static_cast<std::int64_t>(p->shape.count()), blocks = (elements + 255) / 256;
  const auto temporary = [&](Element type, std::int64_t n, const char* name) {
    return moment(p, type, {n}, Purpose::kUpdate, name);
  };
  if (!s_.tunes_with_clones) {
    const Tensor first = temporary(Element::kF32, blocks, "largest first moments of the blocks");
    const Tensor second = temporary(Element::kF32, blocks, "largest second moments of the blocks");
    return;
  }
  // torch 2.5: one of its values is kept in f32 between two passes over the parameter. The first call for a
  // size measures several launch configurations (CachingAutotuner.bench()) with clones of what the kernel
  // changes. Parameter, moments and scales are arguments twice, to be read and to be written, so they are
  // cloned twice.
  const Tensor value = temporary(Element::kF32, elements, "update in f32");
  if (!tuned_.insert({p->shape.size[0], p->shape.dims > 1 ? p->shape.size[1] : 0}).second) return;
  constexpr std::int64_t kCacheBytes = 256'000'000;  // do_bench() of Triton 3.1 clears the L2 cache with it
  std::vector<Tensor> clones{temporary(Element::kByte, kCacheBytes, "buffer of the measurement")};
  for (int i = 0; i < 2; ++i) {
    clones.push_back(temporary(p->type, elements, "clone of the parameter"));
    for (int j = 0; j < 2; ++j) {
      clones.push_back(temporary(Element::kByte, elements, "clone of the moment"));
      clones.push_back(temporary(Element::kF32, blocks, "clone of the scales"));
    }
  }
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
