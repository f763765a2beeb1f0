// Level 6 for numbers in reports of estimators and trainers: closed forms that hold for every decoder, and a
// comparison with the exact reference estimator. Bounds are wide where the interface leaves a choice
// (padding, copies), so that a failure is always an error of the plugin.
#include "core/base/text.hpp"
#include "core/model/tensors.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

std::uint64_t component_bytes(const ReceivedReport& r, std::uint32_t component) {
  std::uint64_t sum = 0;
  for (const th_mem& m : entries_of(r))
    if (m.component == component) sum += m.bytes;
  return sum;
}

/// True if the report claims that its weights are exact or an upper bound.
/// One approximate entry of weights is enough to give up the strict bounds.
bool weights_are_counted(const ReceivedReport& r) {
  for (const ReceivedNode& n : r.nodes)
    if (n.mem.component == TH_MEM_WEIGHTS && n.mem.claim == TH_APPROXIMATION) return false;
  return r.summary.claim != TH_APPROXIMATION;
}

void check_weight_bytes(WatchedPlugin& plugin) {
  Started started(plugin);
  Sample s = plugin.sample();
  if (!trainable_family(s.model.family))
    throw CheckSkipped("the tensors of its family are not known to this program");
  // Two numbers of layers: an estimator that ignores the number passes with one of them.
  for (std::uint32_t layers : {2u, 5u}) {
    s.model.layers = layers;
    write_config(s.model);
    const ReportResult a = plugin.report(s);
    expect(a.ok(), "a {} model of {} layers returned {}", s.model.family, layers, a.text());
    // 4 bytes each: the sample is a run in f32.
    const std::uint64_t given = component_bytes(a.report, TH_MEM_WEIGHTS),
                        least = count_parameters(s.model).total * 4;
    if (!weights_are_counted(a.report)) {  // an approximation may count 4 bits per weight, not less
      expect(given >= least / 8, "it reports {} bytes of weights; {} parameters need {} at 4 bits each",
             given, least / 4, least / 8);
      continue;
    }
    expect(given >= least, "it reports {} bytes of weights; the config's {} parameters in f32 need {}", given,
           least / 4, least);
    // Twice the minimum leaves room for padding, a second table and copies.
    expect(given <= 2 * least, "it reports {} bytes of weights; the config's {} parameters in f32 need {}",
           given, least / 4, least);
  }
}

/// Bytes of all entries of a changed run. Throws CheckSkipped if the plugin does not support the run: an
/// unsupported setting is no wrong number.
double total_of_run(WatchedPlugin& plugin, const char* what, void (*change)(RunSpec&)) {
  Sample s = plugin.sample();
  change(s.run);
  const ReportResult a = plugin.report(s);
  if (!a.ok()) throw CheckSkipped(fmt::format("it does not support {}: {}", what, a.text()));
  return sum_of_entries(a.report);
}

void check_adamw_bytes(WatchedPlugin& plugin) {
  Started started(plugin);
  const double adam = total_of_run(plugin, "adamw", [](RunSpec& r) { r.optimizer = Optimizer::kAdamW; });
  const double sgd = total_of_run(plugin, "sgd", [](RunSpec& r) { r.optimizer = Optimizer::kSgd; });
  expect(adam >= sgd, "it reports {} bytes for adamw and {} for sgd; adamw cannot need less", adam, sgd);
}

void check_bf16_bytes(WatchedPlugin& plugin) {
  Started started(plugin);
  const double wide = total_of_run(plugin, "f32 weights", [](RunSpec&) {});
  // Every type that takes part in a step.
  const double narrow =
      total_of_run(plugin, "bf16 weights", [](RunSpec& r) { r.weight = r.grad = r.compute = DType::kBF16; });
  expect(
      narrow <= wide,
      "it reports {} bytes for weights, gradients and compute in bf16 and {} in f32; bf16 cannot need more",
      narrow, wide);
}

/// Bytes at the peak over all tiers: of the summary, or the sum of the entries if the summary has none.
double peak(const ReceivedReport& r) {
  double sum = 0;
  for (std::uint32_t tier = TH_TIER_DEVICE; tier <= TH_TIER_HOST; ++tier)
    sum += static_cast<double>(r.summary.tier_peak[tier]);
  return sum > 0 ? sum : sum_of_entries(r);
}

