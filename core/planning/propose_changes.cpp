// See propose_changes.hpp. One function per kind of change. Order: as listed in all(); the caller sorts by
// cost. Costs rank the changes: kFree and kResult costs have no unit, and the constants below only fix the
// order within one price; kTime costs are fractions of a step. kHardware: propose_devices.cpp.
#include "core/planning/propose_changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <iterator>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/base/types.hpp"
#include "core/planning/framework_layouts.hpp"
#include "core/planning/transfer_costs.hpp"
#include "core/runfile/schema.hpp"

namespace trainhost::planning {
namespace {

std::string text(std::uint64_t v) { return std::to_string(v); }
bool trains(const RunSpec& r) { return r.mode != RunMode::kInference; }
bool on_device(const ChangeContext& s) { return s.compute_tier != Tier::kHost; }

/// Collects one series per setting. A function adds nothing where the setting does not apply to the run or is
/// already at its end, so the caller plans only real changes.
class ChangeProposer {
 public:
  explicit ChangeProposer(const ChangeContext& s) : s_(s), c_(s.config), r_(s.config.run) {}

  std::vector<CandidateSeries> all() {
    avoid_materialised();
    micro_batch();
    shard_over_existing_ranks();
    tensor_ranks_of_existing_devices();
    recompute();
    stream_from_host();
    if (on_device(s_)) offload();
    for (CandidateSeries& series : propose_devices(s_)) out_.push_back(std::move(series));
    lower_precision();
    optimizers();
    adapters();
    shorten_sequences();
    for (CandidateSeries& series : out_)
      std::erase_if(series.changes, [&](const CandidateChange& change) { return !framework_has(change); });
    std::erase_if(out_, [](const CandidateSeries& series) { return series.changes.empty(); });
    return std::move(out_);
  }

 private:
  /// `falling`: memory never grows along the series, which lets the caller bisect it. A series in which a
  /// value may be invalid, or may cost memory elsewhere, is not falling and is planned value by value.
  void add(Price price, std::vector<CandidateChange> changes, bool falling = true,
           std::uint64_t frees_at_most = UINT64_MAX, std::uint64_t keeps = 0) {
    if (!changes.empty()) out_.push_back({price, falling, std::move(changes), frees_at_most, keeps});
  }

  /// Whether the framework has every kind of parallelism that the change sets (framework_layouts.hpp).
  bool framework_has(const CandidateChange& change) const {
    const std::vector<std::uint32_t> stages = zero_stages(c_.framework);
    return std::ranges::all_of(change.settings, [&](const runfile::Override& setting) {
      if (setting.key == "parallel.zero")
        return std::ranges::any_of(stages, [&](std::uint32_t n) { return text(n) == setting.value; });
      const bool divides = setting.key == "parallel.tensor" || setting.key == "parallel.pipeline" ||
                           setting.key == "parallel.context" || setting.key == "parallel.expert";
      return !divides || divides_layers(c_.framework) || setting.value == "1";
    });
  }

  /// Tensors that a fused kernel does not materialise.
  void avoid_materialised() {
    if (r_.memory.cross_entropy == CrossEntropy::kPlain && has_liger(c_.framework))
      add(Price::kFree, {{{{"plan.cross_entropy", "liger"}},
                          "head and loss in chunks of tokens by Liger, which has kernels for layers too",
                          0,
                          "free: the same result"}});
    else if (r_.memory.cross_entropy == CrossEntropy::kPlain)
      add(Price::kFree, {{{{"plan.cross_entropy", "fused"}},
                          "logits are computed in chunks and never materialised",
                          0,
                          "free: the same result"}});
    if (r_.memory.attention == AttentionMemory::kMaterialised)
      add(Price::kFree, {{{{"plan.attention", "flash"}},
                          "attention scores are not materialised",
                          0,
                          "free: the same result, usually faster"}});
  }

  void micro_batch() {
    // b runs over the divisors of B from the largest: only then the number of sequences per step, and so the
    // training result, stays the same.
    std::vector<CandidateChange> changes;
    const std::uint64_t B = r_.micro_batch;
    assert(B >= 1);
    for (std::uint64_t b = B - 1; b >= 1; --b) {
      if (B % b) continue;
      if (trains(r_))
        changes.push_back(
            {{{"train.micro_batch", text(b)}, {"train.grad_accum", text(r_.accumulate * (B / b))}},
             fmt::format("{} per micro-batch instead of {}, {} times as many accumulated", sequences(b), B,
                         B / b),
             double(B / b) / 1e6,  // behind changes that are entirely free, in the order of the divisors
             "free: the same update, with smaller matrix products"});
      else
        changes.push_back({{{"train.micro_batch", text(b)}},
                           fmt::format("{} at the same time instead of {}", sequences(b), B),
                           double(B / b) - 1,
                           "fewer answers at the same time"});
    }
    add(trains(r_) ? Price::kFree : Price::kTime, std::move(changes));
  }

