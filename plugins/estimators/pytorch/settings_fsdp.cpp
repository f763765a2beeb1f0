// FSDP2: `fully_shard` on each decoder layer and on the model of transformers, by hand or by accelerate, and
// FSDP1 by accelerate. torchtitan: settings_torchtitan.cpp. Sets the policy only; what a unit allocates is in
// core/frameworks.
#include <algorithm>
#include <array>
#include <utility>

#include "core/base/error.hpp"
#include "plugins/estimators/pytorch/compared_families.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::Element;

const char* name_of(Element e) { return e == Element::kF32 ? "f32" : e == Element::kBF16 ? "bf16" : "f16"; }

Element half_of(DType t) { return t == DType::kF16 ? Element::kF16 : Element::kBF16; }

/// Families whose step was compared with PyTorch to the byte (docs/pytorch-memory.md, "Accuracy").
void require_compared_family(const model::Architecture& a, const Options& o,
                             const frameworks::StepSettings& s) {
  const std::string name = o.flat_parameters ? "FSDP1" : "FSDP2";
  if (was_compared(a.family, Comparison::kSharded)) return;
  constexpr const char* kReason = "its step was not compared with PyTorch";
  if (!was_compared(a.family, Comparison::kByAccelerate))
    reject(name + " of the family '" + a.family + "'", kReason);
  if (!o.by_accelerate)
    reject(name + " of the family '" + a.family + "'",
           "its step was compared with PyTorch as accelerate prepares it", "plan with --for transformers");
  const frameworks::LigerKernels& l = s.liger;
  if (l.loss || l.norms || l.rotary || l.swiglu)
    reject("kernels of Liger in the family '" + a.family + "' under " + name, kReason,
           "leave plan.cross_entropy and plan.liger_kernels out");
  if (s.int8 || (s.nf4 && !was_compared(a.family, Comparison::kPackedByAccelerate)))
    reject("quantized weights of the family '" + a.family + "' under " + name, kReason,
           "set lora.base to \"bf16\"");
}

/// CPUOffloadPolicy of FSDP2, CPUOffload of FSDP1 (fsdp_offload_params of accelerate).
void set_offload(const RunSpec& r, const Options& o, frameworks::StepSettings& s,
                 std::vector<std::string>& notes) {
  const bool weights = r.memory.weights_in != Tier::kDevice,
             optimizer = r.memory.optimizer_in != Tier::kDevice;
  if (!weights && !optimizer && !o.offload_gradients) return;
  if (!weights || !optimizer)
    reject("this offload with FSDP", "it moves weights, gradients and optimizer together",
           "set plan.offload_weights and plan.offload_optimizer to \"cpu\"; gradients follow");
  if (r.memory.weights_in == Tier::kDisk || r.memory.optimizer_in == Tier::kDisk)
    reject("offload to \"nvme\" with FSDP", "it has host memory only");
  s.fsdp.offloads = true;
  notes.push_back(
      "Shards of weights, their gradients and the optimizer are in host memory (fsdp_offload_params): the "
      "device "
      "has gathered weights and activations" +
      std::string(s.whole_packed ? ", and all packed weights" : "") + ". Not compared with PyTorch.");
}

}  // namespace

void set_fsdp(const model::Architecture& a, const RunSpec& r, const Options& o, frameworks::StepSettings& s,
              std::vector<std::string>& notes) {
  if (o.framework != Framework::kTorchtitan) require_compared_family(a, o, s);
  const std::string name = o.flat_parameters ? "FSDP1" : "FSDP2";
  const bool adapters = r.mode != RunMode::kFull;
  if (adapters && !o.by_accelerate)
    reject("adapters under FSDP2",
           "units that hold frozen and trained weights are replayed as accelerate prepares them",
           "plan with --for transformers");
  const bool alone = r.parallel.data * r.parallel.context < 2;
  if (alone && o.framework == Framework::kTorchtitan)
    reject("parallel.data = 1 in torchtitan",
           "it shards nothing on one rank, and trains under autocast there, which was not compared",
           "set parallel.data, or plan a module of transformers with --for pytorch");
  if (alone && o.flat_parameters)
    reject("parallel.data = 1 with FSDP1", "on one rank it is NO_SHARD, which keeps whole flat parameters",
           "set parallel.data, or plan.fsdp_version = 2");
  if (r.parallel.zero < 2)
    reject("parallel.zero = " + std::to_string(r.parallel.zero) + " with " + name,
           o.flat_parameters ? "it divides weights and gradients too"
                             : "fully_shard divides weights and gradients too",
           o.flat_parameters ? "set parallel.zero to 3, or to 2 for SHARD_GRAD_OP"
                             : "set parallel.zero to 3, or to 2 for reshard_after_forward = false");
  const bool half = r.compute == DType::kBF16 || r.compute == DType::kF16 || r.compute == DType::kF8;
  frameworks::FsdpPolicy& f = s.fsdp;
  // Context-parallel ranks have equal weights, so fully_shard divides them over these ranks too.
  f.ranks = r.parallel.data * r.parallel.context / o.fsdp_replicas;
  f.reshard_after_forward = r.parallel.zero != 2;
  f.shards = s.weights;  // f32 also where master weights are f32: see set_types()
  // peft keeps adapters in f32. The base has its own type.
  if (adapters) f.frozen = std::exchange(f.shards, Element::kF32);
  // Mixed precision is MixedPrecisionPolicy of FSDP2: weights are cast when they are gathered.
  s.autocast = false;
  s.ddp.on = false;
  const bool mixed = half && f.shards == Element::kF32;
  if (mixed) s.weights = half_of(r.compute);
  // MixedPrecisionPolicy without reduce_dtype reduces in the type of the shards.
  f.reduce = f.shards;
  if (r.grad == DType::kBF16) f.reduce = Element::kBF16;
  f.reduce_every_micro_batch = !o.no_sync;
  if (o.by_accelerate) {
    // Its policy has one type for weights, reduction and outputs, which FSDP1 does not cast.
    f.separate_ends = !o.flat_parameters;
    f.casts_output = mixed && !o.flat_parameters;
    f.reduce = mixed ? s.weights : f.shards;
  }
  set_offload(r, o, s, notes);
  f.flat = o.flat_parameters;
  if (f.flat) {
    f.original_parameters = o.original_parameters;
    f.backward_prefetch = o.backward_prefetch;
    f.prefetches_forward = o.forward_prefetch;
  }
  if (o.framework == Framework::kTorchtitan) set_torchtitan(a, r, o, s, notes);
  notes.push_back(
      name + ": " +
      (alone ? "one rank, so that nothing is divided, with " : std::to_string(f.ranks) + " ranks with ") +
      name_of(f.shards) + " shards" + (f.flat ? " of flat parameters" : "") +
      (f.frozen ? std::string(" of the adapters and ") + name_of(*f.frozen) + " shards of the base" : "") +
      "; weights are gathered in " + name_of(s.weights) +
      (s.float8_gather ? ", those of linear layers in 8 bits," : "") + " and gradients reduced in " +
      name_of(f.reduce) + "; the weights of a layer are " + (f.reshard_after_forward ? "" : "not ") +
      "freed after its forward pass" +
      (s.stage.stages > 1 ? "."
       : !o.no_sync || r.accumulate < 2
           ? "; every micro-batch reduces."
           : "; the last micro-batch reduces, and until then each rank keeps the "
             "gradients of all weights (plan.no_sync)."));
  if (f.flat)
    notes.push_back(
        "Memory of flat parameters that other streams still use after its last use is not counted.");
}

}  // namespace trainhost::pytorch
