// Plugin `transformer`: approximation for every known decoder under any parallelism. Reports the memory
// breakdown of the pipeline stage that needs most (core/parallel), with one note per stage. Where a step
// program exists, `llama` is exact and has a higher score.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>
#include <optional>

#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/model/framework_release.hpp"
#include "core/parallel/rank_memory.hpp"
#include "core/placement/memory_plan.hpp"
#include "plugins/estimators/common/model_match.hpp"
#include "plugins/estimators/common/options.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(R"(
id = "transformer"
version = "0.1.0"
kind = "estimator"
summary = "closed form for any known decoder under any parallelism"
families = ["baichuan", "cohere", "cohere2", "deepseek", "deepseek_v2", "deepseek_v3", "ernie4_5", "ernie4_5_moe",
  "falcon", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "gpt2",
  "gpt_neox", "gpt_oss", "granite", "granitemoe", "granitemoehybrid", "granitemoeshared", "hunyuan_v1_dense",
  "hunyuan_v1_moe", "internlm2", "kimi_k2", "kimi_k25", "kimi_linear", "lfm2", "lfm2_moe", "lfm2_vl", "llama", "llama4", "llama4_text", "minimax_m2", "ministral",
  "ministral3", "mistral", "mistral3", "mistral4", "mixtral", "mpt", "nemotron", "nemotron_h", "olmo", "olmo2",
  "olmo3", "opt", "phi", "phi3", "phimoe", "qwen2", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl",
  "qwen2_vl_text", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next",
  "qwen3_vl", "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_vl_text", "seed_oss", "smollm3", "stablelm", "starcoder2"]
frameworks = ["trainhost", "pytorch", "transformers", "fsdp2", "deepspeed", "megatron", "torchtitan", "torchtune",
  "litgpt", "axolotl", "llama-factory", "unsloth"]
options = ["framework", "runtime", "cross_entropy", "offload_gradients", "expert_tensor", "first_stage_layers", "last_stage_layers",
  "prefill_chunk", "allocator_margin", "lora_head", "lora_embedding",
  "saved_head", "saved_embedding", "quant_storage", "norms", "quant_experts", "framework_version", "method", "reference_model", "fsdp_version",
  "fsdp_replicas", "lora_dropout", "attention"]
priority = 50
)");

