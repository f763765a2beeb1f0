// Steps of equal layers, of which few are calculated and repeated, have the events of a step that calculates
// all of them: under DDP and ZeRO, whose buckets depend on the number of layers, in pipeline stages, and with
// the passes of Megatron-LM, which are kept for other ranks. The allocator reserves the same for both. More
// settings of transformers: oracle_test.cpp.
#include <boost/test/unit_test.hpp>
#include <string>

#include "core/frameworks/allocator/caching_allocator.hpp"
#include "core/frameworks/autograd/tape.hpp"
#include "core/frameworks/megatron/megatron_passes.hpp"
#include "core/frameworks/trace/evaluate.hpp"
#include "core/frameworks/training_step.hpp"
#include "tests/core/frameworks/same_steps.hpp"

using namespace trainhost;
using namespace trainhost::frameworks;

BOOST_AUTO_TEST_SUITE(repeated_layers)

namespace {

model::Architecture llama(std::uint32_t layers) {
  model::Architecture a;
  a.family = "llama", a.vocab = 1024, a.hidden = 64;
  model::Layer l;
  l.attention.heads = 4, l.attention.kv_heads = 2, l.attention.head_dim = 16, l.mlp.width = 192;
  a.layers = {{l, layers}};
  return a;
}

StepSettings settings_of(ModelSource modules) {
  StepSettings s;
  s.modules = modules, s.weights = Element::kBF16;
  s.batch = 2, s.sequence = 128, s.accumulate = 2;
  s.machine.cublas_workspace = 8192;
  return s;
}

/// The allocator on a device of any size, on one that is reached, and on one that is too small. Its result
/// for the step of which the second is not written is that for all events.
void check_replays(const model::Architecture& a, const StepSettings& s, const Trace& all,
                   const std::string& what) {
  CalculatedStep step(a, s);
  for (const char* text : {"", "expandable_segments:True", "max_split_size_mb:32",
                           "garbage_collection_threshold:0.6", "roundup_power2_divisions:4"}) {
    const AllocatorConfig config = parse_allocator_config(text);
    const AllocatorResult unlimited = replay_allocator(all, config);
    const std::uint64_t gaps = unlimited.reserved - unlimited.allocated;
    for (const std::uint64_t capacity : {std::uint64_t{0}, unlimited.allocated + gaps / 2,
                                         unlimited.allocated, unlimited.allocated / 10 * 9}) {
      const AllocatorResult x = step.replay(config, capacity), y = replay_allocator(all, config, capacity);
      const bool same = x.reserved == y.reserved && x.allocated == y.allocated &&
                        x.reserved_at_end == y.reserved_at_end && x.retries == y.retries &&
                        x.out_of_memory == y.out_of_memory && x.failed_event == y.failed_event;
      BOOST_TEST(same, what + ", allocator '" + text + "', " + std::to_string(capacity) + " bytes");
    }
  }
}

/// repeated: whether the steps are expected to be copies of few layers.
void check(const model::Architecture& a, StepSettings s, const std::string& what, bool repeated = true) {
  const TrainingStep copied = training_step(a, s);
  const std::uint64_t peak = CalculatedStep(a, s).peak_bytes();
  s.repeats_layers = s.copies_step = false;
  const TrainingStep computed = training_step(a, s);
  BOOST_TEST(test::same_steps(copied, computed), what);
  BOOST_TEST(peak == find_peak(computed.trace).bytes, what);
  BOOST_TEST(copied.repeated == repeated, what);
  s.repeats_layers = s.copies_step = true;
  CalculatedStep step(a, s);
  const Peak x = step.peak(), y = find_peak(computed.trace);
  BOOST_TEST(time_of(step.trace(), x) == time_of(computed.trace, y), what);
  BOOST_TEST((x.by_purpose == y.by_purpose && x.largest_by_purpose == y.largest_by_purpose), what);
  BOOST_REQUIRE(x.largest.size() == y.largest.size());
  for (std::size_t i = 0; i < x.largest.size(); ++i)
    BOOST_TEST(step.trace().name_of(step.trace().storages[x.largest[i]]) ==
                   computed.trace.name_of(computed.trace.storages[y.largest[i]]),
               what);
  check_replays(a, s, computed.trace, what);
}

}  // namespace

