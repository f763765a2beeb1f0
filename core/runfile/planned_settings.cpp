// Settings that only planners read: [parallel], [plan], and those of a framework, which an estimator
// gets as options. The values were checked against their schema rows before. Whether they fit each other and
// the model is checked in core/model/run_rules.cpp and core/parallel, which know both.
#include "core/runfile/planned_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/base/text.hpp"
#include "core/base/types.hpp"
#include "core/model/framework_release.hpp"
#include "core/model/presets.hpp"
#include "core/runfile/combinations.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/schema.hpp"

namespace trainhost::runfile {
namespace {

/// The schema lists exactly the words that these know.
DType parse_type(const std::string& name) { return type_of_run_file_name(name).value(); }

Tier parse_tier(const Settings& s, const char* key) { return tier_of_offload_name(s.text(key)).value(); }

/// Keys of [plan] that only the estimator of a framework reads. It gets them as options, named by what
/// follows "plan.". `only`: the framework that has the setting; "": several have it.
struct FrameworkKey {
  const char *key, *only = "";
};
constexpr FrameworkKey kFrameworkKeys[] = {{"plan.framework_version"},
                                           {"plan.execution"},
                                           {"plan.optimizer_implementation"},
                                           {"plan.checkpoint_reentrant"},
                                           {"plan.liger_kernels"},
                                           {"plan.adapter_kernels"},
                                           {"plan.quant_storage"},
                                           {"plan.norms"},
                                           {"plan.quant_experts"},
                                           {"plan.method"},
                                           {"plan.reference_model"},
                                           {"plan.int8_outliers"},
                                           {"plan.optimizer_in_backward"},
                                           {"plan.optimizer_paged"},
                                           {"plan.allocator"},
                                           {"plan.allocator_margin"},
                                           {"plan.expert_tensor"},
                                           {"plan.first_stage_layers"},
                                           {"plan.last_stage_layers"},
                                           {"plan.offload_gradients"},
                                           {"plan.runtime"},
                                           {"plan.fsdp_version"},
                                           {"plan.quant_compute"},
                                           {"plan.keep_logits"},
                                           {"plan.backward_prefetch"},
                                           {"plan.forward_prefetch"},
                                           {"plan.use_orig_params"},
                                           {"plan.float8_gather", "torchtitan"},
                                           {"plan.fsdp_replicas", "torchtitan"},
                                           {"plan.selective_layers", "torchtitan"},
                                           {"plan.no_sync"},
                                           {"plan.ddp_bucket"},
                                           {"plan.gradient_as_bucket_view"},
                                           {"plan.reduce_bucket", "deepspeed"},
                                           {"plan.overlap_reduce", "deepspeed"},
                                           {"plan.prefetch_bucket", "deepspeed"},
                                           {"plan.persistence_threshold", "deepspeed"},
                                           {"plan.max_live", "deepspeed"},
                                           {"plan.reuse_distance", "deepspeed"},
                                           {"plan.context_exchange", "megatron"},
                                           {"plan.recompute_modules", "megatron"},
                                           {"plan.router_type", "megatron"},
                                           {"plan.separate_ends", "torchtune"},
                                           {"plan.compiled_loss", "megatron"},
                                           {"plan.rope_fusion", "megatron"},
                                           {"plan.fp8_recipe", "megatron"},
                                           {"plan.fp8_weights", "megatron"},
                                           {"plan.fp8_swiglu_input", "megatron"},
                                           {"plan.amax_history", "megatron"},
                                           {"plan.bf16_first_layers", "megatron"},
                                           {"plan.bf16_last_layers", "megatron"}};

/// The default cross-entropy of a framework.
CrossEntropy default_cross_entropy(std::string_view framework) {
  if (framework == "megatron") return CrossEntropy::kInPlace;
  if (framework == "torchtune" || framework == "unsloth") return CrossEntropy::kFused;  // in chunks of tokens
  return CrossEntropy::kPlain;
}

}  // namespace

void set_parallel(const Settings& s, RunConfig& c) {
  c.run.parallel.data = u32(s, "parallel.data");
  c.run.parallel.tensor = u32(s, "parallel.tensor");
  c.run.parallel.pipeline = u32(s, "parallel.pipeline");
  c.run.parallel.zero = u32(s, "parallel.zero");
  MemoryPolicy& memory = c.run.memory;
  c.run.parallel.sequence = s.flag("parallel.sequence");
  c.run.parallel.context = u32(s, "parallel.context");
  c.run.parallel.expert = u32(s, "parallel.expert");
  c.run.parallel.virtual_stages = u32(s, "parallel.interleave");
  memory.vocab_multiple = u32(s, "parallel.vocab_multiple");
}

/// Keys of [plan] replace what train.precision and the optimizer imply, so this follows set_train(). Only
/// given keys replace anything: the defaults depend on other keys.
void set_plan(const Settings& s, RunConfig& c) {
  RunSpec& r = c.run;
  MemoryPolicy& memory = r.memory;
  if (s.text("plan.mode") == "inference") r.mode = RunMode::kInference;
  if (s.given("plan.weights")) {
    r.weight = parse_type(s.text("plan.weights"));
    r.master = r.weight == DType::kF32 || r.mode == RunMode::kInference ? DType::kNone : DType::kF32;
  }
  if (s.given("plan.gradients")) r.grad = parse_type(s.text("plan.gradients"));
  if (s.given("plan.master")) r.master = parse_type(s.text("plan.master"));
  if (s.given("plan.moments")) r.moment = parse_type(s.text("plan.moments"));
  if (s.text("plan.attention") == "materialised") memory.attention = AttentionMemory::kMaterialised;
  if (s.text("plan.cross_entropy") == "plain" || s.text("plan.cross_entropy") == "chunked")
    memory.cross_entropy = CrossEntropy::kPlain;
  if (s.text("plan.cross_entropy") == "in-place") memory.cross_entropy = CrossEntropy::kInPlace;
  if (s.text("plan.cross_entropy") == "liger") memory.cross_entropy = CrossEntropy::kLiger;
  if (s.text("plan.cross_entropy") == "cut") memory.cross_entropy = CrossEntropy::kCut;
  memory.weights_in = parse_tier(s, "plan.offload_weights");
  memory.optimizer_in = parse_tier(s, "plan.offload_optimizer");
  memory.activations_in = parse_tier(s, "plan.offload_activations");
  // Quantized weights do not make the cache narrower: inference software keeps it in 16 bits.
  if (s.given("plan.kv_cache"))
    memory.kv_cache = parse_type(s.text("plan.kv_cache"));
  else if (r.mode == RunMode::kInference && bits_of(r.weight) < 16)
    memory.kv_cache = DType::kBF16;
  memory.kv_page = u32(s, "plan.kv_page");
  if (s.given("plan.prefill_chunk")) memory.prefill_chunk = u32(s, "plan.prefill_chunk");
  if (s.given("plan.expert_tensor")) r.parallel.expert_tensor = u32(s, "plan.expert_tensor");
  if (s.given("plan.first_stage_layers")) r.parallel.first_stage_layers = u32(s, "plan.first_stage_layers");
  if (s.given("plan.last_stage_layers")) r.parallel.last_stage_layers = u32(s, "plan.last_stage_layers");
  if (s.given("plan.allocator_margin"))
    memory.gap_permille = static_cast<std::uint32_t>(std::lround(s.number("plan.allocator_margin") * 1000));
  if (s.given("plan.offload_gradients"))
    memory.gradients_in = parse_tier(s, "plan.offload_gradients");
  else if (s.text("plan.framework") == "deepspeed")
    memory.gradients_in = memory.optimizer_in;  // its CPU optimizer reads them there
}

/// Rules: no input of a quantized product has fewer columns than plan.int8_outliers says have outliers.
static void require_possible_outliers(const Settings& s, const RunConfig& c) {
  if (!s.given("plan.int8_outliers")) return;
  s.rule([&] {
    s.depends_on("lora.base");
    const ModelSpec& m = c.model;
    // Inputs: of q, k, v, gate and up; of the output projection; of the last product.
    const std::uint64_t columns =
        std::min({std::uint64_t{m.hidden}, m.q_width(), std::uint64_t{m.intermediate}});
    const auto given = static_cast<std::uint64_t>(s.integer("plan.int8_outliers"));
    if (columns != 0 && given > columns)
      throw usage_error(
          fmt::format("plan.int8_outliers = {}: the narrowest input of a product has {} columns", given,
                      columns),
          fmt::format("give 0 to {}", columns), s.where("plan.int8_outliers"));
  });
}

void set_framework(const Settings& s, RunConfig& c) {
  c.framework = s.given("plan.framework") ? s.text("plan.framework") : "";
  if (c.framework == "trainhost") c.framework.clear();
  std::map<std::string, std::string> options;
  for (const auto& [key_text, only_text] : kFrameworkKeys) {
    const char *key = key_text, *only = only_text;
    if (!s.given(key)) continue;
    s.rule([&] {
      s.depends_on("plan.framework");
      if (c.framework.empty())
        throw usage_error(fmt::format("{} is a setting of a framework, but plan.framework is not given", key),
                          "example: --for pytorch", s.where(key));
      if (*only && c.framework != only)
        throw usage_error(
            fmt::format("{} is a setting of {}, but plan.framework is {}", key, only, c.framework),
            fmt::format("leave it out, or plan with --for {}", only), s.where(key));
    });
    const std::string name = std::string(key).substr(5);
    const Type type = find_key(key)->type;
    options[name] = type == Type::kNumber    ? fmt::format("{}", s.number(key))
                    : type == Type::kSize    ? std::to_string(s.size(key).value())
                    : type == Type::kInteger ? std::to_string(s.integer(key))
                    : type == Type::kBool    ? (s.flag(key) ? "true" : "false")
                                             : s.text(key);
  }
  if (s.given("plan.fsdp_replicas"))
    s.rule([&] {
      s.depends_on("parallel.data");
      const auto replicas = static_cast<std::uint64_t>(s.integer("plan.fsdp_replicas"));
      const std::uint64_t ranks = c.run.parallel.data;
      if (replicas > 1 && (ranks % replicas || ranks == replicas))
        throw usage_error(
            fmt::format("plan.fsdp_replicas = {} does not divide the {} data-parallel ranks into groups that "
                        "shard the weights",
                        replicas, ranks),
            ranks == replicas ? "replicas of one rank each are DDP: parallel.zero = 0"
                              : "parallel.data is the product of replicas and ranks of each",
            s.where("plan.fsdp_replicas"));
    });
  if (s.text("plan.attention") == "flash_attention_2") {
    s.rule([&] {
      s.depends_on("plan.framework");
      if (c.framework.empty())
        throw usage_error(
            "plan.attention = \"flash_attention_2\" is a setting of transformers, but plan.framework is not "
            "given",
            "example: --for transformers", s.where("plan.attention"));
    });
    options["attention"] = "flash_attention_2";
  }
  require_possible_products(s, c);
  require_possible_outliers(s, c);
  if (const DevicePreset* device = find_device_preset(c.device);
      device && decides_workspaces(*device) && !c.framework.empty())
    options["compute_capability"] = std::to_string(device->capability);
  const std::string loss = s.text("plan.cross_entropy");
  s.rule([&] {
    s.depends_on("plan.framework");
    if (c.framework.empty() && (loss == "liger" || loss == "cut"))
      throw usage_error(
          fmt::format(
              "plan.cross_entropy = \"{}\" is a loss of other frameworks, but plan.framework is not given",
              loss),
          "example: --for transformers", s.where("plan.cross_entropy"));
  });
  const std::string version = s.given("plan.framework_version") ? s.text("plan.framework_version") : "";
  const bool flat = has_flat_parameters(
      c.framework, version,
      s.given("plan.fsdp_version") ? std::optional(s.integer("plan.fsdp_version")) : std::nullopt);
  c.run.memory.packed =
      packed_weights_of(c.framework, s.given("plan.quant_storage") ? s.text("plan.quant_storage") : "", flat);
  // The experts of transformers 4 are linear layers, as those of frameworks that stack none.
  const bool expert_modules = is_transformers_4(c.framework, version);
  set_quantized_base(
      expert_modules ? "transformers 4" : c.framework,
      s.given("plan.quant_experts") ? std::optional(s.flag("plan.quant_experts")) : std::nullopt, c.run);
  const MemoryPolicy& memory = c.run.memory;
  if (memory.prefill_chunk != 0) options["prefill_chunk"] = std::to_string(memory.prefill_chunk);
  if (memory.adapts_head) options["lora_head"] = "true";
  if (memory.adapts_embedding) options["lora_embedding"] = "true";
  if (memory.saves_head) options["saved_head"] = "true";
  if (memory.saves_embedding) options["saved_embedding"] = "true";
  // Given as 0 it replaces the default of a framework.
  if (s.given("lora.dropout") && !c.framework.empty())
    options["lora_dropout"] = fmt::format("{}", memory.lora_dropout);
  if (memory.gradients_in != Tier::kDevice) options["offload_gradients"] = offload_name(memory.gradients_in);
  if (c.framework.empty() && options.empty()) return;
  options["framework"] = c.framework.empty() ? "trainhost" : c.framework;
  if (c.framework.empty()) {
    c.plugin_options[""] = std::move(options);  // plugin::kFrameworkOptions
    return;
  }
  // In RunSpec too, where a default cannot be told from a value that was given.
  if (s.given("plan.cross_entropy"))
    options["cross_entropy"] = s.text("plan.cross_entropy");
  else
    c.run.memory.cross_entropy = default_cross_entropy(c.framework);
  c.plugin_options[""] = std::move(options);  // plugin::kFrameworkOptions
}
}  // namespace trainhost::runfile
