// Level 6 for what estimators and trainers' plans say in numbers: closed forms that hold for every decoder,
// and the exact estimator of reference beside it.
#include <set>

#include "core/base/text.hpp"
#include "core/model/tensors.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/refusals.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

/// Bytes of the leaves of one component.
std::uint64_t bytes_of(const SeenReport& r, std::uint32_t component) {
  std::set<std::uint32_t> parents;
  for (const SeenNode& n : r.nodes) parents.insert(n.mem.parent);
  std::uint64_t sum = 0;
  for (const SeenNode& n : r.nodes)
    if (!parents.count(n.mem.id) && n.mem.component == component) sum += n.mem.bytes;
  return sum;
}

/// Are the leaves of weights claimed to be exact, or never exceeded?
bool counted(const SeenReport& r) {
  for (const SeenNode& n : r.nodes)
    if (n.mem.component == TH_MEM_WEIGHTS && n.mem.claim == TH_APPROXIMATION) return false;
  return r.summary.claim != TH_APPROXIMATION;
}

void weights_are_the_models(Bench& b) {
  Started started(b);
  Sample s = b.sample();
  if (!trainable_family(s.model.family))
    throw NotHere("the tensors of its family are not known to this program");
  for (std::uint32_t layers : {2u, 5u}) {
    s.model.layers = layers;
    write_config(s.model);
    const ReportAnswer a = b.report(s);
    expect(a.ok(), "a {} model of {} layers returned {}", s.model.family, layers, a.text());
    const std::uint64_t given = bytes_of(a.report, TH_MEM_WEIGHTS),
                        least = count_parameters(s.model).total * 4;
    if (!counted(a.report)) {  // a rule of thumb may be off, or count 4 bits a weight; not by more
      expect(given >= least / 8, "it gives {} bytes of weights; {} parameters take {} at 4 bits each", given,
             least / 4, least / 8);
      continue;
    }
    expect(given >= least, "it gives {} bytes of weights; the config's {} parameters of f32 take {}", given,
           least / 4, least);
    expect(given <= 2 * least, "it gives {} bytes of weights; the config's {} parameters of f32 take {}",
           given, least / 4, least);
  }
}

/// All leaves for a changed run; NotHere when the run is not estimated.
double total(Bench& b, const char* what, void (*change)(RunSpec&)) {
  Sample s = b.sample();
  change(s.run);
  const ReportAnswer a = b.report(s);
  if (!a.ok()) throw NotHere(fmt::format("it does not take {}: {}", what, a.text()));
  return sum_of_leaves(a.report);
}

void adam_takes_no_less(Bench& b) {
  Started started(b);
  const double adam = total(b, "adamw", [](RunSpec& r) { r.optimizer = Optimizer::kAdamW; });
  const double sgd = total(b, "sgd", [](RunSpec& r) { r.optimizer = Optimizer::kSgd; });
  expect(adam >= sgd, "adamw takes {} bytes and sgd {}; two moments cannot take less than none", adam, sgd);
}

void narrow_takes_no_more(Bench& b) {
  Started started(b);
  const double wide = total(b, "f32 weights", [](RunSpec&) {});
  const double narrow =
      total(b, "bf16 weights", [](RunSpec& r) { r.weight = r.grad = r.compute = DType::kBF16; });
  expect(narrow <= wide,
         "weights, gradients and products in bf16 take {} bytes and in f32 {}; half the width cannot take "
         "more",
         narrow, wide);
}

/// The bytes at the peak, all tiers: what is given, else the leaves.
double peak(const SeenReport& r) {
  double sum = 0;
  for (std::uint32_t tier = TH_TIER_DEVICE; tier <= TH_TIER_HOST; ++tier)
    sum += static_cast<double>(r.summary.tier_peak[tier]);
  return sum > 0 ? sum : sum_of_leaves(r);
}

bool exact(const SeenReport& r) {
  if (r.summary.claim != 0) return r.summary.claim == TH_EXACT;
  for (const SeenNode& n : r.nodes)
    if (n.mem.claim != TH_EXACT) return false;
  return true;
}

void beside_the_exact_one(Bench& b) {
  const auto& file = b.around().reference_estimator;
  if (file.empty()) throw NotHere("the exact estimator 'llama' is not among this program's plugins");
  if (std::filesystem::equivalent(file, b.file())) throw NotHere("it is the reference itself");
  Started started(b);
  Bench reference(file, b.seed());
  Started reference_started(reference);
  const Sample s = b.sample();
  if (reference.match(s) == 0)
    throw NotHere("the exact estimator 'llama' does not know the family " + s.model.family);
  if (b.match(s) == 0) throw NotHere("it does not match a small model of its own family");
  th_profile p{};
  p.struct_size = sizeof p;
  p.alignment = 64, p.attention_tile_q = p.attention_tile_k = 64, p.threads = 1, p.slots = 16,
  p.tier = TH_TIER_HOST;
  std::snprintf(p.trainer, sizeof p.trainer, "cpu");
  Twist t;
  t.profile = &p;
  const ReportAnswer own = b.estimate(s, t), theirs = reference.estimate(s, t);
  expect(own.ok(), "estimate() for a profile of the trainer 'cpu' returned {}", own.text());
  if (!theirs.ok()) throw NotHere("the exact estimator 'llama' returned " + theirs.text());
  const double here = peak(own.report), there = peak(theirs.report);
  expect(!exact(own.report) || here == there,
         "it claims to be exact and says {} bytes; the exact estimator 'llama' says {}", here, there);
  b.figure(fmt::format("{:.0f} bytes, the exact estimator 'llama' {:.0f}: {:+.1f} %", here, there,
                       100 * (here / there - 1)));
}

}  // namespace

std::vector<Check> estimator_number_checks() {
  return {
      {"C-100",
       6,
       "Weights are as large as the config makes them",
       "The one number that anybody can work out: parameters times bytes. Less is a model that lost tensors "
       "(a head, a bias, "
       "a layer), more than twice is another model. Where weights are claimed as an approximation, 4 bits "
       "each will do.",
       {"C-070", "C-073"},
       weights_are_the_models},
      {"C-101",
       6,
       "AdamW takes no less than SGD",
       "Searches compare optimizers by what a report says: two moments beside the weights cannot be cheaper "
       "than none.",
       {"C-070"},
       adam_takes_no_less},
      {"C-102",
       6,
       "bf16 takes no more than f32",
       "Halving the width is the first thing that a user tries when a run does not fit.",
       {"C-070"},
       narrow_takes_no_more},
      {"E-023",
       6,
       "An exact estimate is the exact one",
       "The estimator `llama` counts buffer by buffer and is verified against training. Another that claims "
       "to be exact for "
       "the same run must say the same; for one that does not, the difference is reported as a figure. "
       "Skipped where "
       "`llama` is not installed or does not know the family.",
       {"E-010", "E-017"},
       beside_the_exact_one},
  };
}

}  // namespace trainhost::plugin_validator
