// Plugin `pytorch`: manifest, score and options. The training step of a plain PyTorch run (module of
// transformers, autocast, activation checkpointing, DDP, FSDP2 or DeepSpeed), of torchtitan, torchtune,
// litgpt and Megatron-LM by a replay of its allocations (core/frameworks). A value that no framework has is
// TH_E_ARG; a run that is not described is TH_E_UNSUPPORTED, and the host asks `transformer` instead. Next:
// settings.cpp, report.cpp.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/base/json_value.hpp"
#include "core/model/framework_release.hpp"
#include "plugins/estimators/common/model_match.hpp"
#include "plugins/estimators/common/options.hpp"
#include "plugins/estimators/pytorch/report.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(R"(
id = "pytorch"
version = "0.1.0"
kind = "estimator"
summary = "replay of a PyTorch training step and of its caching allocator"
families = ["deepseek_v2", "deepseek_v3", "gemma", "gemma2", "gemma3", "gemma3_text", "glm4", "gpt2", "gpt_neox", "gpt_oss", "granite", "llama",
  "mistral", "mixtral", "olmo2", "olmo3", "phi", "phi3", "qwen2", "qwen3", "qwen3_moe", "seed_oss", "smollm3"]
frameworks = ["pytorch", "transformers", "axolotl", "llama-factory", "fsdp2", "torchtitan", "torchtune", "litgpt",
  "deepspeed", "megatron", "unsloth"]
options = ["framework", "framework_version", "execution", "optimizer_implementation", "optimizer_in_backward",
  "checkpoint_reentrant", "liger_kernels", "adapter_kernels", "quant_storage", "quant_compute", "norms", "quant_experts", "method", "reference_model", "keep_logits", "int8_outliers",
  "optimizer_paged", "allocator", "runtime", "cross_entropy", "fsdp_version", "backward_prefetch",
  "forward_prefetch", "use_orig_params", "float8_gather", "fsdp_replicas", "selective_layers", "no_sync", "ddp_bucket", "gradient_as_bucket_view", "reduce_bucket",
  "overlap_reduce", "prefetch_bucket", "persistence_threshold", "max_live", "reuse_distance", "expert_tensor", "first_stage_layers",
  "last_stage_layers", "offload_gradients", "lora_head", "saved_head", "saved_embedding", "lora_embedding", "lora_dropout", "context_exchange",
  "recompute_modules", "router_type", "separate_ends", "compiled_loss", "rope_fusion", "fp8_recipe", "fp8_weights", "fp8_swiglu_input", "amax_history", "bf16_first_layers", "bf16_last_layers",
  "compute_capability", "attention"]
priority = 80
)");

