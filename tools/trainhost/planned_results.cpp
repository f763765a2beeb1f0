// See planned_results.hpp.
#include "tools/trainhost/planned_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/model/parallelism.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/planning/choose_estimators.hpp"
#include "core/planning/estimate_run.hpp"
#include "core/planning/framework_answers.hpp"
#include "core/planning/make_plan.hpp"
#include "core/planning/replay_layouts.hpp"
#include "core/planning/search_layouts.hpp"
#include "core/planning/suggest_changes.hpp"
#include "core/planning/sweep.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

/// The keys that the search will choose, so that loading the run does not reject combinations with them:
/// `--set parallel.expert=8` alone is valid here, because the search finds the data-parallel ranks for it.
/// None without --devices: then the run file itself states the number of ranks and must be a valid run.
std::set<std::string> keys_to_search(const planning::SearchRequest& request) {
  std::set<std::string> keys;
  if (!request.devices) return keys;
  for (const char* key : planning::kSearchedKeys)
    if (!request.fixed.count(key)) keys.insert(key);
  return keys;
}

/// The run whose layouts are searched. Files of another framework often do not say how many devices there
/// are, which ZeRO and a global batch need: then those of --devices.
runfile::RunConfig load_searched(const SearchArguments& a, const planning::SearchRequest& request) {
  std::vector<runfile::Override> more = target_overrides(a.common, a.target);
  // The accumulation follows from the sequences of a step: --global-batch gives those that a file leaves
  // open.
  const auto load = [&] {
    constexpr std::string_view kAccumulation = "--set train.grad_accum=VALUE";
    try {
      return load_config(a.common, more, keys_to_search(request));
    } catch (const Error& e) {
      std::string hint = e.hint();
      const std::size_t at = hint.find(kAccumulation);
      if (at == hint.npos) throw;
      if (!a.global_batch)
        throw Error(e.code(), e.what(), hint.replace(at, kAccumulation.size(), "--global-batch=N"),
                    e.where());
    }
    more.push_back({"train.grad_accum", "1", "--global-batch"});
    return load_config(a.common, more, keys_to_search(request));
  };
  if (a.common.from.empty() || !a.devices || request.fixed.count("parallel.data")) return load();
  try {
    runfile::RunConfig c = load();
    if (c.given.count("parallel.data")) return c;
  } catch (const Error&) {  // reported below, unless the devices are what was missing
  }
  try {
    more.push_back(ranks_of_devices(a.common, more, a.devices));
  } catch (const Error&) {  // another number of tensor-parallel ranks may share them
    more.push_back({"parallel.data", std::to_string(a.devices), "--devices"});
  }
  return load();
}

/// --rank R: the number of one of the ranks of the run, from 0. Nothing is changed for one process.
void set_rank(runfile::RunConfig& c, const std::string& text) {
  Parallelism& p = c.run.parallel;
  const std::uint64_t ranks = std::uint64_t{p.data} * p.tensor;
  std::uint32_t rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || end != text.data() + text.size() || rank >= ranks)
    throw usage_error(fmt::format("--rank={}: the run has {}", escaped(text, 80),
                                  ranks == 1 ? "one rank, 0" : fmt::format("the ranks 0 to {}", ranks - 1)),
                      ranks == 1 ? "set parallel.data to the number of processes" : "");
  if (ranks > 1) p.data_rank = rank / p.tensor + 1, p.tensor_rank = rank % p.tensor + 1;
}

/// --rank needs a run that trainhost trains: only its step program has single ranks. The closed form plans
/// the device that needs most memory.
void require_program(const runfile::RunConfig& c) {
  if (c.run.parallel.data * c.run.parallel.tensor == 1) return;
  const PlannedOnly beyond = planned_only_setting(c.run);
  const std::string why =
      !c.framework.empty()                ? fmt::format("plan.framework = \"{}\"", escaped(c.framework, 80))
      : !beyond.key.empty()               ? fmt::format("{} = {}", beyond.key, beyond.value)
      : trains_by_program(c.model, c.run) ? ""
                                          : "the model family " + escaped(c.model.family, 80);
  if (!why.empty())
    throw usage_error(fmt::format("--rank: no trainer here trains this run in several processes ({})", why),
                      "without --rank the plan is that of the device that needs most memory");
}