  /// Existing ranks that hold copies of the same data.
  void shard_over_existing_ranks() {
    // Sequence parallelism divides what tensor parallelism leaves whole between the matrix products, and
    // moves the same bytes (a reduce-scatter and an all-gather instead of an all-reduce).
    if (r_.parallel.tensor > 1 && !r_.parallel.sequence && trains(r_))
      add(Price::kFree,
          {{{{"parallel.sequence", "true"}},
            fmt::format("sequence parallelism: each of the {} TP ranks keeps its part of the activations",
                        r_.parallel.tensor),
            0,
            "free: the same network traffic"}});
    // ZeRO shards over all ranks that hold the same weights: data and context ranks.
    const std::uint64_t ranks = std::uint64_t{r_.parallel.data} * r_.parallel.context;
    if (r_.parallel.expert == 1 && !s_.dense)
      add(Price::kTime, experts_of(ranks), false);  // more ranks than experts is not a valid run
    if (ranks == 1 || !trains(r_)) return;
    static constexpr const char* kShared[] = {"", "optimizer state", "optimizer state and gradients",
                                              "optimizer state, gradients and weights"};
    std::vector<CandidateChange> free;
    // Stages 1 and 2 exchange as many bytes as a plain all-reduce; stage 3 gathers the weights once more.
    for (std::uint32_t z = r_.parallel.zero + 1; z <= 2; ++z)
      free.push_back({{{"parallel.zero", text(z)}},
                      fmt::format("{1} sharded over the {0} data ranks", ranks, kShared[z]),
                      0,
                      "free: the same network traffic"});
    add(Price::kFree, std::move(free));
    if (r_.parallel.zero < 3)
      add(Price::kTime, {{{{"parallel.zero", "3"}},
                          fmt::format("{1} sharded over the {0} data ranks", ranks, kShared[3]),
                          zero3_gather_cost(s_),
                          "50 % more network traffic"}});
  }

  /// Tensor parallelism over devices that are data ranks now: the number of devices stays. Each step trains
  /// the same number of sequences, since the remaining data ranks accumulate more of them. Tensor parallelism
  /// ends at 8, the size of a node in which devices have fast links. Not falling: gradients that are
  /// accumulated may need a buffer.
  void tensor_ranks_of_existing_devices() {
    // About what `search` computes for doubling tensor parallelism within a node.
    constexpr double kCostOfDoubling = 0.1;
    std::vector<CandidateChange> changes;
    const Parallelism& p = r_.parallel;
    for (std::uint32_t n = 2; p.tensor * n <= 8 && p.data % n == 0; n *= 2) {
      if (c_.model.heads % (p.tensor * n) || (p.data / n) % p.expert || p.expert_tensor) continue;
      Settings settings = {{"parallel.tensor", text(p.tensor * n)}};
      if (trains(r_) && !p.sequence) settings.push_back({"parallel.sequence", "true"});
      settings.push_back({"parallel.data", text(p.data / n)});
      if (p.zero != 0 && p.data == n && p.context == 1) settings.push_back({"parallel.zero", "0"});
      if (trains(r_)) settings.push_back({"train.grad_accum", text(std::uint64_t{r_.accumulate} * n)});
      changes.push_back({std::move(settings),
                         fmt::format("{}-way tensor parallelism and {} on the same {} devices", p.tensor * n,
                                     plural(p.data / n, "data rank"), devices_of(r_)),
                         kCostOfDoubling * (1 + double(changes.size())),
                         trains(r_) ? "the same update; more network traffic within each layer"
                                    : "fewer answers at the same time"});
    }
    if (on_device(s_)) add(Price::kTime, std::move(changes), false);
  }

  /// 3 % and 33 %: the share of a step's arithmetic that is executed again. "auto" is not proposed, as it is
  /// no policy of its own; the sentence of `full` names it.
  void recompute() {
    if (!trains(r_)) return;
    std::vector<CandidateChange> changes;
    if (r_.recompute == Recompute::kNone)
      changes.push_back({{{"train.recompute", "selective"}},
                         "norm outputs and the MLP activation are recomputed in the backward pass",
                         0.03,
                         "about 3 % more time"});
    if (r_.recompute == Recompute::kNone || r_.recompute == Recompute::kSelective)
      changes.push_back(
          {{{"train.recompute", "full"}},
           s_.config.framework.empty()
               ? "every layer keeps only its input (\"auto\" recomputes as few layers as possible)"
               : "every layer keeps only its input",
           0.33,
           "about 33 % more arithmetic"});
    add(Price::kTime, std::move(changes));
  }

