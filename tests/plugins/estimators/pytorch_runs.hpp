// Runs of other frameworks, and their estimates by the plugin `pytorch`. For tests of this plugin.
#pragma once
#include <boost/test/unit_test.hpp>
#include <functional>
#include <map>
#include <string>

#include "core/frameworks/trace/evaluate.hpp"
#include "core/plugin/registry.hpp"
#include "plugins/estimators/pytorch/report.hpp"
#include "tests/core/frameworks/oracle_cases.hpp"

namespace trainhost::test {

/// The case of the oracle as the run file states it.
inline RunSpec run_of(const nlohmann::json& c) {
  RunSpec r;
  r.micro_batch = c.at("batch"), r.seq_len = c.at("sequence"), r.accumulate = c.at("accumulate");
  const std::string precision = c.at("precision");
  const bool adapts = c.at("lora") > 0;
  r.mode = adapts ? RunMode::kLora : RunMode::kFull;
  r.lora_rank = c.at("lora");
  r.lora_targets = settings_of(c).lora_targets;
  if (precision == "autocast") r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  if (precision == "bf16" && !adapts) r.weight = r.compute = DType::kBF16;
  if (adapts) r.memory.frozen = precision == "bf16" ? DType::kBF16 : DType::kF32;
  if (c.contains("axolotl")) r.weight = r.compute = DType::kBF16;  // autocast, as its default bf16: auto
  if (c.contains("quantized")) {
    const nlohmann::json& q = c.at("quantized");
    if (q.at("type") == "int8") {
      r.memory.frozen = DType::kI8;
    } else {
      r.mode = RunMode::kQlora;
      r.memory.frozen = DType::kNF4, r.memory.double_quantized = q.at("double");
    }
    if (q.at("autocast")) r.weight = r.compute = DType::kBF16;
    r.master = q.at("prepared") ? DType::kF32 : DType::kNone;
    if (q.contains("adapters")) r.grad = DType::kBF16;
  }
  r.memory.attention =
      c.at("attention") == "eager" ? AttentionMemory::kMaterialised : AttentionMemory::kFlash;
  r.recompute = c.at("checkpoint") ? Recompute::kFull : Recompute::kNone;
  r.optimizer = settings_of(c).optimizer;
  r.weight_decay = 0;
  return r;
}

inline pytorch::Options options_of(const nlohmann::json& c) {
  pytorch::Options o;
  if (c.at("optimizer") == "adamw-fused") o.loop = frameworks::OptimizerLoop::kFused;
  o.dropout = c.at("dropout");
  if (c.value("liger", false)) o.liger = {true, true, true, true};
  o.cut_loss = c.value("cut", false);
  o.adapter_kernels = settings_of(c).adapter_kernels;
  if (c.contains("reentrant")) o.reentrant = c.at("reentrant");
  if (c.contains("quantized") && c.at("quantized").contains("outliers"))
    o.int8_outliers = c.at("quantized").at("outliers").get<std::uint32_t>();
  o.lora_dropout = c.at("lora_dropout").get<double>();
  return o;
}

inline std::uint64_t measured_peak(const nlohmann::json& record) {
  std::uint64_t peak = 0;
  for (const auto& [phase, bytes] : record.at("peaks").items())
    peak = std::max(peak, bytes.at("total").get<std::uint64_t>());
  return peak;
}

/// Peak in bytes of the step that the estimator's settings describe, on the machine of the oracle: fake
/// tensors on the CPU, in blocks of one byte. `adjust`: settings that the run file has no key for.
inline std::uint64_t replayed_peak(const nlohmann::json& c, const RunSpec& r, const pytorch::Options& o,
                                   const std::function<void(frameworks::StepSettings&)>& adjust = {}) {
  const model::Architecture a = architecture_of(c);
  std::vector<std::string> notes;
  frameworks::StepSettings s = pytorch::step_settings(a, r, o, notes);
  s.machine = settings_of(c).machine;
  if (adjust) adjust(s);
  return frameworks::find_peak(frameworks::training_step(a, s).trace, {.block = 1}).bytes;
}

/// Compares the peak of each case that the run file can state with what PyTorch counted; returns their
/// number.
inline std::size_t compare_peaks(const std::vector<nlohmann::json>& records) {
  std::size_t cases = 0;
  for (const nlohmann::json& record : records) {
    const nlohmann::json& c = record.at("case");
    // The run file has no bf16 weights without autocast over a quantized base.
    if (c.contains("quantized") && c.at("precision") == "bf16" && !c.at("quantized").at("autocast")) continue;
    BOOST_TEST_CONTEXT("case " << record.at("n") << ": " << c.dump())
    BOOST_TEST(replayed_peak(c, run_of(c), options_of(c)) == measured_peak(record));
    ++cases;
  }
  return cases;
}

/// An 8-billion-parameter model in mixed precision.
inline ModelSpec llama_8b() {
  ModelSpec m;
  m.family = "llama", m.vocab = 128256, m.hidden = 4096, m.layers = 32, m.heads = 32, m.kv_heads = 8,
  m.head_dim = 128, m.intermediate = 14336;
  return m;
}

inline RunSpec mixed_precision() {
  RunSpec r;
  r.seq_len = 2048;
  r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  return r;
}

inline plugin::Registry registry(std::map<std::string, std::string> options = {}) {
  plugin::HostOptions o;
  o.plugin_options["pytorch"] = std::move(options);
  return plugin::Registry({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, std::move(o));
}

inline MemoryReport estimate(const RunSpec& r, std::map<std::string, std::string> options = {},
                             const ModelSpec& m = llama_8b()) {
  return registry(std::move(options)).estimator("pytorch").estimate(m, r, nullptr);
}

inline std::uint64_t bytes_of(const MemoryReport& r, frameworks::Purpose p) {
  for (const MemoryEntry& e : r.entries)
    if (e.name == frameworks::name(p)) return e.bytes;
  return 0;
}

inline std::uint64_t full_blocks(std::uint64_t bytes) { return (bytes + 511) / 512 * 512; }

/// The estimator refuses the run as one that it does not describe, with `what` in its sentence.
inline void check_refused(const RunSpec& r, const std::map<std::string, std::string>& options,
                          const std::string& what, const ModelSpec& m = llama_8b()) {
  BOOST_CHECK_EXCEPTION(estimate(r, options, m), plugin::PluginError, [&](const plugin::PluginError& e) {
    BOOST_TEST(std::string(e.what()).find(what) != std::string::npos, e.what());
    return e.status() == "unsupported";
  });
}

}  // namespace trainhost::test
