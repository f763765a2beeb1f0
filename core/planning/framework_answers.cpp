// See framework_answers.hpp.
#include "core/planning/framework_answers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/base/text.hpp"
#include "core/model/presets.hpp"
#include "core/planning/choose_estimators.hpp"
#include "core/planning/estimate_run.hpp"
#include "core/runfile/planned_settings.hpp"

namespace trainhost::planning {
namespace {

constexpr const char* kFramework = "pytorch";

bool is_described(const plugin::Registry& registry) {
  return std::ranges::any_of(registry.candidates(), [](const plugin::Candidate& c) {
    return std::ranges::find(c.manifest.frameworks, kFramework) != c.manifest.frameworks.end();
  });
}

/// PyTorch's CUDA allocator serves NVIDIA's GPUs, and AMD's under the same rules.
bool has_cuda_allocator(const std::string& device) {
  const DevicePreset* d = find_device_preset(device);
  return !d || d->vendor == "NVIDIA" || d->vendor == "AMD";
}

/// The plan of `c`, whose framework and recomputation are set.
FrameworkAnswer answer(const runfile::RunConfig& c, plugin::Registry& registry) {
  PlanRequest request;
  request.estimators = {"auto"};
  request.elsewhere = true;
  const ResolvedRun r = resolve_run(c, registry, request);
  const std::string id = choose_estimators(r.config, registry, request).ids.front();
  if (id == kClosedFormEstimator)  // says little about a framework in particular
    throw usage_error(
        fmt::format("no installed estimator describes a training step of {} for the model family '{}'",
                    c.framework, escaped(c.model.family, 80)));
  FrameworkAnswer a;
  a.framework = c.framework;
  a.recompute = c.run.recompute;
  a.text = fmt::format("{}, recompute {}", a.framework, name(a.recompute));
  a.budget_known = r.budgets.compute.known;
  a.budget_bytes = r.budgets.compute.bytes;
  a.estimate = estimate_run(r, registry, request, id, traits_for(r.config, nullptr));
  return a;
}

/// What is tried where the weights with gradients and optimizer state do not fit one device.
struct Variation {
  const char* text;  // after the framework
  Settings settings;
};

/// `experts`: peft adapts the stacked matrices of experts by a parametrization that copies them all, so only
/// those of attention are adapted.
std::vector<Variation> variations(const runfile::RunConfig& c, bool experts) {
  const runfile::Override recompute{"train.recompute", "full"};
  std::vector<Variation> out;
  if (c.run.parallel.data > 1) out.push_back({"", {{"plan.framework", "fsdp2"}, recompute}});
  if (c.run.mode != RunMode::kFull) return out;  // has its adapters already
  const char* targets = experts ? R"(["q_proj", "k_proj", "v_proj", "o_proj"])" : R"("all-linear")";
  Settings lora = {{"plan.framework", kFramework}, recompute, {"lora.rank", "16"}, {"lora.targets", targets}};
  out.push_back({experts ? ", LoRA of rank 16 on attention" : ", LoRA of rank 16", lora});
  if (experts) return out;  // bitsandbytes does not quantize stacked matrices
  lora.insert(lora.end(), {{"lora.base", "nf4"}, {"lora.double_quant", "true"}});
  out.push_back({", QLoRA of rank 16", lora});
  return out;
}

/// The settings as a user writes them, without framework and recomputation, which have fields of their own.
std::string settings_text(const Settings& settings) {
  std::string out;
  for (const runfile::Override& o : settings)
    if (o.key != "plan.framework" && o.key != "train.recompute")
      out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", o.key,
                         o.key == "lora.base" ? '"' + o.value + '"' : o.value);
  return out;
}

}  // namespace

void add_framework_answers(PlanResult& v, const runfile::RunConfig& c, const RunSource& source,
                           plugin::Registry& registry) {
  if (c.run.mode == RunMode::kInference || !is_described(registry) || !has_cuda_allocator(c.device)) return;
  try {
    runfile::RunConfig run = c;
    run.framework = kFramework;
    // As a plan `--for pytorch` has it: workspaces of cuBLAS depend on the device.
    if (const DevicePreset* device = find_device_preset(c.device);
        device && runfile::decides_workspaces(*device) &&
        !run.plugin_options.contains(plugin::kFrameworkOptions))
      run.plugin_options[plugin::kFrameworkOptions] = {
          {"framework", kFramework}, {"compute_capability", std::to_string(device->capability)}};
    const std::unique_ptr<plugin::Registry> own =
        run.plugin_options == c.plugin_options ? nullptr : source.open(run);
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      run.run.recompute = recompute;
      v.framework_answers.push_back(answer(run, own ? *own : registry));
    }
  } catch (const Error& e) {
    v.framework_answers.clear();
    v.no_framework_answer = e.what();
    return;
  }
  for (const Variation& variation : variations(c, v.active_parameters != 0)) {
    // An unknown budget fits everything.
    if (std::ranges::any_of(v.framework_answers, [](const FrameworkAnswer& a) { return a.estimate.fits; }))
      return;
    try {
      const runfile::RunConfig run = source.load(variation.settings);
      // The name of the framework is an option of the estimator's plugin.
      const std::unique_ptr<plugin::Registry> other =
          run.plugin_options == c.plugin_options ? nullptr : source.open(run);
      FrameworkAnswer a = answer(run, other ? *other : registry);
      a.settings = settings_text(variation.settings);
      a.text = fmt::format("{}{}, recompute {}", a.framework, variation.text, name(a.recompute));
      v.framework_answers.push_back(std::move(a));
    } catch (const Error&) {  // not a run that is described
    }
  }
}

}  // namespace trainhost::planning
