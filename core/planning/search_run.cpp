// See search_run.hpp.
#include "core/planning/search_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/base/types.hpp"
#include "core/model/presets.hpp"
#include "core/model/run_rules.hpp"
#include "core/parallel/rank_memory.hpp"
#include "core/planning/size_overflow.hpp"

namespace trainhost::planning {
namespace {

using parallel::Found;

const DevicePreset& device_of(const runfile::RunConfig& c) {
  std::vector<std::string> names;
  for (const DevicePreset& d : device_presets()) names.push_back(d.name);
  if (c.device.empty())
    throw usage_error("search needs a device: its speed ranks the layouts",
                      fmt::format("--device=NAME, one of: {}", fmt::join(names, ", ")));
  if (const DevicePreset* d = find_device_preset(c.device)) return *d;
  throw usage_error(
      fmt::format("there is no device '{}'", escaped(c.device, 80)) + did_you_mean(c.device, names),
      "trainhost devices lists them");
}

/// The axes of the search; a key that is fixed takes the run's value alone.
parallel::Axes axes_of(const RunSpec& r, const std::set<std::string>& fixed) {
  parallel::Axes a;
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

parallel::Answer ask(const parallel::Question& q, std::size_t threads) {
  std::vector<parallel::Answer> answers(threads);
  std::vector<std::exception_ptr> failed(threads);
  const auto part = [&](std::size_t i) {
    try {
      answers[i] = parallel::search(q, i, threads);
    } catch (...) {
      failed[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;  // joined also where the system has no more of them
    try {
      for (std::size_t i = 1; i < threads; ++i) others.emplace_back(part, i);
    } catch (const std::system_error& e) {
      throw run_error(fmt::format("cannot start {} threads: {}", threads, e.code().message()),
                      "--threads=1 needs no more than there is");
    }
    part(0);
  }
  for (const std::exception_ptr& e : failed)
    if (e) std::rethrow_exception(e);
  return parallel::merge(std::move(answers), q);
}

std::string offload_words(const parallel::Keep& k) {
  std::string out;
  for (const auto& [what, tier] :
       {std::pair{"weights", k.weights}, {"optimizer", k.optimizer}, {"activations", k.activations}})
    if (tier != Tier::kDevice)
      out += fmt::format("{}{} to {}", out.empty() ? "" : ", ", what, offload_word(tier));
  return out;
}

report::LayoutRow row(const Found& f, const parallel::Question& q, const parallel::TimeModel& model) {
  report::LayoutRow r;
  r.data = f.depth.data, r.tensor = f.shape.tensor, r.pipeline = f.depth.pipeline,
  r.interleave = f.depth.interleave;
  r.context = f.shape.context, r.expert = f.shape.expert, r.zero = f.keep.zero, r.sequence = f.shape.sequence;
  r.micro_batch = f.shape.micro_batch, r.accumulate = f.depth.accumulate;
  r.recompute = name(f.shape.recompute.kind), r.recompute_every = f.shape.recompute.every;
  r.offload = offload_words(f.keep);
  r.device_bytes = f.device_bytes, r.host_bytes = f.host_bytes;
  const parallel::Times t = model.step(f.run(q.job.base));
  r.step_seconds = t.step, r.tokens_per_second = t.tokens_per_second,
  r.utilization = t.model_flops_utilization;
  r.seconds = {{"compute", t.compute},     {"memory", t.memory},   {"recompute", t.recompute},
               {"tensor", t.tensor},       {"context", t.context}, {"expert", t.expert},
               {"pipeline", t.pipeline},   {"data", t.data},       {"bubble", t.bubble},
               {"optimizer", t.optimizer}, {"offload", t.offload}};
  for (const std::string& s : layout_settings(f)) r.settings.push_back("--set " + s);
  return r;
}

std::vector<std::string> assumptions(const parallel::Machine& m) {
  return {fmt::format("large products reach {:.0f} % of {:.4g} TFLOP/s; memory {:.5g} GB/s",
                      100 * m.matrix_efficiency, m.flops / 1e12, m.memory_bytes_s / 1e9),
          fmt::format("{} devices a node with {:.4g} GB/s between two; {:.4g} GB/s of network a device; "
                      "{:.4g} GB/s to host memory",
                      m.node, m.link_bytes_s / 1e9, m.network_bytes_s / 1e9, m.host_bytes_s / 1e9),
          "tensor ranks are neighbours, then context, data, pipeline; core/parallel/README.md states every "
          "term of the step"};
}

/// A run of a real model that names no sequence is searched at a length that the model is trained at: what it
/// is meant for, at most kUsual tokens. The built-in run's own 128 would be nobody's question. Returns the
/// sentence that says so; "" where it was said.
std::string open_sequence(runfile::RunConfig& c) {
  constexpr std::uint32_t kUsual = 4096;
  if (c.given.count("data.seq_len") || c.model_is_builtin) return "";
  const std::uint64_t most = c.model.max_positions;
  if (most) c.run.seq_len = static_cast<std::uint32_t>(std::min<std::uint64_t>(most, kUsual));
  const std::string meant =
      most == 0 ? "its config names no length" : fmt::format("the model is meant for {}", format_count(most));
  return fmt::format(
      "sequences of {} tokens, as data.seq_len is not given ({}); --set data.seq_len=N says another length",
      format_count(c.run.seq_len), meant);
}

/// An update's sequences are given; how many go through at a time is what is searched, and the rest follows.
[[noreturn]] void refuse_accumulation(const runfile::RunConfig& c) {
  throw usage_error(
      fmt::format("train.grad_accum = {} cannot stay: search finds it from the sequences of an update, the "
                  "micro-batch and the data ranks",
                  c.run.accumulate),
      fmt::format("--global-batch=N says the sequences of an update; {} are what this run has",
                  format_count(checked_mul(c.run.micro_batch, c.run.accumulate, c.run.parallel.data))),
      {"--set train.grad_accum"});
}

/// No layout is left: a key that was fixed at a value which no layout has is a mistake, not a model that does
/// not fit.
void refuse_fixed(const model::Architecture& a, const RunSpec& r, const std::set<std::string>& fixed,
                  std::uint64_t devices, std::uint64_t sequences) {
  const struct {
    const char* key;
    std::uint64_t value, whole;
    const char* of;
  } rows[] = {{"parallel.tensor", r.parallel.tensor, devices, "devices"},
              {"parallel.pipeline", r.parallel.pipeline, devices, "devices"},
              {"parallel.context", r.parallel.context, devices, "devices"},
              {"parallel.data", r.parallel.data, devices, "devices"},
              {"parallel.data", r.parallel.data, sequences, "sequences of an update (--global-batch)"},
              {"train.micro_batch", r.micro_batch, sequences, "sequences of an update (--global-batch)"}};
  for (const auto& row : rows)
    if (fixed.count(row.key) && row.whole % row.value)
      throw usage_error(fmt::format("{} = {} does not divide {} {}; {}", row.key, row.value,
                                    format_count(row.whole), row.of, nearest_divisors(row.value, row.whole)));
  const std::uint64_t layers = a.layer_count(), chunks = r.parallel.virtual_stages;
  if (fixed.count("parallel.interleave") && layers % chunks)
    throw usage_error(
        fmt::format("parallel.interleave = {} does not divide {} layers, whatever the pipeline; {}", chunks,
                    layers, nearest_divisors(chunks, layers)));
  RunSpec alone;  // what the model says to each, with nothing beside it
  alone.seq_len = r.seq_len;
  if (fixed.count("parallel.tensor")) alone.parallel.tensor = r.parallel.tensor;
  if (fixed.count("parallel.pipeline")) alone.parallel.pipeline = r.parallel.pipeline;
  if (fixed.count("parallel.context")) alone.parallel.context = r.parallel.context;
  if (fixed.count("parallel.expert")) alone.parallel.expert = alone.parallel.data = r.parallel.expert;
  parallel::validate(a, alone);
}

std::string too_much(std::uint64_t bytes, std::uint64_t budget, const char* of) {
  if (bytes <= budget) return fmt::format("{} of {}", format_bytes(bytes), of);
  return fmt::format("{} of {}, {} too much", format_bytes(bytes), of, format_bytes(bytes - budget));
}

std::string closest_words(const Found& f, const parallel::Question& q) {
  std::string out = fmt::format(
      "closest is tensor {}, pipeline {}, data {}, context {}, expert {}, zero {}, micro-batch {}, recompute "
      "{}{}: {}",
      f.shape.tensor, f.depth.pipeline, f.depth.data, f.shape.context, f.shape.expert, f.keep.zero,
      f.shape.micro_batch, name(f.shape.recompute.kind),
      offload_words(f.keep).empty() ? "" : ", " + offload_words(f.keep),
      too_much(f.device_bytes, q.device_budget, "a device"));
  if (f.host_bytes > 0 && q.host_budget != UINT64_MAX)
    out += "; " + too_much(f.host_bytes, q.host_budget, "host memory");
  return out + "; more devices, a larger device or a shorter sequence would make room";
}

}  // namespace

std::vector<std::string> layout_settings(const Found& f) {
  const auto set = [](const char* key, const auto& value) { return fmt::format("{}={}", key, value); };
  return {set("parallel.data", f.depth.data),
          set("parallel.tensor", f.shape.tensor),
          set("parallel.sequence", f.shape.sequence),
          set("parallel.pipeline", f.depth.pipeline),
          set("parallel.interleave", f.depth.interleave),
          set("parallel.context", f.shape.context),
          set("parallel.expert", f.shape.expert),
          set("parallel.zero", f.keep.zero),
          set("train.micro_batch", f.shape.micro_batch),
          set("train.grad_accum", f.depth.accumulate),
          set("train.recompute", name(f.shape.recompute.kind)),
          set("train.recompute_every", f.shape.recompute.every),
          set("plan.offload_weights", offload_word(f.keep.weights)),
          set("plan.offload_optimizer", offload_word(f.keep.optimizer)),
          set("plan.offload_activations", offload_word(f.keep.activations))};
}

static report::SearchView searched(const runfile::RunConfig& asked, const SearchRequest& request) {
  runfile::RunConfig c = asked;
  const DevicePreset& device = device_of(c);
  const std::string sequence = open_sequence(c);
  const model::Architecture architecture = model::from_model(c.model);
  const RunSpec& r = c.run;
  report::SearchView v;
  if (request.fixed.count("train.grad_accum")) refuse_accumulation(c);
  if (!sequence.empty()) v.notes.push_back(sequence);
  v.devices = request.devices;
  if (v.devices == 0)
    v.devices = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        UINT32_MAX,
        checked_mul(r.parallel.data, r.parallel.tensor, r.parallel.pipeline, r.parallel.context)));
  v.global_batch = request.global_batch;
  if (v.global_batch == 0) {
    const std::uint64_t own = checked_mul(r.micro_batch, r.accumulate, r.parallel.data);
    v.global_batch = std::max<std::uint64_t>(own, v.devices);
    if (v.global_batch != own)
      v.notes.push_back(
          fmt::format("{} sequences in an update, one a device; --global-batch says another number",
                      format_count(v.global_batch)));
  }

  parallel::Question q;
  q.architecture = &architecture;
  q.job = {r, v.devices, v.global_batch, axes_of(r, request.fixed)};
  q.machine = parallel::machine_of(device, r);
  q.device_budget = c.budget.value_or(device.memory_bytes);
  q.host_budget = c.host_budget.value_or(UINT64_MAX);
  q.top = request.top;
  q.prune = !request.every;

  const auto begin = std::chrono::steady_clock::now();
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const parallel::Answer answer = ask(q, request.threads ? request.threads : cores);
  v.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  v.model = c.model.name.empty() ? c.model.family : c.model.name;
  v.device = device.name;
  v.run_line = fmt::format("{}, {}", c.precision, name(r.optimizer));
  v.budget_bytes = q.device_budget;
  v.seq_len = r.seq_len;
  v.layouts = answer.layouts, v.fitting = answer.fitting, v.evaluated = answer.evaluated;
  const parallel::TimeModel model(architecture, r, q.machine);
  for (const Found& f : answer.best) v.best.push_back(row(f, q, model));
  for (const Found& f : answer.pareto) v.pareto.push_back(row(f, q, model));
  for (auto* rows : {&v.best, &v.pareto})
    for (report::LayoutRow& found : *rows)
      if (!sequence.empty())
        found.settings.insert(found.settings.begin(), fmt::format("--set data.seq_len={}", c.run.seq_len));
  v.assumptions = assumptions(q.machine);
  if (answer.layouts == 0) refuse_fixed(architecture, r, request.fixed, v.devices, v.global_batch);
  if (answer.layouts == 0)
    v.notes.push_back(
        fmt::format("{} devices and {} sequences in an update leave no layout: heads, tokens, layers and "
                    "sequences have to divide",
                    format_count(v.devices), format_count(v.global_batch)));
  if (answer.closest) v.notes.push_back(closest_words(*answer.closest, q));
  if (!request.every && answer.evaluated < answer.layouts)
    v.notes.push_back(
        "layouts not looked at can be neither among the fastest nor on the front; --every looks at them too");
  for (const std::string& n : architecture.notes) v.notes.push_back(n);
  return v;
}

report::SearchView search_layouts(const runfile::RunConfig& c, const SearchRequest& request) {
  return naming_numbers(c, [&] { return searched(c, request); });
}

}  // namespace trainhost::planning
