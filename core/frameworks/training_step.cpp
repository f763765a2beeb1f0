#include "core/frameworks/training_step.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "core/base/checked.hpp"
#include "core/frameworks/decoder.hpp"
#include "core/frameworks/decoder_litgpt.hpp"
#include "core/frameworks/decoder_torchtitan.hpp"
#include "core/frameworks/decoder_torchtune.hpp"
#include "core/frameworks/operators.hpp"

namespace trainhost::frameworks {
namespace {

constexpr std::string_view kFamilies[] = {"gemma2",  "gemma3",  "gemma3_text", "gpt2",  "llama",
                                          "mistral", "mixtral", "phi3",        "qwen2", "qwen3"};

/// optimizer.step() and zero_grad(set_to_none=True).
class OptimizerStep {
 public:
  OptimizerStep(Tape& tape, const StepSettings& settings, const std::vector<Tensor>& trained)
      : t_(tape), s_(settings), trained_(trained) {}

  /// The step of one parameter, when its gradient is complete.
  void run(const Tensor& p) { run(std::span(&p, 1)); }

  /// The step of all parameters, after the gradients of torchtune are divided by the number of tokens.
  void run() {
    if (s_.modules == ModelSource::kTorchtune && !s_.update_in_backward) {
      const Tensor tokens = t_.new_storage({}, Element::kI64, Purpose::kUpdate, "", "number of tokens");
      const Tensor inverse = t_.new_storage({}, Element::kF32, Purpose::kUpdate, "", "1/tokens");
      const Tensor scale = t_.new_storage({}, Element::kF32, Purpose::kUpdate, "", "1/tokens");
    }
    run(trained_);
  }

