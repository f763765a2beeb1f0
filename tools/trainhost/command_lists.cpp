// trainhost models | devices: list the built-in presets. JSON has raw
// numbers under the names of config.json, the table rounded ones for people; the keys of JSON are an
// interface and never change.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"
#include "core/runfile/suggest.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

/// The presets that can be trained and those that can only be planned, sorted by name: users look for a name,
/// and the column "supports" tells the two apart. The pointers refer to static tables.
std::vector<const ModelSpec*> all_presets() {
  std::vector<const ModelSpec*> all;
  for (const ModelSpec& m : model_presets()) all.push_back(&m);
  for (const ModelSpec& m : model::planned_presets()) all.push_back(&m);
  std::ranges::sort(all, {}, [](const ModelSpec* m) -> const std::string& { return m->name; });
  return all;
}

/// Whether a name contains the part that the user gave, whatever the case.
bool has_part(const std::string& name, const std::string& part) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return !std::ranges::search(name, part, {}, lower, lower).empty() || part.empty();
}

/// `suggestion`: "; did you mean ...?" or "".
[[noreturn]] void reject_part(const char* what, const std::string& part, const std::string& suggestion,
                              const char* command) {
  throw usage_error(fmt::format("no built-in {} has '{}' in its name{}", what, escaped(part, 80), suggestion),
                    fmt::format("`trainhost {}` lists all", command));
}

}  // namespace

Exit run(const ModelsArguments& a) {
  using Json = JsonValue;
  Json all = Json::array();
  report::Table t("nnrrnrrrrrrr");
  t.row({"name", "family", "parameters", "active", "supports", "layers", "hidden", "heads", "kv heads",
         "head dim", "mlp", "vocab"});
  t.rule();
  for (const ModelSpec* m : all_presets()) {
    if (!has_part(m->name, a.part) && !has_part(m->family, a.part)) continue;
    // Counted from the architecture, not from fields of the preset, so that experts and tied heads are right.
    const model::Counts n = model::count(model::from_model(*m));
    const bool trained = trainable_family(m->family);
    all.push_back({{"name", m->name},
                   {"family", m->family},
                   {"parameters", n.total},
                   {"active_parameters", n.active},
                   {"trainable", trained},
                   {"num_hidden_layers", m->layers},
                   {"hidden_size", m->hidden},
                   {"num_attention_heads", m->heads},
                   {"num_key_value_heads", m->kv_heads},
                   {"head_dim", m->head_dim},
                   {"intermediate_size", m->intermediate},
                   {"vocab_size", m->vocab}});
    // "active" differs only with experts; equal numbers would hide which models have them.
    t.row({m->name, m->family, format_count(n.total), n.active == n.total ? "" : format_count(n.active),
           trained ? "train, plan" : "plan", std::to_string(m->layers), std::to_string(m->hidden),
           std::to_string(m->heads), std::to_string(m->kv_heads), std::to_string(m->head_dim),
           std::to_string(m->intermediate), std::to_string(m->vocab)});
  }
  if (all.elements.empty()) reject_part("model", a.part, runfile::suggest_model(a.part), "models");
  fmt::print(result_stream(), "{}",
             a.common.json
                 ? Json{{"models", all}}.dump(2) + "\n"
                 : t.str({.width = report::output_width(), .drop = {9, 8, 7, 11, 10, 6, 3, 5, 1, 4}}));
  return Exit::kDone;
}

Exit run(const DevicesArguments& a) {
  using Json = JsonValue;
  Json all = Json::array();
  report::Table t("nlrrrrrrrrrr");
  t.row({"name", "device", "memory", "GB/s", "bf16 TFLOP/s", "fp8", "tf32", "fp32", "link GB/s", "node",
         "network GB/s", "host GB/s"});
  t.rule();
  // 0 in a preset means unknown, for example no fp8 units.
  auto number = [](double x) { return x == 0 ? std::string("-") : fmt::format("{:g}", x); };
  for (const DevicePreset& d : device_presets()) {
    if (!has_part(d.name, a.part) && !has_part(d.vendor + " " + d.full_name, a.part)) continue;
    all.push_back({{"name", d.name},
                   {"vendor", d.vendor},
                   {"full_name", d.full_name},
                   {"memory_bytes", d.memory_bytes},
                   {"memory_gbs", d.memory_gbs},
                   {"bf16_tflops", d.bf16_tflops},
                   {"tf32_tflops", d.tf32_tflops},
                   {"fp32_tflops", d.fp32_tflops},
                   {"fp16_tflops", d.fp16_tflops},
                   {"fp8_tflops", d.fp8_tflops},
                   {"link_gbs", d.link_gbs},
                   {"node", d.node},
                   {"network_gbs", d.network_gbs},
                   {"host_gbs", d.host_gbs},
                   {"multiprocessors", d.multiprocessors}});
    t.row({d.name, d.full_name, format_bytes(d.memory_bytes), number(d.memory_gbs), number(d.bf16_tflops),
           number(d.fp8_tflops), number(d.tf32_tflops), number(d.fp32_tflops), number(d.link_gbs),
           std::to_string(d.node), number(d.network_gbs), number(d.host_gbs)});
  }
  if (all.elements.empty()) reject_part("device", a.part, runfile::suggest_device(a.part), "devices");
  fmt::print(result_stream(), "{}",
             a.common.json
                 ? Json{{"devices", all}}.dump(2) + "\n"
                 : t.str({.width = report::output_width(), .drop = {11, 9, 10, 6, 7, 8, 5, 3, 4, 1}}));
  return Exit::kDone;
}

}  // namespace trainhost::cli
