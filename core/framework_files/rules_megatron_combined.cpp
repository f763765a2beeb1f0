// What arguments of Megatron-LM mean beside others: rules_megatron.cpp notes them below "@megatron.", and the
// functions here combine them, for scripts of Megatron-LM and of ms-swift. The model that they describe:
// rules_megatron_model.cpp.
#include <fmt/format.h>

#include <string>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

std::uint64_t megatron_number(const Job& job, const char* key, std::uint64_t otherwise) {
  const Given* given = job.find(key);
  return given ? count_of(*given) : otherwise;
}

/// Gradients of bf16 are f32 unless --grad-reduce-in-bf16 is given, those of fp16 if the option for it is
/// given; then the types of a precision-aware optimizer.
void megatron_finish_types(Job& job) {
  const Given* type = job.find("train.precision");
  if (type && type->value == "fp16" && !job.find("@megatron.wide_gradients"))
    job.set_default("plan.gradients", "fp16", *type);
  if (!job.find("@megatron.own_types")) return;
  const auto take = [&](const char* theirs, const char* ours) {
    if (const Given* given = job.find(theirs)) job.set_default(ours, given->value, *given);
  };
  take("@megatron.master", "plan.master");
  take("@megatron.gradients", "plan.gradients");
  const Given *first = job.find("@megatron.first_moment"), *second = job.find("@megatron.second_moment");
  // One type for both moments: the wider one.
  if (first && second) {
    const bool wide = first->value == "fp32" || second->value == "fp8";
    job.set_default("plan.moments", wide ? first->value : second->value, wide ? *first : *second);
  }
}

/// --fp8-format or --fp4-format switches the products on; the arguments beside it have no meaning without it.
void megatron_finish_products(Job& job) {
  const Given *fp8 = job.find("@megatron.fp8"), *fp4 = job.find("@megatron.fp4"),
              *recipe = job.find("@megatron.recipe");
  if (fp8 && fp4)
    throw usage_error("fp4-format and fp8-format are both given, and Megatron-LM accepts one",
                      "leave one of them out", fp4->where);
  if ((!fp8 && !fp4) || job.find("@megatron.custom_recipe")) return;
  const Given used = recipe ? *recipe : fp8 ? *fp8 : *fp4;
  job.set_default("plan.fp8_recipe", used.value, used);
  if (const Given* weights = job.find("@megatron.fp8_weights"); weights && fp8)
    job.set_default("plan.fp8_weights", "true", *weights);
  if (const Given* history = job.find("@megatron.amax_history"); history && used.value == "delayed")
    job.set_default("plan.amax_history", history->value, *history);
  const Given* ends = job.find("@megatron.ends_in_bf16");
  if (!ends) return;
  for (const auto& [theirs, ours] : {std::pair{"@megatron.bf16_first", "plan.bf16_first_layers"},
                                     {"@megatron.bf16_last", "plan.bf16_last_layers"}}) {
    const Given* layers = job.find(theirs);
    job.set_default(ours, layers ? layers->value : "1", layers ? *layers : *ends);
  }
}

/// --recompute-modules counts with selective recomputation only; core_attn is its default.
/// --moe-layer-recompute adds the experts to it.
void megatron_finish_modules(Job& job) {
  const Given *modules = job.find("@megatron.modules"), *experts = job.find("@megatron.recompute_experts");
  if (experts) job.set_default("train.recompute", "selective", *experts);
  const Given* recompute = job.find("train.recompute");
  if (!recompute || recompute->value != "selective" || (!modules && !experts)) return;
  std::string names = modules ? modules->value : "core_attn";
  if (experts) names += names.empty() ? "moe" : ",moe";
  const Given* overlap = job.find("@megatron.shared_overlap");
  if (overlap && modules && names.find("shared_experts") != names.npos)
    throw usage_error(fmt::format("{} with shared_experts in {}: Megatron Core refuses to recompute shared "
                                  "experts that overlap with communication",
                                  overlap->key, modules->key),
                      "leave one of them out", modules->where);
  if (names.empty())  // none of them is described
    job.erase("train.recompute");
  else
    job.set_default("plan.recompute_modules", names, modules ? *modules : *experts);
}

void megatron_finish_sharding(Job& job) {
  if (const Given* fsdp2 = job.find("@megatron.fsdp2"))
    job.set_default("parallel.zero", job.find("@megatron.fsdp2_kept") ? "2" : "3", *fsdp2);
  if (const Given* fsdp = job.find("@megatron.fsdp")) {
    const Given *strategy = job.find("@megatron.fsdp_zero"), from = strategy ? *strategy : *fsdp;
    job.erase("parallel.zero");  // of --use-distributed-optimizer
    job.set_default("parallel.zero", strategy ? strategy->value : "3", from);
  }
  if (const Given* local = job.find("@megatron.local"))
    job.set_default("plan.attention", "materialised", *local);
  const Given* tensor = job.find("parallel.tensor");
  if (!tensor || tensor->value == "1") job.erase("parallel.sequence");  // Megatron-LM switches it off
}

