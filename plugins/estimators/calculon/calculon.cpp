// Plugin `calculon`: the memory model of the co-design tool Calculon for one rank under tensor, pipeline and
// data parallelism, with recompute, sequence parallelism and offload. Equations: block.hpp, closed_form.hpp;
// report: report.hpp.
#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/model/architecture.hpp"
#include "plugins/estimators/calculon/report.hpp"
#include "plugins/estimators/common/model_match.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(R"(
id = "calculon"
version = "0.1.0"
kind = "estimator"
summary = "Calculon's memory model: a GPT block under tensor, pipeline and data parallelism, with offload"
families = ["*"]
options = ["embedding", "fused_activation", "attention_type", "tensor_par_comm_type", "tensor_par_overlap", "seq_par_ag_redo"]
)");

namespace trainhost {
namespace {

constexpr std::int32_t kRuleOfThumb = 50;  // counts every model as a GPT

/// Known families under a parallelism that Calculon can express. estimate() accepts any family with the
/// needed dimensions and names the setting that Calculon cannot express.
std::int32_t match(const th_model* m, const th_run* r) {
  return rules::guard_match(kRuleOfThumb, [&] {
    if (!m || !r) return 0;
    const ModelSpec model = calculon::completed(abi::from_c(*m));
    if (!model::known_family(model.family) || !calculon::has_dimensions(model)) return 0;
    const calculon::Mapped mapped = calculon::map(model, abi::from_c(*r), {});
    calculon::check(mapped.application, mapped.execution);
    return kRuleOfThumb;
  });
}

th_status estimate(const th_host* host, const th_model* m, const th_run* r, const th_profile* p,
                   th_mem_sink* sink, th_mem_summary* summary, th_error* error) {
  return abi::guard(error, [&] {
    abi::require_arguments(m, r, sink);
    rules::require_all_weights_trained(abi::from_c(*r), "calculon");
    const ModelSpec model = calculon::completed(abi::from_c(*m));
    if (!calculon::has_dimensions(model))
      throw usage_error(
          "calculon needs the model's vocab_size, hidden_size, layers, heads, head_dim and "
          "intermediate_size");
    const Tier device = p ? abi::from_c(*p).tier : Tier::kDevice;
    const MemoryReport report =
        calculon::report(model, abi::from_c(*r), calculon::read_options({host, "calculon"}), device);
    abi::send_report(report, sink, summary);
  });
}

constexpr th_estimator kTable{sizeof(th_estimator), 0, &match, &estimate};

}  // namespace
}  // namespace trainhost

TH_PLUGIN("calculon", "0.1.0", &trainhost::kTable)