namespace trainhost {
namespace {

constexpr std::int32_t kReplay = 900;  // between closed forms (500) and a placed program (1000)
constexpr const char* kId = "pytorch";

std::int32_t match(const th_model* m, const th_run* r) {
  try {
    if (!m || !r || !TH_HAS(m, th_model, family) || !m->family) return 0;
    // Runs that are not described get a sentence from estimate().
    const bool known = frameworks::has_builder(m->family) ||
                       frameworks::has_builder(m->family, frameworks::ModelSource::kLitgpt) ||
                       frameworks::has_builder(m->family, frameworks::ModelSource::kTorchtune) ||
                       frameworks::has_builder(m->family, frameworks::ModelSource::kTorchtitan) ||
                       frameworks::has_builder(m->family, frameworks::ModelSource::kMegatron);
    return known ? kReplay : 0;
  } catch (...) {
    return 0;
  }
}

/// TrainingArguments of transformers 5, which axolotl and LLaMA-Factory use too, has optim =
/// "adamw_torch_fused", and so has torchtitan; torch.optim takes foreach on a GPU.
frameworks::OptimizerLoop usual_loop(const rules::Options& given) {
  // Not validated here: options_of() has done so.
  const std::string framework = given.text("framework").value_or("pytorch");
  const bool own_loop = framework == "pytorch" || framework == "fsdp2" || framework == "litgpt";
  return own_loop ? frameworks::OptimizerLoop::kForeach : frameworks::OptimizerLoop::kFused;
}

/// A wrong value is a mistake of the caller, unlike a run that is not described.
frameworks::AllocatorConfig allocator_of(const std::string& text) {
  try {
    return frameworks::parse_allocator_config(text);
  } catch (const Error& e) {
    throw abi::StatusError(TH_E_ARG, e.what(), e.hint());
  }
}

/// Settings that only the closed form plans.
void reject_settings_of_the_closed_form(const rules::Options& given, const std::string& framework) {
  const auto refuse = [](const std::string& what) {
    throw usage_error("the estimator 'pytorch' does not describe " + what);
  };
  for (const char* key : {"first_stage_layers", "last_stage_layers"})
    if (given.text(key) && framework != "megatron")
      refuse("plan." + std::string(key) + ": stages with a given number of layers");
  if (given.number("expert_tensor", 1, 1 << 20).value_or(1) > 1 && framework != "megatron")
    refuse("plan.expert_tensor: experts with tensor parallelism");
  if (given.flag("lora_head", false)) refuse("adapters of the LM head");
  if (given.flag("lora_embedding", false)) refuse("adapters of the embedding");
  if (given.flag("saved_head", false) || given.flag("saved_embedding", false))
    refuse("modules that are trained whole beside adapters");
  const bool offloads = given.word("offload_gradients", {"none", "cpu", "nvme"}).value_or("none") != "none";
  constexpr std::string_view kWithHostMemory[] = {"deepspeed", "torchtune", "transformers", "fsdp2",
                                                  "llama-factory"};
  if (offloads && std::ranges::find(kWithHostMemory, framework) == std::end(kWithHostMemory))
    refuse("gradients in host memory (plan.offload_gradients)");
}

pytorch::TorchtitanVersion version_of(const rules::Options& given) {
  const auto index = given.choice("framework_version", {"0.0", "0.1", "0.2", "0.2.0"});
  return index ? pytorch::TorchtitanVersion(*index) : pytorch::TorchtitanVersion::k02;
}

void set_torchtune_release(const rules::Options& given, pytorch::Options& o) {
  const auto index = given.choice("framework_version", {"0.2", "0.4"});
  o.moved_logits = index == 0u;
  o.torch_of_2024 = index == 1u;
}

void set_data_parallel_options(const rules::Options& given, pytorch::Options& o) {
  o.by_accelerate = o.name == "transformers" || o.name == "llama-factory";
  // The Trainer of transformers reduces in the last micro-batch only; a loop by hand reduces in each.
  o.no_sync = given.flag("no_sync", o.by_accelerate);
  const auto version = given.number("fsdp_version", 1, 2);
  if (version && !o.by_accelerate && o.name != "axolotl")
    throw abi::StatusError(TH_E_ARG, "plan.fsdp_version of " + o.name + ": it is a setting of transformers",
                           "leave it out");
  o.flat_parameters = has_flat_parameters(o.name, given.text("framework_version").value_or(""),
                                          version ? std::optional(std::int64_t(*version)) : std::nullopt);
  if (const auto storage = given.choice("quant_storage", {"uint8", "compute"}))
    o.packed_as_bytes = *storage == 0;
  o.f32_norms = given.choice("norms", {"fp32"}).has_value();
  if (const auto type = given.choice("quant_compute", {"bf16", "fp16"}))
    o.product_type = *type == 0 ? frameworks::Element::kBF16 : frameworks::Element::kF16;
  o.quantizes_experts = given.flag("quant_experts", false);
  o.prefers = given.choice("method", {"sft", "dpo"}) == 1;
  o.reference = given.flag("reference_model", true);
  const bool trains_transformers = o.by_accelerate || o.name == "axolotl" || o.name == "pytorch" ||
                                   o.name == "deepspeed" || o.name == "fsdp2";
  if (o.prefers && !trains_transformers)
    throw abi::StatusError(TH_E_ARG, "plan.method = \"dpo\" of " + o.name + ": its loss is not described",
                           "plan with --for transformers, axolotl or llama-factory");
  constexpr double kMostColumns = 1 << 20;
  if (const auto outliers = given.number("int8_outliers", 0, kMostColumns))
    o.int8_outliers = static_cast<std::uint32_t>(*outliers);
  for (const char* key : {"backward_prefetch", "forward_prefetch", "use_orig_params"})
    if (given.text(key) && !o.flat_parameters)
      throw abi::StatusError(TH_E_ARG,
                             "plan." + std::string(key) + " of " + o.name + ": it is a setting of FSDP1",
                             "set plan.fsdp_version = 1, or leave it out");
  for (const char* key :
       {"fsdp_version", "backward_prefetch", "forward_prefetch", "use_orig_params", "no_sync"})
    if (given.text(key)) o.fsdp_keys.push_back("plan." + std::string(key));
  for (const char* key : {"ddp_bucket", "gradient_as_bucket_view"})
    if (given.text(key)) o.ddp_keys.push_back("plan." + std::string(key));
  if (const auto prefetch = given.choice("backward_prefetch", {"none", "pre", "post"}))
    o.backward_prefetch = frameworks::BackwardPrefetch(*prefetch);
  o.forward_prefetch = given.flag("forward_prefetch", false);
  o.original_parameters = given.flag("use_orig_params", true);
  o.ddp_bucket = given.count("ddp_bucket").value_or(o.ddp_bucket);
  o.gradient_as_bucket_view = given.flag("gradient_as_bucket_view", false);
}

/// A wrong value is a mistake of the caller.
frameworks::TransformersRelease release_of(const std::string& version) {
  try {
    return pytorch::transformers_release(version);
  } catch (const Error& e) {
    throw abi::StatusError(TH_E_ARG, e.what(), e.hint());
  }
}

/// use_reentrant of torch.utils.checkpoint, with which the modules of transformers are recomputed.
void set_checkpoint_options(const rules::Options& given, pytorch::Options& o) {
  if (!given.text("checkpoint_reentrant")) return;
  using pytorch::Framework;
  if (o.framework != Framework::kPlain && o.framework != Framework::kFsdp2 &&
      o.framework != Framework::kDeepSpeed)
    throw abi::StatusError(TH_E_ARG,
                           "plan.checkpoint_reentrant of " + o.name +
                               ": it is a setting of models of transformers, and " + o.name +
                               " has models of its own",
                           "leave it out");
  o.reentrant = given.flag("checkpoint_reentrant", false);
  if (o.name == "unsloth" && !*o.reentrant)
    throw abi::StatusError(TH_E_ARG,
                           "plan.checkpoint_reentrant = false: the checkpoints of Unsloth are reentrant, "
                           "whatever its arguments say",
                           "leave it out");
}

/// The package flash-attn, in modules of transformers. Unsloth has its own attention.
void set_attention_options(const rules::Options& given, pytorch::Options& o) {
  using pytorch::Framework;
  const bool own_modules = o.framework != Framework::kPlain && o.framework != Framework::kFsdp2 &&
                           o.framework != Framework::kDeepSpeed;
  if (o.f32_norms && (own_modules || o.name == "unsloth"))
    throw abi::StatusError(
        TH_E_ARG, "plan.norms = \"fp32\" of " + o.name + ": it is a setting of models of transformers",
        "leave it out");
  if (given.word("attention", {"flash", "flash_attention_2", "materialised"}) != "flash_attention_2") return;
  if (own_modules)
    throw abi::StatusError(
        TH_E_ARG,
        "plan.attention = \"flash_attention_2\" of " + o.name + ": it is a setting of models of transformers",
        "set it to \"flash\"");
  o.flash_attention_2 = o.name != "unsloth";
}

/// text: names separated by commas, each of which switches a kernel on.
void switch_on(const std::string& key, const std::string& text,
               std::initializer_list<std::pair<std::string_view, bool*>> kernels,
               const std::string& what = "kernels") {
  for (std::size_t begin = 0, end; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find(',', begin), text.size());
    // "moe_act, layernorm": spaces separate nothing.
    const std::size_t first = std::min(text.find_first_not_of(' ', begin), end);
    std::size_t behind = end;
    while (behind > first && text[behind - 1] == ' ') --behind;
    const std::string name = text.substr(first, behind - first);
    const auto* kernel = std::ranges::find(kernels, name, &std::pair<std::string_view, bool*>::first);
    if (kernel == kernels.end()) {
      std::string names;
      for (const auto& [other, on] : kernels) names += std::string(other) + ", ";
      throw abi::StatusError(TH_E_ARG, "plan." + key + ": '" + name + "' is none of its " + what,
                             names + "separated by commas" + (what == "kernels" ? ", or none" : ""));
    }
    *kernel->second = true;
  }
}

/// Kernels of Liger, as TrainingArguments switch them on (use_liger_kernel): all of them, unless they are
/// named. axolotl has a key for each.
void set_liger_options(const rules::Options& given, const std::optional<std::string>& loss,
                       pytorch::Options& o) {
  o.liger.loss = loss == "liger";
  const auto text = given.text("liger_kernels");
  if (text && o.framework != pytorch::Framework::kPlain && o.framework != pytorch::Framework::kDeepSpeed)
    throw abi::StatusError(
        TH_E_ARG,
        "plan.liger_kernels of " + o.name +
            ": they are replayed for models of transformers, on one device or as accelerate or "
            "DeepSpeed shards them",
        "leave it out");
  const bool usual = o.liger.loss && o.name != "axolotl";
  o.liger.rotary = o.liger.norms = o.liger.swiglu = usual && !text;
  if (!text || *text == "none") return;
  switch_on("liger_kernels", *text,
            {{"rope", &o.liger.rotary}, {"rms_norm", &o.liger.norms}, {"swiglu", &o.liger.swiglu}});
}

/// Kernels of axolotl for adapters. It switches all of them on by itself.
void set_adapter_kernel_options(const rules::Options& given, pytorch::Options& o) {
  const auto text = given.text("adapter_kernels");
  frameworks::AdapterKernels& k = o.adapter_kernels;
  k.mlp = k.qkv = k.output = o.name == "axolotl" && !text;
  if (!text) return;
  if (o.name != "axolotl")
    throw abi::StatusError(TH_E_ARG, "plan.adapter_kernels of " + o.name + ": they are kernels of axolotl",
                           "leave it out");
  o.adapter_kernels_given = true;
  if (*text == "none") return;
  switch_on("adapter_kernels", *text, {{"mlp", &k.mlp}, {"qkv", &k.qkv}, {"o", &k.output}});
}

/// Modules that selective recomputation of Megatron-LM recomputes.
void set_module_options(const rules::Options& given, pytorch::Options& o) {
  const auto text = given.text("recompute_modules");
  if (!text) return;
  o.modules_given = true;
  o.recomputes_attention = false;
  frameworks::RecomputedModules& m = o.recomputed;
  switch_on("recompute_modules", *text,
            {{"core_attn", &o.recomputes_attention},
             {"moe_act", &m.activation},
             {"layernorm", &m.norms},
             {"mla_up_proj", &m.up_projections},
             {"mlp", &m.mlp},
             {"moe", &m.experts},
             {"shared_experts", &m.shared_expert}},
            "modules");
}

/// Products of Megatron-LM in 8 or 4 bits. compute_capability: of memory.device, from the host.
void set_product_options(const rules::Options& given, pytorch::Options& o) {
  using frameworks::ProductRecipe;
  frameworks::ProductPolicy& p = o.products;
  const auto integer = [&](const char* key, double least, std::uint32_t otherwise) {
    const std::optional<double> n = given.number(key, least, 1 << 20);
    return n ? static_cast<std::uint32_t>(*n) : otherwise;
  };
  if (const auto recipe =
          given.choice("fp8_recipe", {"delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"}))
    p.recipe = ProductRecipe(*recipe + 1);
  p.weights = given.flag("fp8_weights", false);
  p.swiglu_input = given.flag("fp8_swiglu_input", false);
  p.amax_history = integer("amax_history", 1, 1);
  p.bf16_first = integer("bf16_first_layers", 0, 0);
  p.bf16_last = integer("bf16_last_layers", 0, 0);
  constexpr std::uint32_t kHopper = 90, kBlackwell = 100;
  const bool newest = p.recipe == ProductRecipe::kMxfp8 || p.recipe == ProductRecipe::kNvfp4;
  o.capability_given = given.text("compute_capability").has_value();
  p.capability = integer("compute_capability", 0, newest ? kBlackwell : kHopper);
}

pytorch::Options options_of(const th_host* host) {
  using frameworks::OptimizerLoop;
  const rules::Options given(host, kId);
  pytorch::Options o;
  // Rejects any other value.
  const std::string framework =
      given
          .word("framework", {"pytorch", "transformers", "axolotl", "llama-factory", "fsdp2", "torchtitan",
                              "torchtune", "litgpt", "deepspeed", "megatron", "unsloth"})
          .value_or("pytorch");
  o.name = framework;
  reject_settings_of_the_closed_form(given, framework);
  o.offload_gradients = given.text("offload_gradients").value_or("none") != "none";
  set_data_parallel_options(given, o);
  o.lora_dropout = given.number("lora_dropout", 0, 0.99);
  if (framework == "fsdp2") o.framework = pytorch::Framework::kFsdp2;
  if (framework == "torchtitan") o.framework = pytorch::Framework::kTorchtitan;
  if (framework == "litgpt") o.framework = pytorch::Framework::kLitgpt;
  if (framework == "deepspeed") o.framework = pytorch::Framework::kDeepSpeed;
  if (framework == "megatron") o.framework = pytorch::Framework::kMegatron;
  const bool titan = framework == "torchtitan", tune = framework == "torchtune";
  if (titan)
    o.version = version_of(given);
  else if (tune)
    set_torchtune_release(given, o);
  else if (framework == "litgpt") {
    if (const auto index = given.choice("framework_version", {"2023", "0.4", "0.5"}))
      o.litgpt_release = pytorch::LitgptRelease(*index);
  } else if (framework == "llama-factory")
    o.trainer_loss = given.choice("framework_version", {"v1"}).has_value();
  else if (framework == "transformers") {
    if (const auto version = given.text("framework_version"))
      o.release_name = *version, o.release = release_of(*version);
  } else if (const auto version = given.text("framework_version"))
    throw abi::StatusError(TH_E_ARG,
                           "plan.framework_version = \"" + *version + "\": one release of " + framework +
                               " is described, and several of litgpt, llama-factory, torchtitan, torchtune "
                               "and transformers only",
                           "leave it out");
  // The configurations of torchtune 0.2 have torch.optim.AdamW without `fused`.
  o.loop = o.version == pytorch::TorchtitanVersion::k00 || o.moved_logits ? OptimizerLoop::kForeach
                                                                          : usual_loop(given);
  // optim = "adamw_torch" was the default of TrainingArguments before 4.54.
  if (o.release >= frameworks::TransformersRelease::k452) o.loop = OptimizerLoop::kForeach;
  // Settings that one framework has are refused for the others, with a message that names it.
  o.compile = given.word("execution", {"eager", "compile"}) == "compile";
  o.float8_gather = given.flag("float8_gather", true);
  o.fsdp_replicas = static_cast<std::uint32_t>(given.number("fsdp_replicas", 1, 65536).value_or(1));
  o.selective_layers = static_cast<std::uint32_t>(given.number("selective_layers", 1, 65536).value_or(0));
  const auto loss = given.word("cross_entropy", {"fused", "plain", "in-place", "chunked", "liger", "cut"});
  // 0.0 turned the compilation of the loss off. "fused" without compiled layers: compile.components =
  // ["loss"].
  o.compiles_loss =
      titan && (loss ? loss == "fused" : o.compile && o.version != pytorch::TorchtitanVersion::k00);
  o.update_in_backward = given.flag("optimizer_in_backward", false);
  o.paged_optimizer = given.flag("optimizer_paged", false);
  if (tune) {
    o.framework = pytorch::Framework::kTorchtune;
    o.allocator.expandable_segments = !o.moved_logits && !o.torch_of_2024;  // as importing it since June 2025
    if (o.moved_logits && loss && loss != "plain")
      throw usage_error("torchtune 0.2 has no plan.cross_entropy = \"" + *loss +
                        "\": its losses in chunks began with 0.3");
    o.loss = o.moved_logits      ? frameworks::LossKind::kMovedLogits
             : loss == "plain"   ? frameworks::LossKind::kPlain
             : loss == "chunked" ? frameworks::LossKind::kChunkedLogits
                                 : frameworks::LossKind::kChunkedHead;
  } else if (o.update_in_backward) {
    throw usage_error("the estimator 'pytorch' does not describe plan.optimizer_in_backward of " + framework +
                      ": it is replayed for torchtune only");
  }
  if (framework == "axolotl") o.allocator.expandable_segments = true;  // its command sets the variable
  const bool unsloth = framework == "unsloth";
  // As importing unsloth_zoo does.
  if (unsloth)
    o.allocator =
        allocator_of("expandable_segments:True,roundup_power2_divisions:[32:256,64:128,256:64,>:32]");
  if (unsloth && loss && loss != "fused")
    throw usage_error("the estimator 'pytorch' does not describe plan.cross_entropy = \"" + *loss +
                      "\" of unsloth: its own loss computes the head in chunks of tokens");
  if (loss == "chunked" && !tune)
    throw usage_error("the estimator 'pytorch' does not describe plan.cross_entropy = \"chunked\" of " +
                      framework + ": it is a loss of torchtune");
  set_liger_options(given, loss, o);
  set_adapter_kernel_options(given, o);
  o.cut_loss = loss == "cut";
  if (const auto until = given.choice("keep_logits", {"backward", "loop"}))
    o.kept_logits = frameworks::KeptLogits(*until + 1);
  const bool sharded_liger = loss == "liger" && o.framework == pytorch::Framework::kDeepSpeed;
  if ((o.cut_loss || loss == "liger") && o.framework != pytorch::Framework::kPlain && !sharded_liger)
    throw usage_error("the estimator 'pytorch' does not describe plan.cross_entropy = \"" + *loss + "\" of " +
                      framework + ": it is replayed " +
                      (o.cut_loss ? "without sharding only"
                                  : "on one device, and as accelerate or DeepSpeed shards models"));
  o.tiled_loss = loss == "fused" && (framework == "transformers" || framework == "deepspeed");
  if (loss == "fused" && !tune && !unsloth && !o.compiles_loss && !o.tiled_loss)
    throw usage_error("the estimator 'pytorch' does not describe plan.cross_entropy = \"fused\" of " +
                      framework +
                      ": its loss materialises logits and gradient. \"fused\" of transformers and deepspeed "
                      "is the loss of TRL, "
                      "and "
                      "\"liger\" that of Liger");
  if (const auto loop = given.choice("optimizer_implementation", {"foreach", "fused", "for-loop"}))
    o.loop = std::array{OptimizerLoop::kForeach, OptimizerLoop::kFused, OptimizerLoop::kForLoop}[*loop];
  if (const auto text = given.text("allocator")) o.allocator = allocator_of(*text), o.allocator_given = true;
  if (const auto exchange = given.choice("context_exchange", {"p2p", "a2a"})) o.context_ring = *exchange == 0;
  if (const auto type = given.choice("router_type", {"fp32", "bf16"})) o.router_in_f32 = *type == 0;
  o.compiled_loss = given.flag("compiled_loss", false);
  o.separate_ends = given.flag("separate_ends", false);
  o.fused_rotation = given.flag("rope_fusion", true);
  set_module_options(given, o);
  const auto whole = [&](const char* key) {
    return static_cast<std::uint32_t>(given.number(key, 1, 1 << 20).value_or(0));
  };
  o.first_stage_layers = whole("first_stage_layers"), o.last_stage_layers = whole("last_stage_layers");
  o.expert_tensor = whole("expert_tensor");
  set_product_options(given, o);
  // 0: what transformers takes for "auto". count() accepts positive numbers only.
  if (given.text("reduce_bucket") == "0")
    o.reduce_bucket.reset();
  else if (const auto elements = given.count("reduce_bucket"))
    o.reduce_bucket = elements;
  o.overlap_reduce = given.flag("overlap_reduce", false);
  set_attention_options(given, o);
  set_checkpoint_options(given, o);
  // -1: what transformers takes for "auto".
  const auto elements_of = [&](const char* key, std::optional<std::uint64_t> otherwise) {
    const std::optional<double> given_elements = given.number(key, -1, 1e15);
    if (!given_elements) return otherwise;
    return *given_elements < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(*given_elements));
  };
  o.prefetch = elements_of("prefetch_bucket", o.prefetch);
  o.persistence = elements_of("persistence_threshold", o.persistence);
  o.max_live = elements_of("max_live", o.max_live).value_or(o.max_live);
  o.reuse_distance = elements_of("reuse_distance", o.reuse_distance).value_or(o.reuse_distance);
  // Set by the host for variations of a run; bytes that do not fit need not be exact then.
  o.only_if_it_fits = given.flag("only_if_it_fits", false);
  o.verdict_only = given.flag("verdict_only", false);
  o.upper_bounds = !given.flag("without_upper_bounds", false);
  if (const auto bytes = given.count("runtime")) o.runtime = *bytes, o.runtime_given = true;
  return o;
}