 private:
  void run(std::span<const Tensor> parameters) {
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

  /// AdamW8bit of torchao, or PagedAdamW8bit of bitsandbytes: moments of one byte with a scale per 256
  /// elements; those of fewer than 4,096 elements are not rounded. Paged moments, of 100,000 elements or
  /// more, are memory of the driver, which moves them to the host.
  void run_8bit(std::span<const Tensor> parameters) {
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

  Tensor moment(const Tensor& p, Element type, const Shape& shape, Purpose purpose, const char* tensor) {
    const TraceStorage own = t_.storage(p);
    t_.layer = own.layer;
    Tensor out = t_.new_storage(shape, type, purpose, "", tensor);
    t_.storage(out).module = own.module;
    t_.layer = -1;
    return out;
  }

  Tensor like(const Tensor& p, const Shape& shape, Purpose purpose, const char* tensor) {
    const TraceStorage own = t_.storage(p);
    t_.layer = own.layer;
    Tensor out = t_.new_storage(shape, shape.dims ? p->type : Element::kF32, purpose, "", tensor);
    t_.storage(out).module = own.module;
    t_.layer = -1;
    return out;
  }

  Tape& t_;
  const StepSettings& s_;
  const std::vector<Tensor>& trained_;
  std::vector<Tensor> state_;
  std::set<const TensorBody*> updated_;  // that have their state
};

/// Gradients are reduced from buckets of 25 MiB, the first of 1 MiB, that exist during the whole run.
std::vector<Tensor> ddp_buckets(Tape& tape, const std::vector<Tensor>& trained) {
  std::vector<Tensor> buckets;
  std::int64_t limit = 1 << 20, bytes = 0;
  const auto close = [&] {
    if (bytes)
      buckets.push_back(
          tape.new_storage({bytes}, Element::kByte, Purpose::kCommunication, "", "bucket of DDP"));
    bytes = 0;
    limit = 25 << 20;
  };
  for (auto p = trained.rbegin(); p != trained.rend(); ++p) {
    bytes += static_cast<std::int64_t>((*p)->bytes());
    if (bytes >= limit) close();
  }
  close();
  return buckets;
}

/// Where a step begins in a trace.
struct Mark {
  std::size_t storages, events, phases;
};
Mark mark(const Trace& t) { return {t.storages.size(), t.events.size(), t.phases.size()}; }

/// Appends step 1, whose events are those from `first` on, again as step 2, without what step 1 allocated for
/// the whole run. Returns false where step 1 kept something that the next step replaces.
bool copy_step(Trace& t, const Mark& first) {
  const Mark last = mark(t);
  std::vector<bool> kept(last.storages - first.storages, true);
  for (std::size_t i = first.events; i < last.events; ++i) {
    const TraceEvent e = t.events[i];
    if (e.allocation) continue;
    if (e.storage < first.storages) return false;
    kept[e.storage - first.storages] = false;
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const Purpose p = t.storages[first.storages + i].purpose;
    if (kept[i] && p != Purpose::kOptimizerState && p != Purpose::kKernel) return false;
  }
  t.storages.reserve(2 * last.storages);
  t.events.reserve(2 * last.events);
  std::vector<std::uint32_t> copy_of(kept.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    copy_of[i] = static_cast<std::uint32_t>(t.storages.size());
    if (!kept[i]) t.storages.push_back(t.storages[first.storages + i]);
  }
  std::size_t phase = first.phases;
  for (std::size_t i = first.events; i <= last.events; ++i) {
    for (; phase < last.phases && t.phases[phase].event == i; ++phase) {
      TracePhase p = t.phases[phase];
      p.event = t.events.size();
      p.step = 2;
      t.phases.push_back(p);
    }
    if (i == last.events) break;
    const TraceEvent e = t.events[i];
    if (!kept[e.storage - first.storages])
      t.events.push_back({copy_of[e.storage - first.storages], e.allocation});
  }
  return true;
}

/// Throws usage_error where sums of the trace could exceed 63 bits: the largest tensor in f32, as often as a
/// layer has storages in two steps.
void require_countable(const model::Architecture& a, const StepSettings& s) {
  constexpr std::uint64_t kBytes = 4, kStoragesPerLayer = 4096;
  const std::uint64_t tokens = checked_mul(s.batch, s.sequence);
  std::uint64_t widest = std::max<std::uint64_t>(a.vocab, a.hidden), heads = 1;
  for (const model::LayerRun& r : a.layers) {
    const model::Layer& l = r.layer;
    const std::uint64_t experts = checked_mul(l.experts.active, l.experts.each.width, 2);
    const std::uint64_t attention = checked_mul(l.attention.heads, l.attention.head_dim);
    widest = std::max({widest, checked_mul(l.mlp.width, 2), experts, attention});
    widest = std::max(widest, checked_mul(l.experts.count, l.experts.each.width, 2));
    heads = std::max<std::uint64_t>(heads, l.attention.heads);
  }
  const std::uint64_t scores = checked_mul(tokens, heads, s.sequence);
  const std::uint64_t largest =
      std::max({checked_mul(tokens, widest), checked_mul(widest, a.hidden), scores});
  checked_mul(largest, kBytes, kStoragesPerLayer, a.layer_count() + 1);
}

std::unique_ptr<StepModel> make_model(Tape& tape, const model::Architecture& a, const StepSettings& s) {
  if (s.modules == ModelSource::kTorchtitan) return std::make_unique<TorchtitanDecoder>(tape, a, s);
  if (s.modules == ModelSource::kLitgpt) return std::make_unique<LitgptDecoder>(tape, a, s);
  if (s.modules == ModelSource::kTorchtune) return std::make_unique<TorchtuneDecoder>(tape, a, s);
  return std::make_unique<Decoder>(tape, a, s);
}

}  // namespace

bool has_builder(std::string_view family, ModelSource modules) {
  if (modules == ModelSource::kTorchtitan || modules == ModelSource::kLitgpt ||
      modules == ModelSource::kTorchtune)
    return family == "llama" || (family == "mistral" && modules == ModelSource::kTorchtune);
  return std::find(std::begin(kFamilies), std::end(kFamilies), family) != std::end(kFamilies);
}

TrainingStep training_step(const model::Architecture& architecture, const StepSettings& s) {
  if (!has_builder(architecture.family, s.modules))
    throw usage_error("the training step of the family '" + architecture.family + "' is not described",
                      "families: gemma2, gemma3, gpt2, llama, mistral, mixtral, phi3, qwen2, qwen3");
  require_countable(architecture, s);
  TrainingStep result;
  Tape tape(result.trace, s.machine);
  tape.autocast_type = s.autocast_type;
  tape.begin(kLoad, 0, 0);
  const std::unique_ptr<StepModel> model = make_model(tape, architecture, s);
  OptimizerStep optimizer(tape, s, model->trained());
  if (s.update_in_backward)
    tape.after_gradient = [&](TensorBody& leaf) {
      if (leaf.parameter) optimizer.run(Tensor(&leaf));
    };
  std::vector<Tensor> kept;
  if (s.ddp) kept = ddp_buckets(tape, model->trained());
  // Each of the two threads has a handle of cuBLAS with a workspace.
  const auto add_workspace = [&] {
    if (const auto bytes = static_cast<std::int64_t>(s.machine.cublas_workspace))
      kept.push_back(tape.new_storage({bytes}, Element::kByte, Purpose::kKernel, "", "workspace of cuBLAS"));
  };
  const auto run_step = [&](std::uint32_t step) {
    for (std::uint32_t i = 1; i <= s.accumulate; ++i) {
      tape.begin(kForward, step, i);
      if (tape.recording = step == 1 && i == 1; tape.recording) add_workspace();
      Tensor loss = model->loss();
      const bool first = std::exchange(tape.recording, false);
      if (s.accumulate > 1 && s.modules != ModelSource::kTorchtune) loss = div_number(tape, loss);
      tape.begin(kBackward, step, i);
      if (first) add_workspace();
      if (model->fsdp()) model->fsdp()->before_backward(s.fsdp.reduce_every_micro_batch || i == s.accumulate);
      tape.run_backward(loss, [&] {
        if (model->fsdp()) model->fsdp()->after_backward();
      });
    }
    tape.begin(kUpdate, step, 0);
    optimizer.run();
  };
  const Mark before = mark(result.trace);
  run_step(1);
  const bool copied = s.steps == 2 && s.copies_step && copy_step(result.trace, before);
  for (std::uint32_t step = 2; step <= s.steps && !copied; ++step) run_step(step);
  result.saved_bytes = tape.saved_bytes;
  result.saved_bytes.resize(architecture.layer_count() + 1);
  return result;
}

}  // namespace trainhost::frameworks