BOOST_AUTO_TEST_CASE(buckets_of_ddp_are_those_of_all_layers) {
  StepSettings s = settings_of(ModelSource::kTransformers);
  s.ddp.on = true;
  for (const std::uint32_t layers : {6u, 9u, 20u})
    for (const std::uint64_t bucket : {50'000u, 300'000u, 25u << 20})
      for (const bool views : {false, true}) {
        s.ddp.bucket = bucket, s.ddp.gradient_as_bucket_view = views;
        check(llama(layers), s, std::to_string(layers) + " layers, buckets of " + std::to_string(bucket));
        s.lora_rank = 4, s.lora_targets = kLoraQ | kLoraDown;
        check(llama(layers), s, std::to_string(layers) + " layers with adapters");
        s.lora_rank = s.lora_targets = 0;
      }
}

BOOST_AUTO_TEST_CASE(buckets_of_zero_are_those_of_all_layers) {
  StepSettings s = settings_of(ModelSource::kTransformers);
  s.zero.ranks = 4;
  for (const std::uint32_t stage : {1u, 2u})
    for (const std::uint64_t bucket : {10'000u, 90'000u, 500'000'000u})
      for (const bool overlap : {false, true})
        for (const bool offload : {false, true})
          for (const std::uint32_t micro_batches : {1u, 3u}) {
            s.zero.stage = stage, s.zero.bucket = bucket, s.zero.overlap = overlap;
            s.zero.offload_optimizer = offload, s.accumulate = micro_batches;
            s.checkpoint = micro_batches == 1;
            check(llama(11), s,
                  "stage " + std::to_string(stage) + ", buckets of " + std::to_string(bucket) +
                      (overlap ? ", overlap" : "") + (offload ? ", offload, " : ", ") +
                      std::to_string(micro_batches) + " micro-batches");
          }
}

// Every third layer has a narrower MLP; two layers are left over.
BOOST_AUTO_TEST_CASE(layers_of_two_kinds_in_turn) {
  model::Architecture a = llama(2);
  model::LayerRun other = a.layers.front();
  other.count = 1, other.layer.mlp.width = 128;
  for (int i = 0; i < 7; ++i) a.layers.insert(a.layers.end(), {other, a.layers.front()});
  StepSettings s = settings_of(ModelSource::kTransformers);
  check(a, s, "one device");
  s.checkpoint = true;
  check(a, s, "recomputed");
  s.ddp.on = true, s.ddp.bucket = 50'000;
  check(a, s, "DDP");
  s.ddp = {}, s.zero.stage = 2, s.zero.ranks = 4, s.zero.bucket = 90'000;
  check(a, s, "ZeRO 2");
  s.zero.stage = 3;
  check(a, s, "ZeRO 3");
  s.zero = {}, s.fsdp.ranks = 4, s.fsdp.shards = Element::kBF16;
  check(a, s, "FSDP2");
  a.layers.erase(a.layers.begin() + 4);
  check(a, s, "other layers", false);
}

// Units of experts are gathered early: what a layer gathers, the layer behind the next one frees. Dense
// layers before those with experts are part of the first unit.
BOOST_AUTO_TEST_CASE(experts_of_torchtitan_on_several_ranks) {
  model::Architecture a = llama(17);
  model::Layer& layer = a.layers.front().layer;
  layer.mlp.width = 0;
  layer.experts.count = 8, layer.experts.active = 2, layer.experts.each.width = 96;
  StepSettings s = settings_of(ModelSource::kTorchtitan);
  s.fsdp.ranks = 8, s.fsdp.separate_ends = true;
  for (const std::uint32_t leading : {0u, 1u, 3u}) {
    a.family = leading ? "deepseek_v3" : "qwen3_moe";
    layer.attention.qk_norm = leading ? model::NormKind::kNone : model::NormKind::kRms;
    model::Architecture mixed = a;
    if (leading) {
      model::LayerRun dense = a.layers.front();
      dense.count = leading, dense.layer.experts = {}, dense.layer.mlp.width = 192;
      mixed.layers.insert(mixed.layers.begin(), dense);
    }
    for (const std::uint32_t expert : {1u, 4u})
      for (const int recomputed : {0, 1, 2}) {
        s.expert = expert, s.checkpoint = recomputed == 1, s.selective = recomputed == 2;
        check(mixed, s,
              std::to_string(leading) + " dense layers, experts on " + std::to_string(expert) +
                  " ranks, recomputation " + std::to_string(recomputed));
      }
  }
}

