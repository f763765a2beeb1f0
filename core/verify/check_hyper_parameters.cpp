// GPU-007: every optimizer instance uses the hyper-parameters of the run file. Two tests. First: AdamW with
// unusual values gives the weights of the CPU trainer. Second: each value by itself changes every tensor that
// it applies to. In the second test all steps but the last have lr 0, so that the gradients are the same bits
// in every run and a change of one tensor cannot cause a change of another.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/verify/contract_table.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

// More than one step, so that betas matter: in the first step of AdamW the bias correction cancels both of
// them.
constexpr std::uint64_t kHyperParameterSteps = 3;
constexpr double kHyperParameterLr = 3e-2, kHyperParameterBound = 1e-3;  // of the tensor's largest change

/// AdamW in f32 with values that differ from every default.
runfile::RunConfig with_unusual_values(const runfile::RunConfig& from) {
  runfile::RunConfig c = in_fp32(from);
  c.run.optimizer = Optimizer::kAdamW;
  c.run.beta1 = 0.7, c.run.beta2 = 0.8;
  c.run.eps = 1e-3;
  c.run.weight_decay = 0.3;
  // Clipping would make the update of every tensor depend on all gradients.
  c.run.clip_norm = 0;
  return c;
}

Snapshot train(Context& context, const runfile::RunConfig& c, const TrainerFixture::Options& o,
               const std::function<double(std::uint64_t)>& lr, Snapshot* before = nullptr) {
  TrainerFixture fixture(context, c, o);
  if (before) *before = fixture.weights();
  for (std::uint64_t t = 0; t < kHyperParameterSteps; ++t) fixture.step(t, lr(t));
  return fixture.weights();
}

struct Expected {
  Snapshot before, after;
};

/// Largest difference from the reference, relative to the largest change of the same tensor.
/// Relative, because tensors change by different amounts. off == 0 is 0 also for a tensor that does not
/// change.
Finding compare(const Expected& expected, const Snapshot& got, const std::string& note) {
  double worst = 0;
  std::string where = "none";
  for (std::size_t i = 0; i < got.tensors.size(); ++i) {
    const double change = max_abs_difference(expected.before.values_of(i), expected.after.values_of(i));
    const double off = max_abs_difference(expected.after.values_of(i), got.values_of(i));
    const double relative = off == 0 ? 0 : change == 0 ? INFINITY : off / change;
    if (relative > worst) worst = relative, where = got.tensors[i].name;
  }
  return {worst < kHyperParameterBound, worst, kHyperParameterBound,
          fmt::format("after {} AdamW steps with lr {:g}, betas 0.7 and 0.8, eps 1e-3, weight decay 0.3 the "
                      "weights differ from those of the cpu trainer by at most {:.2g} of a tensor's largest "
                      "change (worst: {}){}",
                      kHyperParameterSteps, kHyperParameterLr, worst, where, note)};
}

/// One changed hyper-parameter.
/// One changed hyper-parameter, far enough from the base that every element it applies to changes.
struct Variant {
  const char* name;
  std::function<void(RunSpec&)> change;
  double lr = kHyperParameterLr;
  bool decay = false;  // only matrices may change
};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = {
      // The first variant changes only the rate of the last step.
      {"lr", [](RunSpec&) {}, 2e-2},
      {"betas[0]", [](RunSpec& r) { r.beta1 = 0.6; }},
      {"betas[1]", [](RunSpec& r) { r.beta2 = 0.6; }},
      {"eps", [](RunSpec& r) { r.eps = 3e-3; }},
      // Decay applies to matrices only.
      {"weight_decay", [](RunSpec& r) { r.weight_decay = 0.1; }, kHyperParameterLr, true},
  };
  return all;
}

/// Which tensors wrongly ignore or use one hyper-parameter; "" if none.
/// Both directions: a value that is ignored, and decay of norms or biases.
std::string wrong_effect(const Variant& v, const Snapshot& base, const Snapshot& changed) {
  std::vector<std::string> unchanged, wrongly_changed;
  for (std::size_t i = 0; i < base.tensors.size(); ++i) {
    const bool same = different_bits(base.values_of(i), changed.values_of(i)) == 0;
    const bool applies = !v.decay || base.tensors[i].rank >= 2;
    if (same && applies) unchanged.push_back(base.tensors[i].name);
    if (!same && !applies) wrongly_changed.push_back(base.tensors[i].name);
  }
  if (!unchanged.empty())
    return fmt::format("optimizer.{} has no effect on {}", v.name, join_first_names(unchanged));
  if (!wrongly_changed.empty())
    return fmt::format("optimizer.{} changes {}, which has one dimension", v.name,
                       join_first_names(wrongly_changed));
  return "";
}

std::string judge_effects(Context& context, const std::string& mode) {
  const runfile::RunConfig c = with_unusual_values(context.run);
  // lr 0 in all but the last step: weights stay, moments are updated.
  auto last_step = [](double lr) {
    return [lr](std::uint64_t t) { return t + 1 == kHyperParameterSteps ? lr : 0.0; };
  };
  const TrainerFixture::Options o{.mode = mode};
  const Snapshot base = train(context, c, o, last_step(kHyperParameterLr));
  std::string wrong;
  for (const Variant& v : variants()) {
    runfile::RunConfig changed = c;
    v.change(changed.run);
    const std::string w = wrong_effect(v, base, train(context, changed, o, last_step(v.lr)));
    if (!w.empty()) wrong += (wrong.empty() ? "" : "; ") + w;
  }
  return wrong;
}

}  // namespace

Result check_hyper_parameters(Context& context) {
  const runfile::RunConfig c = with_unusual_values(context.run);
  auto constant = [](std::uint64_t) { return kHyperParameterLr; };
  // The reference is the CPU trainer in f32; it is computed once, for all modes.
  Expected expected;
  return run_in_every_mode(context, [&](const std::string& mode) {
    if (expected.after.tensors.empty())
      expected.after = train(context, c, {.mode = mode, .reference = true}, constant, &expected.before);
    Finding f = compare(expected, train(context, c, {.mode = mode}, constant), fp32_note(context.run));
    if (const std::string wrong = judge_effects(context, mode); !wrong.empty())
      return Finding{false, std::max(f.measured, kHyperParameterBound), kHyperParameterBound, wrong};
    f.detail += "; each of the five values affects exactly the tensors that it applies to";
    return f;
  });
}

}  // namespace trainhost::verify