bool claims_exact(const ReceivedReport& r) {
  if (r.summary.claim != 0) return r.summary.claim == TH_EXACT;
  for (const ReceivedNode& n : r.nodes)
    if (n.mem.claim != TH_EXACT) return false;
  return true;
}

void check_against_exact_estimator(WatchedPlugin& plugin) {
  const auto& file = plugin.environment().reference_estimator;
  if (file.empty()) throw CheckSkipped("the exact estimator 'llama' is not among this program's plugins");
  // By identity of the file, not by name: links and copies of the path count as the same.
  if (std::filesystem::equivalent(file, plugin.file())) throw CheckSkipped("it is the reference itself");
  Started started(plugin);
  WatchedPlugin reference(file, plugin.seed());
  Started reference_started(reference);
  const Sample s = plugin.sample();
  if (reference.match(s) == 0)
    throw CheckSkipped("the exact estimator 'llama' does not know the family " + s.model.family);
  if (plugin.match(s) == 0) throw CheckSkipped("it does not match a small model of its own family");
  // Both get the same profile, so differences come from the estimators alone.
  th_profile p{};
  p.struct_size = sizeof p;
  p.alignment = 64, p.attention_tile_q = p.attention_tile_k = 64, p.threads = 1, p.slots = 16,
  p.tier = TH_TIER_HOST;
  std::snprintf(p.trainer, sizeof p.trainer, "cpu");
  CallVariation t;
  t.profile = &p;
  const ReportResult own = plugin.report(s, t), theirs = reference.report(s, t);
  expect(own.ok(), "estimate() for a profile of the trainer 'cpu' returned {}", own.text());
  if (!theirs.ok()) throw CheckSkipped("the exact estimator 'llama' returned " + theirs.text());
  const double here = peak(own.report), there = peak(theirs.report);
  // An exact claim allows no tolerance; without it the difference is only a measurement.
  expect(!claims_exact(own.report) || here == there,
         "it claims to be exact and reports {} bytes; the exact estimator 'llama' reports {}", here, there);
  plugin.note_measurement(fmt::format("{:.0f} bytes, the exact estimator 'llama' {:.0f}: {:+.1f} %", here,
                                      there, 100 * (here / there - 1)));
}

}  // namespace

std::vector<Check> estimator_number_checks() {
  return {
      {"C-100",
       6,
       "Weights have the size that the config defines",
       "The size of the weights is known: parameters times bytes per element. Less means that tensors are "
       "missing (a head, a bias, a layer); more than twice means another model. If the weights are "
       "claimed as an approximation, at least 4 bits per parameter are required. Fix: compare your list "
       "of tensors with that of `trainhost plan --json` for the same model.",
       {"C-070", "C-073"},
       check_weight_bytes},
      {"C-101",
       6,
       "AdamW needs at least as much memory as SGD",
       "Searches compare optimizers by the reported memory. AdamW stores two moments in addition to the "
       "weights, and SGD none. Fix: add two moments per parameter for AdamW, in the type of the run.",
       {"C-070"},
       check_adamw_bytes},
      {"C-102",
       6,
       "bf16 needs at most as much memory as f32",
       "A narrower data type is the first setting that users try when a run does not fit. Fix: multiply "
       "elements by the bytes of the type that the run names, not by 4.",
       {"C-070"},
       check_bf16_bytes},
      {"E-023",
       6,
       "An estimate that claims to be exact equals the reference estimate",
       "The estimator `llama` counts every buffer and is verified against training. Another estimator "
       "that claims to be exact for the same run must report the same bytes; for one that does not claim "
       "this, the difference is reported as a measurement. Skipped if `llama` is not installed or does "
       "not know the family. Fix: compare the entries with `trainhost plan --estimator=llama`, or claim "
       "an approximation.",
       {"E-010", "E-017"},
       check_against_exact_estimator},
  };
}

}  // namespace trainhost::plugin_validator