  /// Streaming, where the user set another mode of the cuda trainer.
  void stream_from_host() {
    // Mode auto has already tried streaming; only a mode that the user fixed can be changed.
    if (s_.mode != "resident" && s_.mode != "hybrid") return;
    const auto options = c_.plugin_options.find("cuda");
    if (options == c_.plugin_options.end() || !options->second.count("mode") ||
        options->second.at("mode") == "auto")
      return;
    const double share = streaming_cost(s_);
    add(Price::kTime,
        {{{{"plugin.cuda.mode", "streamed"}},
          "weights, gradients and optimizer state in host memory; one layer at a time on the device",
          share,
          describe_extra_time(share)}});
  }

  void offload() {
    const MemoryPolicy& memory = r_.memory;
    // Tiers of planned offload: the closed forms know them, the trainers do not carry them out.
    const auto change = [&](const char* key, const char* what, double share) {
      return CandidateChange{
          {{key, std::string(offload_name(Tier::kHost))}}, what, share, describe_extra_time(share)};
    };
    if (trains(r_) && memory.optimizer_in == Tier::kDevice)
      add(Price::kTime, {change("plan.offload_optimizer", "optimizer state in host memory, updated there",
                                optimizer_offload_cost(s_))});
    if (memory.weights_in == Tier::kDevice)
      add(Price::kTime,
          {change("plan.offload_weights", "weights in host memory; one layer at a time on the device",
                  weight_offload_cost(s_))});
    if (trains(r_) && memory.activations_in == Tier::kDevice)
      add(Price::kTime,
          {change("plan.offload_activations", "activations in host memory until the backward pass",
                  activation_offload_cost(s_))});
  }

  /// Expert parallelism over n of the existing data ranks.
  std::vector<CandidateChange> experts_of(std::uint64_t ranks) const {
    constexpr double kExchangeCost = 0.1;  // tokens are sent to their experts and back, in both passes of a
                                           // layer; about what `search` computes within a node
    // Only divisors of the data ranks: experts are divided among equal groups.
    std::vector<CandidateChange> changes;
    for (std::uint64_t n = 2; n <= ranks; n *= 2)
      if (ranks % n == 0)
        changes.push_back({{{"parallel.expert", text(n)}},
                           fmt::format("experts divided among {} of the {} data ranks", n, ranks),
                           kExchangeCost,
                           "about 10 % more time: tokens are sent to their experts and back"});
    return changes;
  }

  /// From the least to the most rounding; each is a different training result, hence kResult.
  void lower_precision() {
    if (trains(r_)) {
      if (c_.precision == "fp32" || c_.precision == "tf32")
        add(Price::kResult, {{{{"train.precision", "bf16"}},
                              "bf16 weights and activations, f32 master weights",
                              0.1,
                              "rounds matrix products; usually faster"}});
      else if (r_.grad == DType::kF32)
        add(Price::kResult, {{{{"plan.gradients", "bf16"}}, "gradients in bf16", 0.15, "rounds gradients"}});
      return;
    }
    if (r_.memory.kv_cache == DType::kNone || bits_of(r_.memory.kv_cache) > 8)
      add(Price::kResult,
          {{{{"plan.kv_cache", "fp8"}}, "8-bit key/value cache", 0.1, "rounds keys and values"},
           {{{"plan.kv_cache", "int4"}}, "4-bit key/value cache", 0.4, "rounds keys and values noticeably"}});
    std::vector<CandidateChange> weights;
    if (bits_of(r_.weight) > 16)
      weights.push_back({{{"plan.weights", "bf16"}}, "weights in bf16", 0.05, "rounds weights slightly"});
    if (bits_of(r_.weight) > 8)
      weights.push_back({{{"plan.weights", "int8"}}, "8-bit weights", 0.2, "rounds weights"});
    if (bits_of(r_.weight) > 4)
      weights.push_back({{{"plan.weights", "nf4"}}, "4-bit weights", 0.5, "rounds weights noticeably"});
    add(Price::kResult, std::move(weights));
  }

  /// Only from AdamW, which keeps the most state. Order by the expected effect on the loss. Not falling: lion
  /// keeps 4 bytes per parameter, 8-bit AdamW about 2.
  void optimizers() {
    if (!trains(r_) || r_.optimizer != Optimizer::kAdamW) return;
    const auto change = [](const char* optimizer, const char* what, double cost, const char* cost_text) {
      return CandidateChange{{{"optimizer.name", optimizer}}, what, cost, cost_text};
    };
    add(Price::kResult,
        {change("adamw-8bit", "both Adam moments in 8 bits", 0.2, "nearly the same training result"),
         change("lion", "one moment instead of two", 0.3, "needs another learning rate and weight decay"),
         change("adafactor", "second moment factored into rows and columns", 0.35, "another optimizer"),
         change("sgd-momentum", "one moment instead of two", 0.6, "usually a higher loss for transformers"),
         change("sgd", "no optimizer state", 0.8, "usually a much higher loss for transformers")},
        false, s_.update_bytes, s_.kept_states);
  }