// Tensors of up to hundreds of MiB, which have segments of their own or divide them.
BOOST_AUTO_TEST_CASE(large_tensors) {
  model::Architecture a = llama(12);
  a.vocab = 32'000, a.hidden = 2048;
  a.layers.front().layer.attention.heads = 16, a.layers.front().layer.attention.head_dim = 128;
  a.layers.front().layer.mlp.width = 5632;
  for (const bool checkpoint : {false, true})
    for (const std::uint32_t sequence : {500u, 2048u}) {
      StepSettings s = settings_of(ModelSource::kTransformers);
      s.sequence = sequence, s.checkpoint = checkpoint;
      const std::string what =
          std::to_string(sequence) + (checkpoint ? " tokens, recomputed, " : " tokens, ");
      check(a, s, what + "one device");
      s.lora_rank = 8, s.lora_targets = kLoraQ | kLoraDown;
      check(a, s, what + "adapters");
      s.lora_rank = s.lora_targets = 0, s.ddp.on = true;
      check(a, s, what + "DDP");
      s.ddp = {}, s.zero.ranks = 4;
      for (const std::uint32_t stage : {1u, 2u, 3u}) {
        s.zero.stage = stage;
        check(a, s, what + "ZeRO " + std::to_string(stage));
      }
      s.zero = {}, s.fsdp.ranks = 4, s.fsdp.shards = Element::kBF16;
      check(a, s, what + "FSDP2");
      s = settings_of(ModelSource::kTorchtitan);
      s.sequence = sequence, s.checkpoint = checkpoint;
      check(a, s, what + "torchtitan");
    }
}

BOOST_AUTO_TEST_CASE(stages_of_torchtitan) {
  StepSettings s = settings_of(ModelSource::kTorchtitan);
  s.stage.stages = 2, s.accumulate = 5;
  for (const StageBuffers buffers :
       {StageBuffers::kUntilNextStep, StageBuffers::kOutputsOfLastStage, StageBuffers::kUntilSent})
    for (const std::uint32_t index : {0u, 1u})
      for (const bool sharded : {false, true}) {
        s.stage.buffers = buffers, s.stage.index = index;
        s.stage.ends_count = buffers != StageBuffers::kUntilNextStep;
        s.fsdp.ranks = sharded ? 4 : 0;
        s.fsdp.reduces_at_end = true, s.fsdp.separate_ends = s.stage.ends_count;
        s.checkpoint = index == 0;
        check(llama(14), s,
              "stage " + std::to_string(index) + ", buffers " + std::to_string(static_cast<int>(buffers)) +
                  (sharded ? ", sharded" : ""));
      }
}

