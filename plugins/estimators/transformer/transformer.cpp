// Plugin `transformer`: approximation for every known decoder under any parallelism. Reports the memory
// breakdown of the pipeline stage that needs most (core/parallel), with one note per stage. Where a step
// program exists, `llama` is exact and has a higher score.
#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/parallel/rank_memory.hpp"
#include "plugins/estimators/transformer/notes.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(R"(
id = "transformer"
version = "0.1.0"
kind = "estimator"
summary = "closed form for any known decoder under any parallelism"
families = ["baichuan", "deepseek", "deepseek_v2", "deepseek_v3", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text",
  "gpt2", "gpt_neox", "granite", "internlm2", "llama", "mistral", "mixtral", "mpt", "olmo", "olmo2", "opt", "phi", "phi3",
  "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "stablelm", "starcoder2"]
priority = 50
)");

namespace trainhost {
namespace {

constexpr std::int32_t kTensorByTensor = 500;  // between a rule of thumb (100) and a placed program (1000)

std::int32_t match(const th_model* m, const th_run* r) {
  try {
    if (!m || !r) return 0;
    return TH_HAS(m, th_model, family) && m->family && model::known_family(m->family) ? kTensorByTensor : 0;
  } catch (...) {
    return 0;
  }
}

th_status estimate(const th_host*, const th_model* m, const th_run* r, const th_profile* p, th_mem_sink* sink,
                   th_mem_summary* summary, th_error* error) {
  return abi::guard(error, [&] {
    abi::require_arguments(m, r, sink);
    const ModelSpec model = abi::from_c(*m);
    const RunSpec run = abi::from_c(*r);
    const TrainerTraits traits = p ? abi::from_c(*p) : TrainerTraits{};
    const model::Architecture a = model::from_model(model);
    parallel::validate(a, run);
    MemoryReport report = parallel::report(a, run);
    if (p && traits.tier == Tier::kHost) transformer::move_to_host(report);
    transformer::add_notes(report, a, model, run, p ? &traits : nullptr);
    if (th_status s = abi::emit(report, sink, summary); s != TH_OK)
      throw abi::StatusError(s, "the host refused the report");
  });
}

constexpr th_estimator kTable{sizeof(th_estimator), 0, &match, &estimate};

}  // namespace
}  // namespace trainhost

TH_PLUGIN("transformer", "0.1.0", &trainhost::kTable)
