// Plugin `memory-equation`: manifest and score; reads the options, counts the parameters and calls
// breakdown(). Computes nothing: equation.cpp.
#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "plugins/estimators/common/model_match.hpp"
#include "plugins/estimators/common/options.hpp"
#include "plugins/estimators/memory-equation/breakdown.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(R"(
id = "memory-equation"
version = "0.1.0"
kind = "estimator"
summary = "rule of thumb: 16 bytes per parameter, 11*B*S*H + B*A*S^2 per layer, 10 % temporary, 10 % fragmentation"
families = ["*"]
options = ["parameters", "attention", "terms", "fragmentation", "temporary", "chunk"]
)");

namespace trainhost {
namespace {

constexpr std::int32_t kRuleOfThumb = 50;  // estimators that know the family's tensors have higher scores
constexpr const char* kId = "memory-equation";

std::int32_t match(const th_model* m, const th_run* r) {
  return rules::guard_match(kRuleOfThumb, [&] {
    if (!m || !r) return 0;
    if (!TH_HAS(m, th_model, family) || !m->family || !rules::countable_family(m->family)) return 0;
    const ModelSpec model = abi::from_c(*m);
    if (!model.hidden || !model.layers || !model.heads || abi::from_c(*r).mode == RunMode::kInference)
      return 0;
    return kRuleOfThumb;
  });
}

std::uint32_t millionths(std::optional<double> share, std::uint32_t otherwise) {
  return share ? static_cast<std::uint32_t>(*share * memory_equation::kMillion + 0.5) : otherwise;
}

memory_equation::Settings settings_of(const th_host* host) {
  const rules::Options options(host, kId);
  memory_equation::Settings s;
  s.parameters = options.count("parameters");
  if (const auto attention = options.word("attention", {"auto", "flash", "materialised"});
      attention && *attention != "auto")
    s.flash = *attention == "flash";
  if (const auto terms = options.word("terms", {"equation", "exercise", "paper"}))
    s.terms = *terms == "exercise" ? memory_equation::Terms::kExercise
              : *terms == "paper"  ? memory_equation::Terms::kPaper
                                   : memory_equation::Terms::kEquation;
  s.fragmentation = millionths(options.number("fragmentation", 0, 1), s.fragmentation);
  s.temporary = millionths(options.number("temporary", 0, 1), s.temporary);
  s.chunk = options.count("chunk").value_or(0);
  return s;
}

th_status estimate(const th_host* host, const th_model* m, const th_run* r, const th_profile*,
                   th_mem_sink* sink, th_mem_summary* summary, th_error* error) {
  return abi::guard(error, [&] {
    abi::require_arguments(m, r, sink);
    rules::require_all_weights_trained(abi::from_c(*r), kId);
    const ModelSpec model = abi::from_c(*m);
    const memory_equation::Settings settings = settings_of(host);
    rules::need_dimensions(model, kId);
    // With the option `parameters`, an unknown family is allowed.
    const bool countable = rules::countable_family(model.family) || !settings.parameters;
    const MemoryReport report = memory_equation::breakdown(model, abi::from_c(*r), settings,
                                                           countable ? rules::true_parameters(model) : 0);
    abi::send_report(report, sink, summary);
  });
}

constexpr th_estimator kTable{sizeof(th_estimator), 0, &match, &estimate};

}  // namespace
}  // namespace trainhost

TH_PLUGIN("memory-equation", "0.1.0", &trainhost::kTable)