  /// Frameworks that train models of transformers, whose own loss in chunks is that of Liger.
  static bool has_liger(std::string_view framework) {
    constexpr std::string_view kNames[] = {"pytorch", "transformers", "axolotl", "llama-factory",
                                           "deepspeed"};
    return std::ranges::find(kNames, framework) != std::end(kNames);
  }

  static bool trains_adapters(std::string_view framework) {
    return framework != "megatron" && framework != "torchtitan";
  }

  /// Parameters are frozen, so gradients and optimizer state shrink to those of the adapters. A run that
  /// trains adapters already can have narrower frozen weights and smaller adapters.
  void adapters() {
    if (r_.mode == RunMode::kLora || r_.mode == RunMode::kQlora) smaller_adapters();
    if (r_.mode != RunMode::kFull || !trains_adapters(c_.framework)) return;
    const Settings rank = {{"lora.rank", "8"}};
    auto with = [&](std::initializer_list<runfile::Override> more) {
      Settings s = rank;
      s.insert(s.end(), more);
      return s;
    };
    // Not falling where weights are sharded: packed ones may stay whole on each rank.
    add(Price::kResult,
        {{rank, "only adapters of rank 8 are trained (LoRA)", 1, "trains far fewer parameters"},
         {with({{"lora.base", "bf16"}}), "adapters of rank 8, frozen bf16 weights (LoRA)", 1.1,
          "trains far fewer parameters"},
         {with({{"lora.base", "nf4"}, {"lora.double_quant", "true"}}),
          "adapters of rank 8, frozen 4-bit weights (QLoRA)", 1.3,
          "trains far fewer parameters; rounds weights"}},
        r_.parallel.zero != 3 && c_.framework != "fsdp2");
  }

  void smaller_adapters() {
    std::vector<CandidateChange> ranks;
    for (std::uint32_t rank = r_.lora_rank / 2; rank >= 4; rank /= 2)
      ranks.push_back({{{"lora.rank", text(rank)}},
                       fmt::format("adapters of rank {} instead of {}", rank, r_.lora_rank),
                       0.05 + 0.01 * double(ranks.size()),
                       "trains fewer parameters"});
    // The weights of adapters, and what they save, are much smaller than the activations of the model.
    add(Price::kResult, std::move(ranks), true, 2 * s_.trained_bytes + s_.activation_bytes / 4);
    if (r_.mode == RunMode::kQlora && !r_.memory.double_quantized)
      add(Price::kResult, {{{{"lora.double_quant", "true"}},
                            "scales of the 4-bit weights in 8 bits too (double quantization)",
                            0.02,
                            "rounds scales"}});
    if (bits_of(r_.weight) > 4 && r_.mode != RunMode::kQlora)
      add(Price::kResult, {{{{"lora.base", "nf4"}, {"lora.double_quant", "true"}},
                            "frozen 4-bit weights (QLoRA)",
                            0.5,
                            "rounds weights"}});
  }

  /// Halved until 64 tokens; the context ranks must divide every length.
  void shorten_sequences() {
    std::vector<CandidateChange> changes;
    for (std::uint64_t s = r_.seq_len / 2; s >= 64 && s % r_.parallel.context == 0; s /= 2)
      changes.push_back(
          {{{"data.seq_len", text(s)}},
           fmt::format("sequences of {} tokens instead of {}", format_count(s), format_count(r_.seq_len)),
           0.4 + 0.1 * double(changes.size()),
           "shorter context"});
    add(Price::kResult, std::move(changes));
  }

  static std::string sequences(std::uint64_t n) {
    return n == 1 ? "1 sequence" : fmt::format("{} sequences", n);
  }

  const ChangeContext& s_;
  const runfile::RunConfig& c_;
  const RunSpec& r_;
  std::vector<CandidateSeries> out_;
};

/// The suggestion is printed in the syntax of the run file, so that it can be pasted there.
bool needs_quotes(const std::string& key) {
  const runfile::Key* k = runfile::find_key(key);
  if (!k) return true;  // [plugin.NAME]: strings
  using runfile::Type;
  return k->type == Type::kText || k->type == Type::kChoice || k->type == Type::kPath ||
         k->type == Type::kTexts || k->type == Type::kPaths;
}

}  // namespace

std::vector<CandidateSeries> propose_changes(const ChangeContext& s) { return ChangeProposer(s).all(); }

std::string format_as_run_file(const Settings& settings) {
  std::vector<std::string> parts;
  for (const runfile::Override& o : settings)
    parts.push_back(needs_quotes(o.key) ? fmt::format("{} = \"{}\"", o.key, o.value)
                                        : fmt::format("{} = {}", o.key, o.value));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace trainhost::planning