namespace trainhost {
namespace {

constexpr const char* kOwn = "trainhost";
constexpr std::array<const char*, 12> kFrameworks = {kOwn,        "pytorch",  "transformers",  "fsdp2",
                                                     "deepspeed", "megatron", "torchtitan",    "torchtune",
                                                     "litgpt",    "axolotl",  "llama-factory", "unsloth"};
constexpr std::int32_t kTensorByTensor = 500;  // between a rule of thumb (100) and a placed program (1000)

/// Settings that th_run does not have.
void read_settings(const rules::Options& given, RunSpec& r) {
  constexpr double kMost = 1 << 30;
  const auto whole = [&](const char* key) { return std::uint32_t(given.number(key, 0, kMost).value_or(0)); };
  r.parallel.expert_tensor = whole("expert_tensor");
  r.parallel.first_stage_layers = whole("first_stage_layers");
  r.parallel.last_stage_layers = whole("last_stage_layers");
  r.memory.prefill_chunk = whole("prefill_chunk");
  r.memory.adapts_head = given.flag("lora_head", false);
  r.memory.adapts_embedding = given.flag("lora_embedding", false);
  r.memory.saves_head = given.flag("saved_head", false);
  r.memory.saves_embedding = given.flag("saved_embedding", false);
  const auto framework = given.word("framework", {kFrameworks.begin(), kFrameworks.end()});
  const auto storage = given.word("quant_storage", {"uint8", "compute"});
  const std::string version = given.text("framework_version").value_or("");
  const auto fsdp = given.number("fsdp_version", 1, 2);
  r.memory.packed =
      packed_weights_of(framework.value_or(""), storage.value_or(""),
                        has_flat_parameters(framework.value_or(""), version,
                                            fsdp ? std::optional(std::int64_t(*fsdp)) : std::nullopt));
  // Each replica shards over a part of the data ranks. The host has checked that they are equal parts.
  if (const auto replicas = given.number("fsdp_replicas", 1, 65536))
    r.parallel.data = std::max(1u, r.parallel.data / static_cast<std::uint32_t>(*replicas));
  const bool experts = given.flag("quant_experts", false);
  // Numbers of releases are checked by the estimator that describes them; words are never one, and throw
  // here.
  if (version.find_first_not_of("0123456789.") != version.npos)
    given.word("framework_version", {"0.0", "0.1", "0.2", "0.4", "4.57", "5", "v1"});
  // As the host does for a plan (core/runfile/planned_settings.cpp).
  const bool expert_modules = is_transformers_4(framework.value_or(""), version);
  set_quantized_base(expert_modules ? "transformers 4" : framework.value_or(""),
                     given.text("quant_experts") ? std::optional(experts) : std::nullopt, r);
  // These change nothing here; other words are refused.
  given.word("attention", {"flash", "flash_attention_2", "materialised"});
  given.word("norms", {"fp32"});
  if (const auto dropout = given.number("lora_dropout", 0, 0.99)) r.memory.lora_dropout = *dropout;
  if (const auto margin = given.number("allocator_margin", 0, 10))
    r.memory.gap_permille = static_cast<std::uint32_t>(std::lround(*margin * 1000));
  if (const auto tier = given.word("offload_gradients", {"none", "cpu", "nvme"}))
    r.memory.gradients_in = tier_of_offload_name(*tier).value();
  // A micro-batch of DPO counts pairs.
  if (given.word("method", {"sft", "dpo"}) == "dpo") {
    if (r.micro_batch > std::numeric_limits<std::uint32_t>::max() / 2)
      throw usage_error("train.micro_batch = " + std::to_string(r.micro_batch) +
                        ": DPO has two sequences per pair");
    r.micro_batch *= 2;
  }
  const auto loss = given.word("cross_entropy", {"fused", "plain", "in-place", "chunked", "liger", "cut"});
  if (loss == "liger") r.memory.cross_entropy = CrossEntropy::kLiger;
  if (loss == "cut") r.memory.cross_entropy = CrossEntropy::kCut;
  // Both compute the loss with the head and keep no logits, which DPO needs.
  if (given.text("method") == "dpo" && (loss == "liger" || loss == "cut"))
    r.memory.cross_entropy = CrossEntropy::kPlain;
}

std::int32_t match(const th_model* m, const th_run* r) {
  return rules::guard_match(kTensorByTensor, [&] {
    if (!m || !r) return 0;
    return TH_HAS(m, th_model, family) && m->family && model::known_family(m->family) ? kTensorByTensor : 0;
  });
}

std::string percent(std::uint64_t ours, std::uint64_t truth) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", 100.0 * (double(ours) - double(truth)) / double(truth));
  return text;
}

/// Building and placing one layer of a step program takes about 30 microseconds; with 16 layers the
/// comparison costs half a millisecond.
constexpr std::uint32_t kLayersCompared = 16;

/// Arena bytes of the step program in the compute tier; nullopt where the model has too many layers or the
/// program cannot be built: a note must not make the estimate fail.
std::optional<std::uint64_t> placed_bytes(const ModelSpec& m, const RunSpec& run,
                                          const TrainerTraits* traits) {
  if (m.layers > kLayersCompared) return std::nullopt;
  try {
    return placement::place(step::build_program(m, run, traits ? *traits : TrainerTraits{})).arena_bytes;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Adds a note with the exact plan, where a step program exists.
void compare_with_program(MemoryReport& r, const ModelSpec& m, const RunSpec& run,
                          const TrainerTraits* traits) {
  if (!trains_by_program(m, run)) return;
  const std::optional<std::uint64_t> truth = placed_bytes(m, run, traits);
  std::string note = "The estimator 'llama' plans this run exactly";
  if (traits && !traits->mode.empty() && traits->mode != "resident") {
    note += ", in the trainer's mode " + traits->mode;
    if (truth) note += ": " + format_bytes(*truth) + " in the compute tier";
    note += ". This estimate keeps everything on the device.";
  } else {
    if (truth) {
      const std::uint64_t ours = r.total_bytes() - r.component_bytes(Component::kRuntime);
      note += ": " + format_bytes(*truth) + "; this estimate without a device's runtime is " +
              format_bytes(ours) + " (" + percent(ours, *truth) + ")";
    }
    note +=
        ". This estimate does not model the trainer's order of operations, chunked logits or shared buffers.";
  }
  r.notes.push_back(std::move(note));
}

/// For a trainer whose arena is in host memory: entries of the device move to the host; entries of the device
/// runtime and of allocator gaps are removed (there is no device, and the arena is placed before the run).
void move_to_host(MemoryReport& r) {
  std::vector<MemoryEntry> kept;
  for (MemoryEntry& n : r.entries) {
    if (n.component == Component::kRuntime || n.component == Component::kFragmentation) continue;
    if (n.tier == Tier::kDevice || n.tier == Tier::kPinned) n.tier = Tier::kHost;
    n.id = static_cast<std::uint32_t>(kept.size() + 1);
    kept.push_back(std::move(n));
  }
  r.entries = std::move(kept);
  std::uint64_t host = 0, disk = 0;
  for (const MemoryEntry& n : r.entries) {
    std::uint64_t& sum = n.tier == Tier::kDisk ? disk : host;
    sum = checked_add(sum, n.at_peak(), "the memory of one rank");
  }
  const Phase peak = r.tiers.empty() ? kBackward : r.tiers.front().peak_at;
  r.tiers.clear();
  r.tiers.push_back({Tier::kHost, host, peak});
  if (disk) r.tiers.push_back({Tier::kDisk, disk, peak});
}

/// Adds the second model of DPO: as many weights as the policy has, in the same type and on the same device.
void add_reference_model(MemoryReport& r, const RunSpec& run) {
  if (trains_adapters(run)) return r.notes.push_back("DPO: the reference is the model without its adapters.");
  std::vector<MemoryEntry> copies;
  for (const MemoryEntry& n : r.entries)
    if (n.component == Component::kWeights) copies.push_back(n);
  for (MemoryEntry& n : copies) {
    n.id = static_cast<std::uint32_t>(r.entries.size() + 1);
    n.name = "reference model, " + n.name;
    for (TierPeak& t : r.tiers)
      if (t.tier == n.tier) t.bytes = checked_add(t.bytes, n.at_peak(), "the memory of one rank");
    r.entries.push_back(std::move(n));
  }
  r.notes.push_back("DPO: the reference is a second model in the type of the first.");
}

/// Replaces the constant for the device's runtime. Bytes.
void set_runtime(MemoryReport& r, std::uint64_t bytes) {
  for (MemoryEntry& n : r.entries) {
    if (n.component != Component::kRuntime) continue;
    const std::uint64_t before = n.at_peak();
    n.bytes = n.lo = n.hi = n.bytes_at_peak = bytes;
    for (TierPeak& t : r.tiers)
      if (t.tier == n.tier) t.bytes = checked_add(t.bytes - before, bytes, "the memory of one rank");
  }
}

/// Frameworks that train with torch.optim on the model's own parameters. The others keep 16-bit weights
/// beside f32 ones.
bool trains_with_torch_optim(const std::string& framework) {
  return framework != kOwn && framework != "megatron" && framework != "deepspeed";
}

/// The number types of torch.optim: gradients and moments have the type of the parameter, and mixed precision
/// keeps f32 weights, which autocast or FSDP convert as they are used.
RunSpec with_types_of_torch_optim(RunSpec r) {
  if (trains_adapters(r) || r.mode == RunMode::kInference) return r;
  if (r.master == DType::kF32 && size_of(r.weight) < size_of(DType::kF32)) r.weight = DType::kF32;
  r.master = DType::kNone;
  // f32 is the default of the run file, so it may not have been asked for.
  if (r.grad == DType::kF32) r.grad = r.weight;
  if (r.moment == DType::kF32) r.moment = r.weight;
  return r;
}

/// Upper bounds of a step of torch.optim whose kernels are not fused, which the closed form does not count.
/// Their causes: an optimizer that copies all gradients at once (foreach), weights that autocast converted
/// and keeps, f32 copies of norms and losses, and gaps. tests/plugins/estimators/framework_bounds_test.cpp
/// compares with the replay.
void bound_step_of_torch(MemoryReport& r) {
  constexpr double kOfGradients = 1.15, kOfTransient = 0.9;
  std::uint64_t transient = 0;
  for (const Component c :
       {Component::kActivations, Component::kLogits, Component::kWorkspace, Component::kCommunication})
    transient += r.component_bytes(Tier::kDevice, c);
  const double margin =
      kOfGradients * static_cast<double>(r.component_bytes(Tier::kDevice, Component::kGradients)) +
      kOfTransient * static_cast<double>(transient);
  for (MemoryEntry& n : r.entries) {
    if (n.tier != Tier::kDevice || n.claim != Claim::kApproximation || n.component == Component::kRuntime)
      continue;
    n.hi = n.bytes;  // one margin for all of them
    if (n.name == "library workspace")
      n.hi = std::min(kMaxBytes, n.bytes + static_cast<std::uint64_t>(margin));
  }
}

/// What is known of the step of Unsloth, and what is assumed: docs/pytorch-memory.md ("Unsloth").
std::string note_of_unsloth(const RunSpec& run) {
  const bool offloads = run.memory.activations_in != Tier::kDevice;
  return std::string("Unsloth: ") +
         (run.recompute == Recompute::kNone ? "without its checkpoints, which are on by default "
                                              "(train.recompute = \"full\"), all activations are kept"
          : offloads
              ? "its checkpoints keep the inputs of the layers in host memory (plan.offload_activations)"
              : "the inputs of the layers stay on the device (its checkpoints are \"unsloth\" by default, "
                "which move them to host memory: plan.offload_activations)") +
         "; head and loss run in chunks of tokens. Assumed: a layer that is recomputed needs what fused "
         "norms and attention need. " +
         (trains_adapters(run)
              ? "Its kernels of MLP and adapters write over gate and up, which is not counted."
              : "Not counted: its norms are trained in f32.");
}

/// How a framework keeps the experts of a quantized base. name: of the type of experts that are not
/// quantized.
std::string note_of_experts(const RunSpec& run) {
  const DType own = run.memory.frozen_experts;
  if (run.memory.stacks_quantized_experts)
    return "Experts are quantized (plan.quant_experts): a layer that computes makes a copy of all of its "
           "experts in " +
           std::string(name(run.compute)) + ", which autograd keeps until the backward pass of this layer.";
  return "bitsandbytes quantizes linear layers, not experts, which transformers 5 stacks in one parameter "
         "per "
         "layer: they are in " +
         std::string(name(own)) +
         (own == DType::kF32 && (run.compute == DType::kBF16 || run.compute == DType::kF16)
              ? ", to which prepare_model_for_kbit_training() of peft casts them"
              : "") +
         ". plan.quant_experts = true plans experts that something else quantizes.";
}

/// What plan.framework_version changes here: transformers 4 has experts that bitsandbytes quantizes, and
/// FSDP1 by default, which shards packed weights.
std::string note_of_release(const std::string& framework, const std::string& version,
                            const model::Architecture& a, const RunSpec& run) {
  const bool packed = is_transformers_4(framework, version) && trains_adapters(run) &&
                      run.memory.frozen != DType::kNone && bits_of(run.memory.frozen) <= 8;
  const std::string effect = !packed                 ? ""
                             : a.has_experts()       ? "quantized experts"
                             : run.parallel.zero > 0 ? "the shares of packed weights"
                                                     : "";
  return "plan.framework_version = \"" + version + "\" " +
         (effect.empty() ? "is without effect in the closed form."
                         : "changes " + effect + " only in the closed form.");
}

/// traits: null where no trainer was named. framework: the step of another framework is planned.
void add_notes(MemoryReport& r, const model::Architecture& a, const ModelSpec& m, const RunSpec& run,
               const TrainerTraits* traits, const std::string& framework_name) {
  const bool framework = framework_name != kOwn;
  r.notes.push_back(run.mode == RunMode::kInference
                        ? "Exact, tensor by tensor: weights and KV cache. Approximate: the rest."
                        : "Exact, tensor by tensor: weights, gradients, optimizer state. Approximate: "
                          "activations (as kept by an "
                          "implementation with fused norms and attention) and temporary buffers.");
  r.notes.push_back(
      "Workspace (64 MiB) and runtime (512 MiB) are constants; allocator gaps are estimated as " +
      std::to_string(run.memory.gap_permille / 10) + " % of the transient memory.");
  if (run.mode != RunMode::kInference)
    r.notes.back() +=
        " Error on measured runs: ten of Megatron-LM +0.2 to +2.9 % (the constants were fitted to them), "
        "seven "
        "of torchtitan and torchtune -12 to +5 %.";
  if (framework) r.notes.push_back("A closed form: the operations of the framework's step are not replayed.");
  if (framework_name == "unsloth" && run.mode != RunMode::kInference) r.notes.push_back(note_of_unsloth(run));
  if (a.has_experts() && run.mode != RunMode::kInference)
    r.notes.push_back(
        "Experts are assumed to be chosen evenly; a rank whose experts are chosen more often keeps more "
        "activations.");
  if (a.has_experts() && trains_adapters(run) && bits_of(run.memory.frozen) <= 8 &&
      run.memory.frozen != DType::kNone &&
      (run.memory.stacks_quantized_experts || run.memory.frozen_experts != DType::kNone))
    r.notes.push_back(note_of_experts(run));
  const bool recurrent = std::ranges::any_of(a.layers, [](const model::LayerRun& l) {
    return l.layer.linear.value_heads && l.layer.linear.key_dim;
  });
  if (recurrent && run.mode != RunMode::kInference)
    r.notes.push_back(
        "Linear attention is counted as the kernels of flash-linear-attention, causal-conv1d and mamba-ssm "
        "keep "
        "it. Where they are not installed, transformers computes with single operations of PyTorch, which "
        "keep "
        "6 times as much per layer of gated DeltaNet and 15 times as much per layer of Mamba 2.");
  if (a.has_linear_attention() && trains_adapters(run))
    r.notes.push_back(
        recurrent ? "The matrices of linear attention are not among the targets of adapters and have none."
                  : "The matrices of short convolutions (in_proj, out_proj) are not among the targets of "
                    "adapters and have none, "
                    "although \"all-linear\" of peft finds them.");
  if (trains_adapters(run))
    r.notes.push_back(
        "Adapters of q, k, v, gate and up are counted separately, even where the model's file fuses these "
        "matrices.");
  if (run.recompute == Recompute::kAuto)
    r.notes.push_back("With recompute = \"auto\" the trainer decides; this estimate keeps all activations.");
  for (const std::string& n : a.notes) r.notes.push_back(n);
  if (!framework) compare_with_program(r, m, run, traits);
}

th_status estimate(const th_host* host, const th_model* m, const th_run* r, const th_profile* p,
                   th_mem_sink* sink, th_mem_summary* summary, th_error* error) {
  return abi::guard(error, [&] {
    abi::require_arguments(m, r, sink);
    rules::require_all_weights_trained(abi::from_c(*r), "transformer");
    const rules::Options given(host, "transformer");
    const std::string framework =
        given.word("framework", {kFrameworks.begin(), kFrameworks.end()}).value_or(kOwn);
    const ModelSpec model = abi::from_c(*m);
    RunSpec run = abi::from_c(*r);
    read_settings(given, run);
    if (trains_with_torch_optim(framework)) run = with_types_of_torch_optim(std::move(run));
    const TrainerTraits traits = p ? abi::from_c(*p) : TrainerTraits{};
    const model::Architecture a = model::from_model(model);
    parallel::validate(a, run);
    MemoryReport report = parallel::report(a, run);
    // A stage of several may have none.
    if (trains_adapters(run) && run.parallel.pipeline == 1 &&
        report.component_bytes(Component::kAdapters) == 0)
      throw usage_error("lora.targets: no matrix of the model has an adapter",
                        "name matrices that the model has: lora.targets = [\"all-linear\"]");
    if (p && traits.tier == Tier::kHost) move_to_host(report);
    const bool reference =
        given.flag("reference_model", true);  // refused where it is no flag, whatever the method
    const bool prefers = given.text("method") == "dpo";
    if (reference && prefers) add_reference_model(report, run);
    const auto loss = given.text("cross_entropy");
    if (prefers && (loss == "liger" || loss == "cut"))
      report.notes.push_back("DPO needs the logits: plan.cross_entropy = \"" + *loss + "\" has no effect.");
    if (const auto bytes = given.count("runtime")) set_runtime(report, *bytes);
    if (trains_with_torch_optim(framework) && run.mode != RunMode::kInference) bound_step_of_torch(report);
    add_notes(report, a, model, run, p ? &traits : nullptr, framework);
    if (const auto version = given.text("framework_version"))
      report.notes.push_back(note_of_release(framework, *version, a, run));
    abi::send_report(report, sink, summary);
  });
}

constexpr th_estimator kTable{sizeof(th_estimator), 0, &match, &estimate};

}  // namespace
}  // namespace trainhost

TH_PLUGIN("transformer", "0.1.0", &trainhost::kTable)
