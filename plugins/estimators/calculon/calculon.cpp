// Calculon's memory model as a plugin: the co-design tool's account of one rank under tensor, pipeline and
// data parallelism, with recompute, sequence parallelism and offload. Equations: block.hpp and
// closed_form.hpp; words: report.hpp.
#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/model/architecture.hpp"
#include "plugins/estimators/calculon/report.hpp"
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

constexpr std::int32_t kLoosely = 50;  // as if the model were GPT

/// Models of families that somebody knows, in layouts that Calculon has words for. Asked for by name, the
/// plugin takes any family with the dimensions, and says what stands in the way of a layout.
std::int32_t match(const th_model* m, const th_run* r) {
  try {
    if (!m || !r) return 0;
    const ModelSpec model = calculon::completed(abi::from_c(*m));
    if (!model::known_family(model.family) || !calculon::has_dimensions(model)) return 0;
    const calculon::Mapped mapped = calculon::map(model, abi::from_c(*r), {});
    calculon::check(mapped.application, mapped.execution);
    return kLoosely;
  } catch (...) {
    return 0;
  }
}

th_status estimate(const th_host* host, const th_model* m, const th_run* r, const th_profile* p,
                   th_mem_sink* sink, th_mem_summary* summary, th_error* error) {
  return abi::guard(error, [&] {
    abi::require_arguments(m, r, sink);
    const ModelSpec model = calculon::completed(abi::from_c(*m));
    if (!calculon::has_dimensions(model))
      throw usage_error(
          "calculon needs vocab, hidden size, layers, heads, head dimension and MLP width of a model");
    const Tier device = p ? abi::from_c(*p).tier : Tier::kDevice;
    const MemoryReport report =
        calculon::report(model, abi::from_c(*r), calculon::read_options({host, "calculon"}), device);
    if (th_status s = abi::emit(report, sink, summary); s != TH_OK)
      throw abi::StatusError(s, "the host refused the report");
  });
}

constexpr th_estimator kTable{sizeof(th_estimator), 0, &match, &estimate};

}  // namespace
}  // namespace trainhost

TH_PLUGIN("calculon", "0.1.0", &trainhost::kTable)
