// The estimator for every known decoder under any layout, as a plugin: core/layout's account of the worst
// pipeline stage, with a line for every stage. An approximation, and says of what; where a step program
// exists `llama` is exact and goes first.
#include "core/bridge/convert.hpp"
#include "core/bridge/guard.hpp"
#include "core/bridge/report.hpp"
#include "core/layout/memory.hpp"
#include "plugins/estimators/transformer/notes.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(R"(
id = "transformer"
version = "0.1.0"
kind = "estimator"
summary = "any known decoder under any layout, in closed form"
families = ["baichuan", "deepseek", "deepseek_v2", "deepseek_v3", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text",
  "gpt2", "gpt_neox", "granite", "internlm2", "llama", "mistral", "mixtral", "mpt", "olmo", "olmo2", "opt", "phi", "phi3",
  "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "stablelm", "starcoder2"]
priority = 50
)");

namespace trainhost {
namespace {

constexpr std::int32_t kWell =
    500;  // better than a rule of thumb (100), not as good as a placed program (1000)

std::int32_t match(const th_model* m, const th_run* r) {
  try {
    if (!m || !r) return 0;
    return TH_HAS(m, th_model, family) && m->family && arch::known_family(m->family) ? kWell : 0;
  } catch (...) {
    return 0;
  }
}

th_status estimate(const th_host*, const th_model* m, const th_run* r, const th_profile* p, th_mem_sink* sink,
                   th_mem_summary* summary, th_error* error) {
  return bridge::guard(error, [&] {
    bridge::require_arguments(m, r, sink);
    const ModelSpec model = bridge::from_c(*m);
    const RunSpec run = bridge::from_c(*r);
    const Profile profile = p ? bridge::from_c(*p) : Profile{};
    const arch::Architecture a = arch::from_model(model);
    layout::validate(a, run);
    MemoryReport report = layout::report(a, run);
    if (p && profile.tier == Tier::kHost) transformer::move_to_host(report);
    transformer::add_notes(report, a, model, run, p ? &profile : nullptr);
    if (th_status s = bridge::emit(report, sink, summary); s != TH_OK)
      throw bridge::StatusError(s, "the host refused the report");
  });
}

constexpr th_estimator kTable{sizeof(th_estimator), 0, &match, &estimate};

}  // namespace
}  // namespace trainhost

TH_PLUGIN("transformer", "0.1.0", &trainhost::kTable)
