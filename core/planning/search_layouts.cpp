// See search_layouts.hpp. Translates a run and the command line into a question for core/parallel, which
// enumerates layouts and computes memory and time in closed form; simulates the step programs of the fastest
// and orders them anew; translates the outcome back into settings.
// Nothing here loads a plugin.
#include "core/planning/search_layouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <numeric>
#include <thread>
#include <tuple>

#include "core/base/checked.hpp"
#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/base/types.hpp"
#include "core/model/presets.hpp"
#include "core/model/run_rules.hpp"
#include "core/parallel/rank_memory.hpp"
#include "core/planning/describe_plan.hpp"
#include "core/planning/error_context.hpp"
#include "core/planning/explain_layouts.hpp"
#include "core/planning/framework_layouts.hpp"
#include "core/planning/simulate_layout.hpp"
#include "core/plugin/registry.hpp"
#include "core/runfile/suggest.hpp"

namespace trainhost::planning {
namespace {

using parallel::FoundLayout;

// Layouts of the closed form that are simulated: more than are listed, so that one which the closed form
// underestimates is found too; and not all of a list of thousands, since each takes about a millisecond.
constexpr std::size_t kLeastSimulated = 48, kMostSimulated = 500;

/// Without a device there are no rates and therefore no order of layouts.
const DevicePreset& device_of(const runfile::RunConfig& c) {
  if (c.device.empty())
    throw usage_error("search needs a device, whose speed ranks the layouts",
                      "add --device=NAME; `trainhost devices` lists them");
  if (const DevicePreset* d = find_device_preset(c.device)) return *d;
  throw usage_error(
      fmt::format("unknown device '{}'", escaped(c.device, 80)) + runfile::suggest_device(c.device),
      "see trainhost devices");
}

/// The axes of the search. A fixed key has only the value of the run.
parallel::SearchAxes axes_of(const RunSpec& r, const std::set<std::string>& fixed) {
  parallel::SearchAxes a;
  const auto only = [&](const char* key, auto& values, auto value) {
    if (fixed.count(key)) values = {value};
  };
  only("parallel.tensor", a.tensor, r.parallel.tensor);
  only("parallel.pipeline", a.pipeline, r.parallel.pipeline);
  only("parallel.data", a.data, r.parallel.data);
  only("parallel.context", a.context, r.parallel.context);
  only("parallel.expert", a.expert, r.parallel.expert);
  only("parallel.interleave", a.interleave, r.parallel.virtual_stages);
  only("parallel.sequence", a.sequence, r.parallel.sequence);
  only("parallel.zero", a.zero, r.parallel.zero);
  only("train.micro_batch", a.micro_batch, r.micro_batch);
  // A recomputation policy "auto" in the run file means that the search is free to choose, even if the key is
  // set.
  if (r.recompute != Recompute::kAuto)
    for (const char* key : {"train.recompute", "train.recompute_every"})
      only(key, a.recompute, parallel::RecomputeChoice{r.recompute, r.memory.recompute_every});
  only("plan.offload_weights", a.weights_in, r.memory.weights_in);
  only("plan.offload_optimizer", a.optimizer_in, r.memory.optimizer_in);
  only("plan.offload_activations", a.activations_in, r.memory.activations_in);
  a.attention = {r.memory.attention};
  a.cross_entropy = {r.memory.cross_entropy};
  return a;
}

/// Restricts the axes that are not fixed to what the replay of a framework describes
/// (plugins/estimators/pytorch): a layout that its plan refuses is no answer. Kinds of parallelism that the
/// run has stay open. Returns a note; "" where nothing was left out.
std::string restrict_to_framework(parallel::SearchAxes& a, const runfile::RunConfig& c,
                                  const std::set<std::string>& fixed, std::uint32_t devices) {
  const std::string& name = c.framework;
  if (name.empty()) return "";
  if (!fixed.count("parallel.zero"))
    a.zero = devices == 1 ? std::vector<std::uint32_t>{0} : zero_stages(name);
  if (divides_layers(name)) return "";
  const Parallelism& p = c.run.parallel;
  std::string left_out;
  const auto alone = [&](const char* key, std::vector<std::uint32_t>& values, std::uint32_t given) {
    if (fixed.count(key) || given > 1) return;
    values = {1};
    left_out += (left_out.empty() ? "" : ", ") + std::string(key);
  };
  alone("parallel.tensor", a.tensor, p.tensor);
  alone("parallel.pipeline", a.pipeline, p.pipeline);
  alone("parallel.context", a.context, p.context);
  alone("parallel.expert", a.expert, p.expert);
  // Checkpoints of transformers, torchtune and litgpt are those of whole layers, one by one.
  if (c.run.recompute == Recompute::kAuto ||
      (!fixed.count("train.recompute") && !fixed.count("train.recompute_every")))
    a.recompute = {{Recompute::kNone, 1}, {Recompute::kFull, 1}};
  if (left_out.empty()) return "";
  return fmt::format(
      "plans of {} replay data parallelism: layouts with another value than 1 of {} are left out; "
      "--set KEY=VALUE searches one",
      escaped(name, 80), left_out);
}

/// Restricts the axes that are not fixed to layouts without offload. False where they are all fixed.
bool exclude_offload(parallel::SearchAxes& a, const std::set<std::string>& fixed) {
  bool excludes = false;
  const auto on_device = [&](const char* key, std::vector<Tier>& tiers) {
    if (!fixed.count(key)) tiers = {Tier::kDevice}, excludes = true;
  };
  on_device("plan.offload_weights", a.weights_in);
  on_device("plan.offload_optimizer", a.optimizer_in);
  on_device("plan.offload_activations", a.activations_in);
  return excludes;
}

/// Thread i searches every `threads`-th shape. Layouts are compared by time, bytes and index, so the layouts
/// found do not depend on the number of threads; how many are pruned does. Each thread writes only its own
/// elements of `outcomes` and `failed`, and all are joined before either is read.
parallel::SearchOutcome search_on_threads(const parallel::SearchRequest& q, std::size_t threads) {
  assert(threads > 0);
  std::vector<parallel::SearchOutcome> outcomes(threads);
  std::vector<std::exception_ptr> failed(threads);
  const auto search_part = [&](std::size_t i) {
    try {
      outcomes[i] = parallel::search(q, i, threads);
    } catch (...) {
      failed[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;  // joined on every exit, also when a thread cannot be started
    try {
      for (std::size_t i = 1; i < threads; ++i) others.emplace_back(search_part, i);
    } catch (const std::system_error& e) {
      throw run_error(fmt::format("cannot start {} threads: {}", threads, e.code().message()),
                      "try --threads=1");
    }
    search_part(0);
  }
  for (const std::exception_ptr& e : failed)
    if (e) std::rethrow_exception(e);
  return parallel::merge(std::move(outcomes), q);
}

std::string describe_offload(const parallel::StateSettings& k) {
  std::string out;
  for (const auto& [what, tier] :
       {std::pair{"weights", k.weights}, {"optimizer", k.optimizer}, {"activations", k.activations}})
    if (tier != Tier::kDevice)
      out += fmt::format("{}{} to {}", out.empty() ? "" : ", ", what, offload_name(tier));
  return out;
}

/// The time is computed again for the layouts that are reported: the search keeps only totals.
RankedLayout ranked_layout(const FoundLayout& f, const parallel::SearchRequest& q,
                           const parallel::TimeModel& model) {
  RankedLayout r;
  r.data = f.pipeline.data, r.tensor = f.micro.tensor, r.pipeline = f.pipeline.pipeline,
  r.interleave = f.pipeline.interleave;
  r.context = f.micro.context, r.expert = f.micro.expert, r.zero = f.state.zero,
  r.sequence = f.micro.sequence;
  r.micro_batch = f.micro.micro_batch, r.accumulate = f.pipeline.accumulate;
  r.recompute = name(f.micro.recompute.kind), r.recompute_every = f.micro.recompute.every;
  r.offload = describe_offload(f.state);
  r.device_bytes = f.device_bytes, r.host_bytes = f.host_bytes;
  const parallel::Times t = model.step(f.run(q.space.base));
  r.step_seconds = t.step, r.tokens_per_second = t.tokens_per_second,
  r.utilization = t.model_flops_utilization;
  // Keys of the JSON output and columns of the CSV, in this order for every layout; they add up to t.step.
  r.seconds = {{"compute", t.compute},     {"memory", t.memory},   {"recompute", t.recompute},
               {"tensor", t.tensor},       {"context", t.context}, {"expert", t.expert},
               {"pipeline", t.pipeline},   {"data", t.data},       {"bubble", t.bubble},
               {"optimizer", t.optimizer}, {"offload", t.offload}};
  r.closed_form_seconds = t.step;
  for (const std::string& s : layout_settings(f)) r.settings.push_back("--set " + s);
  return r;
}

/// Replaces the times of the closed form by those of the simulated step program, if there is one.
void simulate(RankedLayout& r, const ModelSpec& model, const RunSpec& run, const parallel::Machine& m) {
  const std::optional<step::SimulatedStep> s = simulate_layout(model, run, m);
  if (!s) return;
  r.simulated = true;
  for (double* rate : {&r.tokens_per_second, &r.utilization}) *rate *= r.step_seconds / s->seconds;
  r.step_seconds = s->seconds;
  for (auto& [cause, seconds] : r.seconds)
    seconds = cause == "compute"     ? s->arithmetic_s
              : cause == "memory"    ? s->traffic_s
              : cause == "recompute" ? s->recompute_s
              : cause == "tensor"    ? s->tensor_s
              : cause == "data"      ? s->data_s
              : cause == "optimizer" ? s->update_s
                                     : 0;
}

/// Largest factor between time and memory of layouts of which the one with fewer context ranks is listed.
constexpr double kNearlyEqual = 1.02;

/// True if b divides sequences among more context ranks than a, and each rank has the same tokens and
/// settings: without other time or memory it is the same layout, with more communication.
bool is_repeated_with_context(const RankedLayout& a, const RankedLayout& b) {
  const auto shape = [](const RankedLayout& r) {
    return std::tie(r.tensor, r.pipeline, r.interleave, r.expert, r.zero, r.sequence, r.accumulate,
                    r.recompute, r.recompute_every, r.offload);
  };
  const auto product = [](std::uint64_t x, std::uint64_t y) { return x * y; };
  return a.context < b.context && shape(a) == shape(b) &&
         product(a.data, a.context) == product(b.data, b.context) &&
         product(a.micro_batch, b.context) == product(b.micro_batch, a.context) &&
         a.step_seconds <= kNearlyEqual * b.step_seconds &&
         static_cast<double>(a.device_bytes) <= kNearlyEqual * static_cast<double>(b.device_bytes);
}

void erase_repeated(std::vector<RankedLayout>& all) {
  std::vector<RankedLayout> kept;
  for (const RankedLayout& r : all)
    if (std::ranges::none_of(all, [&](const RankedLayout& a) { return is_repeated_with_context(a, r); }))
      kept.push_back(r);
  all = std::move(kept);
}

/// The fastest layouts and the Pareto front of both lists of the outcome. Layouts have the time of their step
/// program where they have one and `simulates`, else that of the closed form.
void rank(const parallel::SearchOutcome& outcome, const parallel::SearchRequest& q,
          const parallel::TimeModel& times, const ModelSpec& model, bool simulates, std::size_t top,
          SearchResult& v) {
  std::vector<RankedLayout> all;
  std::set<std::uint64_t> listed;
  for (const auto* found : {&outcome.best, &outcome.pareto})
    for (const FoundLayout& f : *found) {
      if (!listed.insert(f.index).second) continue;
      all.push_back(ranked_layout(f, q, times));
      if (simulates && all.size() <= kMostSimulated)
        simulate(all.back(), model, f.run(q.space.base), q.machine);
      v.simulated += all.back().simulated;
    }
  const auto before = [](const RankedLayout& a, const RankedLayout& b) {
    return std::tie(a.step_seconds, a.device_bytes) < std::tie(b.step_seconds, b.device_bytes);
  };
  std::stable_sort(all.begin(), all.end(), before);
  erase_repeated(all);
  v.best.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(top, all.size())));
  // From the fastest on, each with less memory than all faster ones.
  for (const RankedLayout& r : all)
    if (v.pareto.empty() || r.device_bytes < v.pareto.back().device_bytes) v.pareto.push_back(r);
  std::reverse(v.pareto.begin(), v.pareto.end());
}

/// What the times of the listed layouts are from.
std::string describe_times(const runfile::RunConfig& c, const SearchResult& v) {
  if (!c.framework.empty())
    return fmt::format(
        "memory and step times are those of the closed form of core/parallel; "
        "`trainhost plan --for {}` replays the memory of one layout",
        escaped(c.framework, 80));
  if (v.simulated == 0)
    return "step times are those of the closed form of core/parallel: trainhost has no step program for "
           "these layouts";
  return fmt::format(
      "step times marked with * are those of the simulated step program of trainhost ({}); the "
      "others, of layouts without one, are those of the closed form",
      plural(v.simulated, "layout"));
}

std::vector<std::string> assumptions(const parallel::Machine& m) {
  return {
      fmt::format("matrix products reach {:.0f} % of {:.4g} TFLOP/s, attention {:.0f} % of {:.4g}; memory "
                  "bandwidth {:.4g} GB/s",
                  100 * m.matrix_efficiency, m.flops / 1e12, 100 * m.attention_efficiency,
                  m.wide_flops / 1e12, m.memory_bytes_s / 1e9),
      fmt::format("{} devices per node, {:.4g} GB/s and {:.2g} us per step of a ring between two of them; "
                  "network {:.4g} GB/s per device and {:.2g} us; host memory {:.4g} GB/s",
                  m.node, m.link_bytes_s / 1e9, m.link_latency_s * 1e6, m.network_bytes_s / 1e9,
                  m.network_latency_s * 1e6, m.host_bytes_s / 1e9),
      "rank order: tensor (innermost), context, data, pipeline; core/parallel/README.md lists the terms of "
      "the step time"};
}

/// plan.fp8_recipe; "" where the run has none.
std::string fp8_recipe(const runfile::RunConfig& c) {
  const auto options = c.plugin_options.find(plugin::kFrameworkOptions);
  if (options == c.plugin_options.end()) return "";
  const auto recipe = options->second.find("fp8_recipe");
  return recipe == options->second.end() ? "" : recipe->second;
}

/// Sets the sequence length of a run that names a model but no data.seq_len: the maximum of the model, at
/// most kUsual tokens, because the default of 128 is meant for the built-in model. Returns a note; "" where
/// nothing was set.
std::string choose_seq_len(runfile::RunConfig& c) {
  constexpr std::uint32_t kUsual = 2048;
  if (c.given.count("data.seq_len") || c.model_is_builtin) return "";
  const std::uint64_t most = c.model.max_positions;
  if (most) c.run.seq_len = static_cast<std::uint32_t>(std::min<std::uint64_t>(most, kUsual));
  const std::string maximum = most == 0 ? "config.json has no maximum"
                                        : fmt::format("the maximum of the model is {}", format_count(most));
  return fmt::format("data.seq_len is not set: using {} tokens ({}); change it with --set data.seq_len=N",
                     format_count(c.run.seq_len), maximum);
}

/// The sequences per step are given and the micro-batch is searched, so gradient accumulation follows from
/// them.
[[noreturn]] void reject_accumulation(const runfile::RunConfig& c) {
  throw usage_error(
      fmt::format("train.grad_accum = {} cannot be fixed: search computes it from the global batch, the "
                  "micro-batch and the data ranks",
                  c.run.accumulate),
      fmt::format("set the sequences per step with --global-batch=N; this run has {}",
                  format_count(checked_mul(c.run.micro_batch, c.run.accumulate, c.run.parallel.data))),
      {"--set train.grad_accum"});
}

/// The search space is empty: throws usage_error where a fixed key has a value that no layout can have.
/// Each row: the key divides the number, or no layout exists. The search itself would only return nothing.
void reject_impossible_keys(const model::Architecture& a, const RunSpec& r,
                            const std::set<std::string>& fixed, std::uint64_t devices,
                            std::uint64_t sequences) {
  const struct {
    const char* key;
    std::uint64_t value, whole;
    const char* of;
  } rows[] = {{"parallel.tensor", r.parallel.tensor, devices, "devices"},
              {"parallel.pipeline", r.parallel.pipeline, devices, "devices"},
              {"parallel.context", r.parallel.context, devices, "devices"},
              {"parallel.data", r.parallel.data, devices, "devices"},
              {"parallel.data", r.parallel.data, sequences, "sequences per step (--global-batch)"},
              {"train.micro_batch", r.micro_batch, sequences, "sequences per step (--global-batch)"}};
  for (const auto& row : rows)
    if (fixed.count(row.key) && row.whole % row.value)
      throw usage_error(fmt::format("{} = {} does not divide {} {}; {}", row.key, row.value,
                                    format_count(row.whole), row.of, nearest_divisors(row.value, row.whole)));
  if (fixed.count("parallel.expert") && experts_of(a) % r.parallel.expert == 0 && devices % r.parallel.expert)
    throw usage_error(fmt::format("parallel.expert = {} does not divide {} devices; {}", r.parallel.expert,
                                  format_count(devices),
                                  nearest_divisors(r.parallel.expert, std::gcd(devices, experts_of(a)))));
  const std::uint64_t layers = a.layer_count(), chunks = r.parallel.virtual_stages;
  if (fixed.count("parallel.interleave") && layers % chunks)
    throw usage_error(fmt::format(
        "parallel.interleave = {} does not divide {} layers for any number of pipeline stages; {}", chunks,
        layers, nearest_divisors(chunks, layers)));
  // Keys that validate() checks against the model: heads, layers, experts. Data ranks follow the experts,
  // because experts are divided among data ranks.
  RunSpec alone;  // only the fixed keys, compared with the model
  alone.seq_len = r.seq_len;
  if (fixed.count("parallel.tensor")) alone.parallel.tensor = r.parallel.tensor;
  if (fixed.count("parallel.pipeline")) alone.parallel.pipeline = r.parallel.pipeline;
  if (fixed.count("parallel.context")) alone.parallel.context = r.parallel.context;
  if (fixed.count("parallel.expert")) {
    alone.parallel.expert = alone.parallel.data = r.parallel.expert;
    // For the nearest values that the devices allow too.
    const std::uint64_t experts = experts_of(a);
    if (experts % r.parallel.expert) alone.parallel.data = static_cast<std::uint32_t>(devices);
  }
  parallel::validate(a, alone);
}

std::string describe_bytes(std::uint64_t bytes, std::uint64_t budget, const char* of) {
  if (bytes <= budget) return fmt::format("{} of {}", format_bytes(bytes), of);
  return fmt::format("{} of {}, {} over the budget", format_bytes(bytes), of, format_bytes(bytes - budget));
}

/// The layout that exceeds the budgets least.
std::string describe_closest(const FoundLayout& f, const parallel::SearchRequest& q) {
  std::string out = fmt::format(
      "the closest layout is tensor {}, pipeline {}, data {}, context {}, expert {}, zero {}, micro-batch "
      "{}, recompute "
      "{}{}: {}",
      f.micro.tensor, f.pipeline.pipeline, f.pipeline.data, f.micro.context, f.micro.expert, f.state.zero,
      f.micro.micro_batch, name(f.micro.recompute.kind),
      describe_offload(f.state).empty() ? "" : ", " + describe_offload(f.state),
      describe_bytes(f.device_bytes, q.device_budget, "device memory"));
  if (f.host_bytes > 0 && q.host_budget != UINT64_MAX)
    out += "; " + describe_bytes(f.host_bytes, q.host_budget, "host memory");
  return out + "; use more devices, a larger device or a shorter sequence";
}

}  // namespace

/// Every setting of a layout, also those at their default: the run file may set them to other values.
std::vector<std::string> layout_settings(const FoundLayout& f) {
  const auto set = [](const char* key, const auto& value) { return fmt::format("{}={}", key, value); };
  return {set("parallel.data", f.pipeline.data),
          set("parallel.tensor", f.micro.tensor),
          set("parallel.sequence", f.micro.sequence),
          set("parallel.pipeline", f.pipeline.pipeline),
          set("parallel.interleave", f.pipeline.interleave),
          set("parallel.context", f.micro.context),
          set("parallel.expert", f.micro.expert),
          set("parallel.zero", f.state.zero),
          set("train.micro_batch", f.micro.micro_batch),
          set("train.grad_accum", f.pipeline.accumulate),
          set("train.recompute", name(f.micro.recompute.kind)),
          set("train.recompute_every", f.micro.recompute.every),
          set("plan.offload_weights", offload_name(f.state.weights)),
          set("plan.offload_optimizer", offload_name(f.state.optimizer)),
          set("plan.offload_activations", offload_name(f.state.activations))};
}

/// Stages: resolve what the command line left open (sequence length, devices, sequences per step), ask,
/// translate. Errors of the model or run are thrown before the search starts.
static SearchResult search_checked(const runfile::RunConfig& asked, const SearchRequest& request) {
  runfile::RunConfig c = asked;
  const DevicePreset& device = device_of(c);
  const std::string sequence = choose_seq_len(c);
  const model::Architecture architecture = model::from_model(c.model);
  const RunSpec& r = c.run;
  SearchResult v;
  if (request.fixed.count("train.grad_accum")) reject_accumulation(c);
  if (!sequence.empty()) v.notes.push_back(sequence);
  v.devices = request.devices;
  // 0 devices: as many as the run file's own layout has.
  if (v.devices == 0)
    v.devices = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        UINT32_MAX,
        checked_mul(r.parallel.data, r.parallel.tensor, r.parallel.pipeline, r.parallel.context)));
  v.global_batch = request.global_batch;
  // At least one sequence per device, so that data parallelism over all devices is possible.
  if (v.global_batch == 0) {
    const std::uint64_t own = checked_mul(r.micro_batch, r.accumulate, r.parallel.data);
    v.global_batch = std::max<std::uint64_t>(own, v.devices);
    if (v.global_batch != own)
      v.notes.push_back(fmt::format("{} per step, one per device; change it with --global-batch",
                                    plural(v.global_batch, "sequence")));
  }

  // The pointers in `q` refer to locals of this function; the threads end before it returns.
  parallel::SearchRequest q;
  q.architecture = &architecture;
  q.space = {r, v.devices, v.global_batch, axes_of(r, request.fixed)};
  const std::string left_out = restrict_to_framework(q.space.axes, c, request.fixed, v.devices);
  const std::string recipe = fp8_recipe(c);
  RunSpec products = r;
  if (!recipe.empty()) products.compute = DType::kF8;
  q.machine = parallel::machine_of(device, products);
  // memory.budget is a limit for the plan alone and replaces the memory of the device; without a host budget,
  // host memory is unlimited.
  q.device_budget = c.budget.value_or(device.memory_bytes);
  q.host_budget = c.host_budget.value_or(UINT64_MAX);
  q.top = std::max(request.top, kLeastSimulated);
  q.prune = !request.every;

  // steady_clock: the time of day may be set during the search.
  const auto begin = std::chrono::steady_clock::now();
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t threads = request.threads ? request.threads : cores;
  parallel::SearchOutcome outcome;
  // Without --host-budget it cannot be decided whether offload fits in host memory, so layouts with offload
  // are listed only if no other layout fits.
  parallel::SearchRequest on_devices = q;
  if (!c.host_budget && exclude_offload(on_devices.space.axes, request.fixed))
    outcome = search_on_threads(on_devices, threads);
  const bool leaves_out_offload = !outcome.best.empty();
  if (!leaves_out_offload) outcome = search_on_threads(q, threads);
  v.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  v.model = c.model.name.empty() ? c.model.family : c.model.name;
  v.device = device.name;
  v.run_line = fmt::format("{}{}, {}", c.precision, describe_adapters(c.model, c.run), name(r.optimizer));
  v.budget_bytes = q.device_budget;
  v.host_budget_bytes = c.host_budget;
  v.seq_len = r.seq_len;
  v.layouts = outcome.layouts, v.fitting = outcome.fitting, v.evaluated = outcome.evaluated;
  const parallel::TimeModel model(architecture, r, q.machine);
  rank(outcome, q, model, c.model, c.framework.empty(), request.top, v);
  // The default of 2,048 tokens is not in the run file, so a layout that is copied without it would be
  // another run.
  for (auto* rows : {&v.best, &v.pareto})
    for (RankedLayout& found : *rows)
      if (!sequence.empty())
        found.settings.insert(found.settings.begin(), fmt::format("--set data.seq_len={}", c.run.seq_len));
  v.assumptions = assumptions(q.machine);
  if (outcome.layouts == 0) reject_impossible_keys(architecture, r, request.fixed, v.devices, v.global_batch);
  if (outcome.layouts == 0) v.notes.push_back(why_no_layout(architecture, q.space, request.fixed));
  if (!left_out.empty()) v.notes.push_back(left_out);
  if (outcome.closest) v.notes.push_back(describe_closest(*outcome.closest, q));
  if (!request.every && outcome.evaluated < outcome.layouts)
    v.notes.push_back(
        "skipped layouts can be neither among the fastest nor on the Pareto front; --every evaluates them "
        "too");
  if (leaves_out_offload)
    v.notes.push_back(
        "layouts with parts in host memory, whose size is not known, are left out; "
        "--host-budget=SIZE searches them too");
  for (const std::string& n : architecture.notes) v.notes.push_back(n);
  if (!v.best.empty()) v.notes.push_back(describe_times(c, v));
  if (!recipe.empty())
    v.notes.push_back(
        fmt::format("plan.fp8_recipe = {}: time is that of products in fp8{}; memory is that of products in "
                    "train.precision",
                    recipe, recipe == "nvfp4" ? ", since no device preset has a rate for fp4" : ""));
  return v;
}

SearchResult search_layouts(const runfile::RunConfig& c, const SearchRequest& request) {
  return with_error_context(c, [&] { return search_checked(c, request); });
}

}  // namespace trainhost::planning