/// ZeRO divides state among data and context ranks. On one rank FSDP, DeepSpeed and Megatron-LM still have
/// buffers of it; trainhost and a plain PyTorch run have nothing.
void require_ranks_for_zero(const runfile::RunConfig& c) {
  const Parallelism& p = c.run.parallel;
  const bool has_nothing = c.framework.empty() || c.framework == "pytorch" || c.framework == "unsloth";
  if (p.zero == 0 || std::uint64_t{p.data} * p.context > 1 || !has_nothing) return;
  const auto found = c.given.find("parallel.zero");
  throw usage_error(
      fmt::format("parallel.zero = {} divides state among data-parallel ranks, but there is one", p.zero),
      "set their number with parallel.data or --devices=N, or set parallel.zero = 0",
      found == c.given.end() ? Where{c.file.string()} : found->second);
}

}  // namespace

planning::PlanResult plan_of(const PlanArguments& a) {
  const std::vector<runfile::Override> more = target_overrides(a.common, a.target);
  runfile::RunConfig c = load_config(a.common, more);
  require_ranks_for_zero(c);
  if (!a.rank.empty()) {
    set_rank(c, a.rank);
    require_program(c);
  }
  const auto registry = make_registry(a.common, &c);
  planning::PlanRequest request;
  request.estimators = split_commas(a.estimators);
  request.trainer = planning::planned_trainer(c, *registry);
  request.elsewhere = planning::is_for_another_machine(c);
  const planning::ResolvedRun resolved = planning::resolve_run(c, *registry, request);
  if (a.common.verbosity) write_stderr(planning::estimator_trace(resolved.config, *registry));
  planning::PlanResult v = planning::make_plan(resolved, *registry, request);

  // A model alone says nothing about who trains it.
  if (!a.common.model.empty() && !c.given.count("plan.framework") && request.estimators.empty())
    planning::add_framework_answers(v, c, source_of(a.common, more), *registry);

  // Limits need about thirty more plans: they are computed for --limits and for the HTML page only. The
  // timeline is computed where it is shown.
  planning::Replanner replan(source_of(a.common, more), *registry, request, resolved,
                             v.estimates.front().report.source);
  planning::add_changes_and_limits(
      v, replan, planning::planned_traits(resolved, *registry, request),
      {a.limits || !a.html.empty(), a.common.json || !a.html.empty() || a.picture.any()});
  if (!a.memory_snapshot.empty())
    v.snapshot =
        planning::memory_snapshot(resolved.config, planning::planned_traits(resolved, *registry, request),
                                  v.estimates.front(), "--memory-snapshot");

  v.file_keys = resolved.config.file_keys;
  v.command = command_line();
  return v;
}

planning::SweepResult sweep_of(const SweepArguments& a) {
  const planning::Axis axis = planning::parse_axis(a.over);
  for (const runfile::Override& o : overrides(a.common))
    if (o.key == axis.key)
      throw usage_error(fmt::format("{} is both set and swept over", axis.key), "remove one of the two",
                        {"--over"});
  constexpr std::string_view kShareDevices[] = {"parallel.data", "parallel.tensor", "parallel.pipeline",
                                                "parallel.context"};
  if (a.target.devices && std::ranges::count(kShareDevices, axis.key))
    throw usage_error(fmt::format("cannot be given while {} is swept over", axis.key),
                      "the other ranks would stay those of the first value: sweep without --devices, or use "
                      "trainhost search --devices",
                      {"--devices"});
  planning::PlanRequest request;
  request.estimators = split_commas(a.estimators);
  planning::SweepResult v =
      planning::sweep(source_of(a.common, target_overrides(a.common, a.target)), axis, request);
  v.command = command_line();
  return v;
}

planning::SearchResult search_of(const SearchArguments& a) {
  planning::SearchRequest request;
  request.devices = a.devices;
  request.global_batch = a.global_batch;
  request.top = a.top;
  request.threads = a.threads;
  request.every = a.every;
  for (const runfile::Override& o : overrides(a.common)) request.fixed.insert(o.key);
  runfile::RunConfig c = load_searched(a, request);
  const auto registry = c.framework.empty() ? nullptr : make_registry(a.common, &c);
  if (registry) planning::require_framework(*registry, c);
  planning::SearchResult v = planning::search_layouts(c, request);
  if (registry && !v.best.empty()) {
    planning::PlanRequest plan;
    plan.trainer = planning::planned_trainer(c, *registry);
    plan.elsewhere = true;
    planning::Replanner replan(source_of(a.common, target_overrides(a.common, a.target)), *registry, plan,
                               planning::resolve_run(c, *registry, plan), "");
    planning::replay_fastest_layouts(v, replan);
  }
  v.file_keys = c.file_keys;
  v.command = command_line();
  return v;
}

}  // namespace trainhost::cli