// The passes of one rank are kept for the others; a rank has other parts of the weights. The last of 65,536
// has padding only.
BOOST_AUTO_TEST_CASE(passes_of_megatron) {
  StepSettings s = settings_of(ModelSource::kMegatron);
  s.megatron.linear_workspace = 4096;
  model::Architecture experts = llama(8);
  experts.family = "mixtral";
  experts.layers.front().layer.mlp.width = 0;
  experts.layers.front().layer.experts.count = 8, experts.layers.front().layer.experts.active = 2;
  experts.layers.front().layer.experts.each.width = 96;
  for (const bool checkpoint : {false, true})
    for (const std::uint32_t tensor : {1u, 2u})
      for (const std::uint32_t ranks : {1u, 4u, 65'536u})
        for (const std::uint32_t rank : {0u, 3u, 65'535u}) {
          if (rank >= ranks) continue;
          s.checkpoint = checkpoint, s.tensor = tensor, s.megatron.sequence_parallel = tensor > 1;
          s.megatron.distributed_optimizer = true;
          s.megatron.optimizer_ranks = ranks, s.megatron.optimizer_rank = rank;
          const std::string what = "rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                                   (checkpoint ? ", recomputed, " : ", ") + std::to_string(tensor) +
                                   " tensor-parallel ranks";
          check(llama(9), s, what, false);
          s.stage.stages = 2;
          for (const std::uint32_t index : {0u, 1u}) {
            s.stage.index = index;
            check(llama(14), s, what + ", stage " + std::to_string(index), false);
          }
          s.stage = {};
          s.megatron.expert_ranks = 2, s.megatron.expert_optimizer_ranks = std::max(1u, ranks / 2);
          check(experts, s, what + ", experts", false);
          s.megatron.expert_tensor = tensor;
          if (!checkpoint) s.megatron.recomputed.activation = s.megatron.recomputed.norms = true;
          check(experts, s, what + ", divided experts with recomputed modules", false);
          s.megatron.expert_ranks = s.megatron.expert_optimizer_ranks = s.megatron.expert_tensor = 1;
          s.megatron.recomputed = {};
        }
  s.stage.stages = 2, s.megatron.virtual_stages = 2, s.accumulate = 4;
  check(llama(16), s, "virtual stages", false);
}

// The input of the last layer stays on the device and those of the others do not: these layers are all
// calculated.
BOOST_AUTO_TEST_CASE(layers_with_the_functions_of_unsloth) {
  StepSettings s = settings_of(ModelSource::kTransformers);
  s.lora_rank = 8, s.unsloth.on = true;
  for (const std::uint32_t targets : {127u, std::uint32_t{kLoraQ | kLoraK | kLoraV | kLoraDown}})
    for (const bool nf4 : {false, true})
      for (const bool ddp : {false, true})
        for (const bool small : {false, true})
          for (const int checkpoints : {0, 1, 2}) {
            s.lora_targets = targets, s.nf4 = nf4, s.ddp.on = ddp, s.unsloth.small_device = small;
            s.checkpoint = s.reentrant = checkpoints > 0, s.unsloth.offloads = checkpoints == 2;
            for (const double dropout : {0.0, 0.1}) {
              s.lora_dropout = dropout;
              check(llama(11), s,
                    std::to_string(targets) + " targets, checkpoints " + std::to_string(checkpoints),
                    checkpoints != 2);
            }
          }
}

// One script is played for each number of ranks; ranks that divide all parameters share the passes.
BOOST_AUTO_TEST_CASE(passes_of_zero_3_are_those_of_any_number_of_ranks) {
  StepSettings s = settings_of(ModelSource::kTransformers);
  s.zero.stage = 3, s.zero.bucket = 40'000, s.zero.persistence = 4'096, s.zero.prefetch = 20'000;
  for (const bool checkpoint : {false, true})
    for (const Optimizer optimizer : {Optimizer::kAdamW, Optimizer::kSgd})
      for (const std::uint32_t ranks : {4u, 8u, 3u, 2u, 16u}) {
        s.checkpoint = checkpoint, s.optimizer = optimizer, s.zero.ranks = ranks;
        const std::string what = std::to_string(ranks) + " ranks";
        check(llama(12), s, what);
        // Known passes exceed a limit before they are written.
        const std::uint64_t peak = CalculatedStep(llama(12), s).peak_bytes();
        const CalculatedStep beyond(llama(12), s, peak - 1), within(llama(12), s, peak);
        BOOST_TEST((!beyond.complete() && beyond.peak_bytes() >= peak), what);
        BOOST_TEST((within.complete() && within.peak_bytes() == peak), what);
      }
}

// A stage keeps its last input until the second step, which frees it: those passes are known from few layers
// too. Their events are compared above, also where they are not.
BOOST_AUTO_TEST_CASE(stages_of_megatron_free_what_the_first_step_has_kept) {
  StepSettings s = settings_of(ModelSource::kMegatron);
  s.stage.stages = 3, s.accumulate = 4;
  for (const std::uint32_t index : {0u, 1u, 2u}) {
    s.stage.index = index;
    const std::shared_ptr<const MegatronPasses> passes = repeated_passes(llama(24), s);
    BOOST_REQUIRE((passes && passes->second));
    BOOST_TEST(passes->second->older.size() == (index ? 2u : 0u));  // with its gradient
    BOOST_TEST(passes->section.older.empty());
  }
}

// Storages have the numbers of names; the trace of another rank may have other names before.
BOOST_AUTO_TEST_CASE(passes_keep_their_names_in_the_trace_of_another_rank) {
  TraceSection passes;
  passes.trace.names = {"mlp.linear_fc1", "output", "input"};
  for (const std::uint32_t tensor : {1u, 2u}) {
    passes.trace.events.push_back({tensor - 1, true});
    TraceStorage s;
    s.bytes = 512, s.tensor = tensor;
    passes.trace.storages.push_back(s);
  }
  Trace other;
  {
    Tape tape(other, settings_of(ModelSource::kMegatron).machine);
    tape.begin(kLoad, 0, 0);
    const Tensor weight = tape.new_storage({4}, Element::kF32, Purpose::kWeights, "input", "weight");
    append_section(tape, passes);
  }
  BOOST_REQUIRE(other.storages.size() == 3u);
  for (std::size_t i = 0; i < 2; ++i)
    BOOST_TEST(other.name_of(other.storages[i + 1]) == passes.trace.name_of(passes.trace.storages[i]));
}

BOOST_AUTO_TEST_SUITE_END()
