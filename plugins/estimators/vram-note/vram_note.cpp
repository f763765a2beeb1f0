// Plugin `vram-note`: manifest and score; reads the options, counts the parameters and calls breakdown().
// Computes nothing: note.cpp.
#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "plugins/estimators/common/model_match.hpp"
#include "plugins/estimators/common/options.hpp"
#include "plugins/estimators/vram-note/breakdown.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(R"(
id = "vram-note"
version = "0.1.0"
kind = "estimator"
summary = "rule of thumb: LoRA training and inference in bf16, one hidden state per layer, 2 GiB for CUDA"
families = ["*"]
options = ["parameters", "trainable_ratio", "hidden_size", "vocab_size"]
)");

namespace trainhost {
namespace {

constexpr std::int32_t kRuleOfThumb = 50;  // estimators that know the family's tensors have higher scores
constexpr const char* kId = "vram-note";

std::int32_t match(const th_model* m, const th_run* r) {
  return rules::guard_match(kRuleOfThumb, [&] {
    if (!m || !r) return 0;
    if (!TH_HAS(m, th_model, family) || !m->family || !rules::countable_family(m->family)) return 0;
    const ModelSpec model = abi::from_c(*m);
    return model.hidden && model.layers && model.heads && model.vocab ? kRuleOfThumb : 0;
  });
}

vram_note::Settings settings_of(const th_host* host) {
  const rules::Options options(host, kId);
  return {options.count("parameters"), options.count("hidden_size"), options.count("vocab_size"),
          options.number("trainable_ratio", 0, 1)};
}

th_status estimate(const th_host* host, const th_model* m, const th_run* r, const th_profile*,
                   th_mem_sink* sink, th_mem_summary* summary, th_error* error) {
  return abi::guard(error, [&] {
    abi::require_arguments(m, r, sink);
    rules::require_all_weights_trained(abi::from_c(*r), kId);
    const ModelSpec model = abi::from_c(*m);
    const vram_note::Settings settings = settings_of(host);
    rules::need_dimensions(model, kId);
    const bool countable = rules::countable_family(model.family) || !settings.parameters;
    const MemoryReport report =
        vram_note::breakdown(model, abi::from_c(*r), settings, countable ? rules::true_parameters(model) : 0);
    abi::send_report(report, sink, summary);
  });
}

constexpr th_estimator kTable{sizeof(th_estimator), 0, &match, &estimate};

}  // namespace
}  // namespace trainhost

TH_PLUGIN("vram-note", "0.1.0", &trainhost::kTable)
