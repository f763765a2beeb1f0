// GPU-007: every optimizer instance uses the run file's numbers. Two questions. Does AdamW with unusual
// numbers give the CPU trainer's weights? And does each number by itself change every tensor that it should?
// For the second, all steps but the last have lr 0: the gradients are then the same bits in every run, and no
// tensor inherits another one's change.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/verify/gpu_checks.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint64_t kHyperParameterSteps = 3;
constexpr double kHyperParameterLr = 3e-2, kHyperParameterBound = 1e-3;  // of the tensor's largest change

runfile::RunConfig unusual(const runfile::RunConfig& from) {
  runfile::RunConfig c = in_fp32(from);
  c.run.optimizer = Optimizer::kAdamW;
  c.run.beta1 = 0.7, c.run.beta2 = 0.8;
  c.run.eps = 1e-3;
  c.run.weight_decay = 0.3;
  c.run.clip_norm = 0;
  return c;
}

Snapshot trained(Context& context, const runfile::RunConfig& c, const Rig::Options& o,
                 const std::function<double(std::uint64_t)>& lr, Snapshot* before = nullptr) {
  Rig rig(context, c, o);
  if (before) *before = rig.weights();
  for (std::uint64_t t = 0; t < kHyperParameterSteps; ++t) rig.step(t, lr(t));
  return rig.weights();
}

struct Expected {
  Snapshot before, after;
};

/// Largest difference from the reference, in units of the tensor's largest change.
Finding compare(const Expected& expected, const Snapshot& got, const std::string& note) {
  double worst = 0;
  std::string where = "none";
  for (std::size_t i = 0; i < got.tensors.size(); ++i) {
    const double change = max_abs_difference(expected.before.of(i), expected.after.of(i));
    const double off = max_abs_difference(expected.after.of(i), got.of(i));
    const double relative = off == 0 ? 0 : change == 0 ? INFINITY : off / change;
    if (relative > worst) worst = relative, where = got.tensors[i].name;
  }
  return {worst < kHyperParameterBound, worst, kHyperParameterBound,
          fmt::format("after {} AdamW steps with lr {:g}, betas 0.7 and 0.8, eps 1e-3, weight decay 0.3 the "
                      "weights differ from "
                      "the cpu trainer's by at most {:.2g} of a tensor's change (worst: {}){}",
                      kHyperParameterSteps, kHyperParameterLr, worst, where, note)};
}

struct Variant {
  const char* name;
  std::function<void(RunSpec&)> change;
  double lr = kHyperParameterLr;
  bool decay = false;  // matrices alone may change
};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = {
      {"lr", [](RunSpec&) {}, 2e-2},
      {"betas[0]", [](RunSpec& r) { r.beta1 = 0.6; }},
      {"betas[1]", [](RunSpec& r) { r.beta2 = 0.6; }},
      {"eps", [](RunSpec& r) { r.eps = 3e-3; }},
      {"weight_decay", [](RunSpec& r) { r.weight_decay = 0.1; }, kHyperParameterLr, true},
  };
  return all;
}

/// What is wrong with the effect of one number; "" when every tensor reacts as it should.
std::string wrong_effect(const Variant& v, const Snapshot& base, const Snapshot& changed) {
  std::vector<std::string> deaf, hurt;
  for (std::size_t i = 0; i < base.tensors.size(); ++i) {
    const bool same = different_bits(base.of(i), changed.of(i)) == 0;
    const bool should = !v.decay || base.tensors[i].rank >= 2;
    if (same && should) deaf.push_back(base.tensors[i].name);
    if (!same && !should) hurt.push_back(base.tensors[i].name);
  }
  if (!deaf.empty()) return fmt::format("optimizer.{} does not reach {}", v.name, shortened(deaf));
  if (!hurt.empty())
    return fmt::format("optimizer.{} changes {}, which have one dimension", v.name, shortened(hurt));
  return "";
}

std::string judge_effects(Context& context, const std::string& mode) {
  const runfile::RunConfig c = unusual(context.run);
  auto last_step = [](double lr) {
    return [lr](std::uint64_t t) { return t + 1 == kHyperParameterSteps ? lr : 0.0; };
  };
  const Rig::Options o{.mode = mode};
  const Snapshot base = trained(context, c, o, last_step(kHyperParameterLr));
  std::string wrong;
  for (const Variant& v : variants()) {
    runfile::RunConfig changed = c;
    v.change(changed.run);
    const std::string w = wrong_effect(v, base, trained(context, changed, o, last_step(v.lr)));
    if (!w.empty()) wrong += (wrong.empty() ? "" : "; ") + w;
  }
  return wrong;
}

}  // namespace

Result check_hyper_parameters(Context& context) {
  const runfile::RunConfig c = unusual(context.run);
  auto constant = [](std::uint64_t) { return kHyperParameterLr; };
  Expected expected;
  return over_modes(context, [&](const std::string& mode) {
    if (expected.after.tensors.empty())
      expected.after = trained(context, c, {.mode = mode, .reference = true}, constant, &expected.before);
    Finding f = compare(expected, trained(context, c, {.mode = mode}, constant), fp32_note(context.run));
    if (const std::string wrong = judge_effects(context, mode); !wrong.empty())
      return Finding{false, std::max(f.measured, kHyperParameterBound), kHyperParameterBound, wrong};
    f.detail += "; each of the five numbers reaches every tensor that it should";
    return f;
  });
}

}  // namespace trainhost::verify