/// transformers trains GPT-2 and Seed-OSS with dropout unless their config.json says otherwise; the other
/// families have none. Presets of GPT-2 are planned without.
double dropout_of(const ModelSpec& m) {
  constexpr double kOfSeed = 0.1;  // attention_dropout and residual_dropout of SeedOssConfig
  if (m.family == "seed_oss") {
    if (m.config_json.empty()) return kOfSeed;
    const JsonValue config = parse_json(m.config_json);
    double p = 0;
    for (const char* key : {"attention_dropout", "residual_dropout"}) {
      const JsonValue* given = config.find(key);
      p = std::max(p, given ? given->number : kOfSeed);
    }
    return p;
  }
  if (m.family != "gpt2" || m.config_json.empty()) return 0;
  constexpr double kDefault = 0.1;
  const JsonValue config = parse_json(m.config_json);
  double p = 0;
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    const JsonValue* given = config.find(key);
    p = std::max(p, given ? given->number : kDefault);
  }
  return p;
}

th_status estimate(const th_host* host, const th_model* m, const th_run* r, const th_profile*,
                   th_mem_sink* sink, th_mem_summary* summary, th_error* error) {
  return abi::guard(error, [&] {
    abi::require_arguments(m, r, sink);
    RunSpec alike = abi::from_c(*r);
    alike.lora_rules.clear();  // step_settings() reads them
    rules::require_all_weights_trained(alike, kId);
    const ModelSpec model = abi::from_c(*m);
    pytorch::Options options = options_of(host);
    options.dropout = dropout_of(model);
    RunSpec run = abi::from_c(*r);
    // The launcher of LLaMA-Factory sets it where it starts torchrun.
    if (options.name == "llama-factory" && run.parallel.data > 1 && !options.allocator_given)
      options.allocator.expandable_segments = true;
    run.parallel.expert_tensor = options.expert_tensor;
    run.parallel.first_stage_layers = options.first_stage_layers;
    run.parallel.last_stage_layers = options.last_stage_layers;
    const MemoryReport report = pytorch::report(model::from_model(model), run, options);
    abi::send_report(report, sink, summary);
  });
}

constexpr th_estimator kTable{sizeof(th_estimator), 0, &match, &estimate};

}  // namespace
}  // namespace trainhost

TH_PLUGIN("pytorch", "0.1.0", &trainhost::kTable)