/// Only the kernel of Transformer Engine writes the gradient over the logits; the others copy these to f32.
/// --cross-entropy-loss-fusion alone compiles the functions of Megatron Core.
void megatron_finish_loss(Job& job) {
  const Given *fused = job.find("@megatron.fused_loss"), *kernel = job.find("@megatron.loss_kernel");
  if (fused && kernel && kernel->value == "te")
    return job.set_default("plan.cross_entropy", "in-place", *kernel);
  job.set_default("plan.cross_entropy", "plain", "default of Megatron-LM");
  if (fused) job.set_default("plan.compiled_loss", "true", *fused);
}

/// A setting of the stages that needs the number of layers, which a model that is given by name does not say
/// here: listed as not modelled, and the run may need more.
void list_as_not_modelled(Job& job, const Given& setting) {
  for (runfile::FileKey& k : job.keys)
    if (k.key == setting.key && k.where.line == setting.where.line) {
      k.use = runfile::KeyUse::kNotModelled;
      k.note =
          "the number of layers is not among the arguments; set parallel.interleave, "
          "plan.first_stage_layers or plan.last_stage_layers";
      k.needs_more = true;
    }
}

/// The embedding, or the loss, counts as a layer when the layers are divided over the stages: the first, or
/// the last, stage has one layer fewer than the others.
void megatron_finish_stages(Job& job) {
  const Given *embedding = job.find("@megatron.counted_embedding"),
              *loss = job.find("@megatron.counted_loss");
  const std::uint64_t stages = megatron_number(job, "parallel.pipeline", 1),
                      layers = megatron_number(job, "model.num_hidden_layers", 0);
  if ((!embedding && !loss) || stages < 2) return;
  if (layers == 0) {
    for (const Given* setting : {embedding, loss})
      if (setting) list_as_not_modelled(job, *setting);
    return;
  }
  const std::uint64_t all = layers + (embedding != nullptr) + (loss != nullptr), each = all / stages;
  const Given& from = embedding ? *embedding : *loss;
  if (all % stages || each < 2)
    throw usage_error(
        fmt::format("{} counts as a layer, and {} cannot be divided over {} stages", from.key, all, stages),
        {}, from.where);
  if (embedding) job.set_default("plan.first_stage_layers", std::to_string(each - 1), *embedding);
  if (loss) job.set_default("plan.last_stage_layers", std::to_string(each - 1), *loss);
}

}  // namespace

void finish_megatron(Job& job) {
  // layers / (stages * virtual stages) layers are in one virtual stage.
  if (const Given* per_stage = job.find("@megatron.layers_per_stage")) {
    const std::uint64_t layers = megatron_number(job, "model.num_hidden_layers", 0),
                        stages = megatron_number(job, "parallel.pipeline", 1) *
                                 megatron_number(job, "@megatron.layers_per_stage", 1);
    if (layers && layers % stages && !job.is_option("parallel.pipeline"))
      throw usage_error(
          fmt::format("{} = {}: {} layers cannot be divided into stages of that many layers on {} "
                      "pipeline ranks",
                      per_stage->key, per_stage->value, layers, megatron_number(job, "parallel.pipeline", 1)),
          {}, per_stage->where);
    if (layers && layers % stages == 0)
      job.set_default("parallel.interleave", std::to_string(layers / stages), "the layers per virtual stage");
    if (!layers) list_as_not_modelled(job, *per_stage);
  }
  const Given *method = job.find("@megatron.recompute_method"),
              *blocks = job.find("@megatron.recompute_layers");
  if (method && method->value == "block" && blocks && blocks->value == "0") job.erase("train.recompute");
  const Given* recompute = job.find("train.recompute");
  if (recompute && recompute->value == "full" && (!method || method->value == "uniform"))
    // uniform: groups of that many layers keep the input of their first one.
    job.set_default("train.recompute_every",
                    std::to_string(megatron_number(job, "@megatron.recompute_layers", 1)),
                    "because of --recompute-num-layers");
  megatron_finish_stages(job);
  megatron_finish_modules(job);
  if (const Given* router = job.find("@megatron.router"))
    job.set_default("plan.router_type", router->value, *router);
  else if (job.find("@megatron.experts"))
    job.set_default("plan.router_type", "bf16", "default of Megatron-LM");
  finish_megatron_model(job);
  megatron_finish_types(job);
  megatron_finish_products(job);
  megatron_finish_sharding(job);
  megatron_finish_loss(job);
  job.erase_if([](const std::string& key) { return key.starts_with("@megatron."); });
  job.set_default("train.precision", "fp32", "default of Megatron-LM");
  // The vocabulary is padded to 128 x tensor-parallel ranks.
  job.set_default("parallel.vocab_multiple", "128", "default of Megatron-LM");
}

}  // namespace trainhost::framework_files
