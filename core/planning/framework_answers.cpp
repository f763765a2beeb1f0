// See framework_answers.hpp.
#include "core/planning/framework_answers.hpp"

#include <algorithm>

#include "core/model/presets.hpp"
#include "core/planning/choose_estimators.hpp"
#include "core/planning/estimate_run.hpp"

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

FrameworkAnswer answer(runfile::RunConfig c, Recompute recompute, plugin::Registry& registry) {
  c.framework = kFramework;
  c.run.recompute = recompute;
  PlanRequest request;
  request.estimators = {"auto"};
  request.elsewhere = true;
  const ResolvedRun r = resolve_run(c, registry, request);
  const std::string id = choose_estimators(r.config, registry, request).front();
  FrameworkAnswer a;
  a.framework = kFramework;
  a.recompute = recompute;
  a.budget_known = r.budgets.compute.known;
  a.budget_bytes = r.budgets.compute.bytes;
  a.estimate = estimate_run(r, registry, request, id, traits_for(r.config, nullptr));
  return a;
}

}  // namespace

void add_framework_answers(PlanResult& v, const runfile::RunConfig& c, plugin::Registry& registry) {
  if (c.run.mode == RunMode::kInference || !is_described(registry) || !has_cuda_allocator(c.device)) return;
  try {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull})
      v.framework_answers.push_back(answer(c, recompute, registry));
  } catch (const Error& e) {
    v.framework_answers.clear();
    v.no_framework_answer = e.what();
  }
}

}  // namespace trainhost::planning
