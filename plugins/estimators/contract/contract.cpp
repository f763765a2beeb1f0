// Plugin `contract`: upper bound of the training memory of a LLaMA model by the equations of the memory
// contract (docs/memory-model.md), with notes where a model breaks their assumptions. Equations:
// closed_form.hpp.
#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "plugins/estimators/common/model_match.hpp"
#include "plugins/estimators/contract/closed_form.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(R"(
id = "contract"
version = "0.1.0"
kind = "estimator"
summary = "closed form: 16 bytes per parameter, 40 per hidden unit and token, 512 MiB"
families = ["llama", "mistral", "qwen2", "qwen3"]
)");

namespace trainhost {
namespace {

constexpr std::int32_t kRuleOfThumb = 100;  // an estimator that is exact for the family has a higher score

std::int32_t match(const th_model* m, const th_run* r) {
  return rules::guard_match(kRuleOfThumb, [&] {
    if (!m || !r) return 0;
    return TH_HAS(m, th_model, family) && m->family && trainable_family(m->family) ? kRuleOfThumb : 0;
  });
}

th_status estimate(const th_host*, const th_model* m, const th_run* r, const th_profile* p, th_mem_sink* sink,
                   th_mem_summary* summary, th_error* error) {
  return abi::guard(error, [&] {
    abi::require_arguments(m, r, sink);
    rules::require_all_weights_trained(abi::from_c(*r), "contract");
    if (match(m, r) == 0)
      throw abi::StatusError(TH_E_UNSUPPORTED, "the closed form holds for the trained families alone");
    Tier tier = p ? abi::from_c(*p).tier : Tier::kHost;
    MemoryReport report = contract::estimate(abi::from_c(*m), abi::from_c(*r), tier);
    abi::send_report(report, sink, summary);
  });
}

constexpr th_estimator kTable{sizeof(th_estimator), 0, &match, &estimate};

}  // namespace
}  // namespace trainhost

TH_PLUGIN("contract", "0.1.0", &trainhost::kTable)
