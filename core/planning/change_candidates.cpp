// See change_candidates.hpp. One function a knob; none plans anything.
#include "core/planning/change_candidates.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/base/types.hpp"
#include "core/planning/transfer_costs.hpp"
#include "core/runfile/schema.hpp"

namespace trainhost::planning {
namespace {

using report::Price;

std::string text(std::uint64_t v) { return std::to_string(v); }
bool trains(const RunSpec& r) { return r.mode != RunMode::kInference; }
bool on_device(const Situation& s) { return s.compute_tier != Tier::kHost; }

class Proposals {
 public:
  explicit Proposals(const Situation& s) : s_(s), c_(s.config), r_(s.config.run) {}

  std::vector<Family> all() {
    kept_whole();
    micro_batch();
    shared_already();
    recompute();
    modes();
    if (on_device(s_)) offload(), more_devices();
    other_device();
    numbers();
    optimizers();
    adapters();
    shorter();
    return std::move(out_);
  }

 private:
  void add(Price price, std::vector<Rung> rungs, bool falling = true) {
    if (!rungs.empty()) out_.push_back({price, falling, std::move(rungs)});
  }

  /// Memory that a better kernel does not take.
  void kept_whole() {
    if (r_.memory.cross_entropy == CrossEntropy::kPlain)
      add(Price::kFree, {{{{"plan.cross_entropy", "fused"}},
                          "logits made and used in chunks, never whole",
                          0,
                          "free: the same result"}});
    if (r_.memory.attention == AttentionMemory::kMaterialised)
      add(Price::kFree, {{{{"plan.attention", "flash"}},
                          "attention without keeping its scores",
                          0,
                          "free: the same result, usually faster"}});
  }

  void micro_batch() {
    std::vector<Rung> rungs;
    const std::uint64_t B = r_.micro_batch;
    for (std::uint64_t b = B - 1; b >= 1; --b) {
      if (B % b) continue;
      if (trains(r_))
        rungs.push_back(
            {{{"train.micro_batch", text(b)}, {"train.grad_accum", text(r_.accumulate * (B / b))}},
             fmt::format("{} at a time instead of {}, {} times as many accumulated", sequences(b), B, B / b),
             double(B / b) / 1e6,
             "free: the same update from smaller products"});
      else
        rungs.push_back({{{"train.micro_batch", text(b)}},
                         fmt::format("{} at a time instead of {}", sequences(b), B),
                         double(B / b) - 1,
                         "fewer answers at a time"});
    }
    add(trains(r_) ? Price::kFree : Price::kTime, std::move(rungs));
  }

  /// Ranks that are there and hold the same thing.
  void shared_already() {
    if (r_.parallel.tensor > 1 && !r_.parallel.sequence && trains(r_))
      add(Price::kFree, {{{{"parallel.sequence", "true"}},
                          fmt::format("the {} tensor-parallel ranks share the tokens between their parts",
                                      r_.parallel.tensor),
                          0,
                          "free: the same bytes on the network"}});
    const std::uint64_t ranks = std::uint64_t{r_.parallel.data} * r_.parallel.context;
    if (r_.parallel.expert == 1)
      add(Price::kTime, experts_of(ranks), false);  // more ranks than experts is no run
    if (ranks == 1 || !trains(r_)) return;
    static constexpr const char* kShared[] = {"", "optimizer state", "optimizer state and gradients",
                                              "optimizer state, gradients and weights"};
    std::vector<Rung> free;
    for (std::uint32_t z = r_.parallel.zero + 1; z <= 2; ++z)
      free.push_back({{{"parallel.zero", text(z)}},
                      fmt::format("the {} data ranks share {}", ranks, kShared[z]),
                      0,
                      "free: the same bytes on the network"});
    add(Price::kFree, std::move(free));
    if (r_.parallel.zero < 3)
      add(Price::kTime, {{{{"parallel.zero", "3"}},
                          fmt::format("the {} data ranks share {}", ranks, kShared[3]),
                          gathered_cost(s_),
                          "half as many bytes again on the network"}});
  }

  void recompute() {
    if (!trains(r_)) return;
    std::vector<Rung> rungs;
    if (r_.recompute == Recompute::kNone)
      rungs.push_back({{{"train.recompute", "selective"}},
                       "norm outputs and the MLP's product made again in the backward pass",
                       0.03,
                       "about 3 % more time"});
    if (r_.recompute == Recompute::kNone || r_.recompute == Recompute::kSelective)
      rungs.push_back({{{"train.recompute", "full"}},
                       "every layer keeps its input alone (\"auto\" takes as few layers as it can)",
                       0.33,
                       "about a third more arithmetic"});
    add(Price::kTime, std::move(rungs));
  }

  /// A trainer that was told where to keep things.
  void modes() {
    if (s_.mode != "resident" && s_.mode != "hybrid") return;
    const auto told = c_.plugin_options.find("cuda");
    if (told == c_.plugin_options.end() || !told->second.count("mode") || told->second.at("mode") == "auto")
      return;
    const double share = streaming_cost(s_);
    add(Price::kTime,
        {{{{"plugin.cuda.mode", "streamed"}},
          "weights, gradients and optimizer state in host memory, a layer at a time on the device",
          share,
          time_words(share)}});
  }

  void offload() {
    const MemoryPolicy& memory = r_.memory;
    const auto rung = [&](const char* key, const char* what, double share) {
      return Rung{{{key, std::string(offload_word(Tier::kHost))}}, what, share, time_words(share)};
    };
    if (trains(r_) && memory.optimizer_in == Tier::kDevice)
      add(Price::kTime, {rung("plan.offload_optimizer", "optimizer state and its update in host memory",
                              optimizer_offload_cost(s_))});
    if (memory.weights_in == Tier::kDevice)
      add(Price::kTime,
          {rung("plan.offload_weights", "weights in host memory, a layer at a time on the device",
                weight_offload_cost(s_))});
    if (trains(r_) && memory.activations_in == Tier::kDevice)
      add(Price::kTime,
          {rung("plan.offload_activations", "activations in host memory until the backward pass needs them",
                activation_offload_cost(s_))});
  }

  /// The smallest power of two of devices, by each way to share a run.
  void more_devices() {
    const std::uint64_t now = devices_of(r_);
    const auto devices = [&](std::uint64_t n) { return devices_words(now * n, s_.devices); };
    std::vector<Rung> tensor, pipeline, context;
    for (std::uint64_t n = 2; r_.parallel.tensor * n <= 8; n *= 2)
      tensor.push_back(
          {{{"parallel.tensor", text(r_.parallel.tensor * n)}, {"parallel.sequence", "true"}},
           fmt::format("{} devices share every matrix and the tokens between", r_.parallel.tensor * n),
           double(now * n),
           devices(n)});
    if (!trains(r_))
      for (Rung& t : tensor) t.settings.pop_back();
    for (std::uint64_t n = 2; r_.parallel.pipeline * n <= c_.model.layers; n *= 2)
      pipeline.push_back({{{"parallel.pipeline", text(r_.parallel.pipeline * n)}},
                          fmt::format("{} devices share the layers", r_.parallel.pipeline * n),
                          double(now * n) + 0.1,
                          devices(n)});
    for (std::uint64_t n = 2; n <= 64 && r_.seq_len % (r_.parallel.context * n) == 0; n *= 2)
      context.push_back({{{"parallel.context", text(r_.parallel.context * n)}},
                         fmt::format("{} devices share each sequence", r_.parallel.context * n),
                         double(now * n) + 0.2,
                         devices(n)});
    add(Price::kHardware, std::move(tensor));
    add(Price::kHardware, std::move(pipeline), false);  // the last stage has the head, whatever the layers do
    if (trains(r_)) add(Price::kHardware, std::move(context));
    if (trains(r_)) add(Price::kHardware, experts(now), false);  // the same
    if (trains(r_))
      for (std::uint32_t zero = 1; zero <= 3; ++zero) add(Price::kHardware, zero_ranks(zero, now));
  }

  /// An even share of the experts on each of n of the ranks that are there. Of a dense model no estimator
  /// plans these.
  std::vector<Rung> experts_of(std::uint64_t ranks) const {
    constexpr double kExchanged =
        0.1;  // tokens go to their experts and back, twice a layer; about what search finds in a node
    std::vector<Rung> rungs;
    for (std::uint64_t n = 2; n <= ranks; n *= 2)
      if (ranks % n == 0)
        rungs.push_back({{{"parallel.expert", text(n)}},
                         fmt::format("{} of the {} data ranks share the experts", n, ranks),
                         kExchanged,
                         "about 10 % more time: tokens go to their experts and back"});
    return rungs;
  }

  /// With as many ranks more. Of a dense model no estimator plans these.
  std::vector<Rung> experts(std::uint64_t now) const {
    std::vector<Rung> rungs;
    for (std::uint64_t n = 2; n <= 256 && r_.parallel.expert == 1; n *= 2)
      rungs.push_back({{{"parallel.data", text(r_.parallel.data * n)},
                        {"parallel.expert", text(n)},
                        {"parallel.zero", "3"}},
                       fmt::format("{} data ranks share the experts and all state", r_.parallel.data * n),
                       double(now * n) + 0.25,
                       devices_words(now * n, s_.devices)});
    return rungs;
  }

  std::vector<Rung> zero_ranks(std::uint32_t zero, std::uint64_t now) const {
    static constexpr const char* kShared[] = {"", "optimizer state", "optimizer state and gradients",
                                              "all state"};
    std::vector<Rung> rungs;
    if (zero < r_.parallel.zero) return rungs;
    for (std::uint64_t n = 2; n <= 4096; n *= 2) {
      Settings settings = {{"parallel.data", text(r_.parallel.data * n)}, {"parallel.zero", text(zero)}};
      std::string batch = fmt::format("{} times as many sequences in an update", n);
      if (r_.accumulate % n == 0)
        settings.push_back({"train.grad_accum", text(r_.accumulate / n)}), batch = "the same update";
      rungs.push_back({settings,
                       fmt::format("{} data ranks share {}, {}", r_.parallel.data * n, kShared[zero], batch),
                       double(now * n) + 0.3 + 0.01 * zero, devices_words(now * n, s_.devices)});
    }
    return rungs;
  }

  /// Presets with more memory, the smallest first.
  void other_device() {
    std::vector<const DevicePreset*> more;
    for (const DevicePreset& d : device_presets())
      if (d.memory_bytes > s_.budget_bytes && d.link_gbs > 0)
        more.push_back(&d);  // a processor is no larger accelerator
    std::stable_sort(more.begin(), more.end(),
                     [](auto* a, auto* b) { return a->memory_bytes < b->memory_bytes; });
    std::vector<Rung> rungs;
    const bool chosen =
        !on_device(s_) && c_.backend != "auto";  // the host's backend, by name: a device would be another
    for (const DevicePreset* d : more) {
      Rung r{{{"memory.device", d->name}},
             fmt::format("{}, {} of memory", d->full_name, format_bytes(d->memory_bytes)),
             1.5,
             "another device",
             true};
      if (chosen) {
        r.settings.insert(r.settings.begin(), {"train.backend", "auto"});
        r.cost_words = fmt::format("another device, and so not the backend that was chosen, {}", c_.backend),
        r.leaves_backend = true;
      }
      rungs.push_back(std::move(r));
    }
    add(Price::kHardware, std::move(rungs), false);  // the largest may be one that no trainer here knows
  }

  void numbers() {
    if (trains(r_)) {
      if (c_.precision == "fp32" || c_.precision == "tf32")
        add(Price::kResult, {{{{"train.precision", "bf16"}},
                              "bf16 weights and activations, f32 master weights",
                              0.1,
                              "rounds products, usually faster"}});
      else if (r_.grad == DType::kF32)
        add(Price::kResult, {{{{"plan.gradients", "bf16"}}, "gradients in bf16", 0.15, "rounds gradients"}});
      return;
    }
    if (r_.memory.kv_cache == DType::kNone)
      add(Price::kResult,
          {{{{"plan.kv_cache", "fp8"}}, "the key/value cache in 8 bits", 0.1, "rounds keys and values"},
           {{{"plan.kv_cache", "int4"}},
            "the key/value cache in 4 bits",
            0.4,
            "rounds keys and values, visibly"}});
    std::vector<Rung> weights;
    if (bits_of(r_.weight) > 16)
      weights.push_back(
          {{{"plan.weights", "bf16"}}, "weights in bf16", 0.05, "rounds weights, hardly visibly"});
    if (bits_of(r_.weight) > 8)
      weights.push_back({{{"plan.weights", "int8"}}, "weights in 8 bits", 0.2, "rounds weights"});
    if (bits_of(r_.weight) > 4)
      weights.push_back({{{"plan.weights", "nf4"}}, "weights in 4 bits", 0.5, "rounds weights, visibly"});
    add(Price::kResult, std::move(weights));
  }

  void optimizers() {
    if (!trains(r_) || r_.optimizer != Optimizer::kAdamW) return;
    const auto rung = [](const char* optimizer, const char* what, double order, const char* words) {
      return Rung{{{"optimizer.name", optimizer}}, what, order, words};
    };
    add(Price::kResult,
        {rung("adamw-8bit", "both moments in 8 bits", 0.2, "nearly the same training"),
         rung("lion", "one moment instead of two", 0.3, "another learning rate and decay"),
         rung("adafactor", "the second moment by rows and columns", 0.35, "another optimizer"),
         rung("sgd-momentum", "one moment instead of two", 0.6, "usually trains a transformer worse"),
         rung("sgd", "no optimizer state", 0.8, "usually trains a transformer much worse")},
        false);
  }

  void adapters() {
    if (r_.mode != RunMode::kFull) return;
    const Settings rank = {{"lora.rank", "8"}};
    auto with = [&](std::initializer_list<runfile::Override> more) {
      Settings s = rank;
      s.insert(s.end(), more);
      return s;
    };
    add(Price::kResult, {{rank, "adapters of rank 8 alone are trained", 1, "trains far fewer parameters"},
                         {with({{"lora.base", "bf16"}}), "adapters of rank 8 beside frozen bf16 weights", 1.1,
                          "trains far fewer parameters"},
                         {with({{"lora.base", "nf4"}, {"lora.double_quant", "true"}}),
                          "adapters of rank 8 beside frozen 4-bit weights (QLoRA)", 1.3,
                          "trains far fewer parameters, on rounded weights"}});
  }

  void shorter() {
    std::vector<Rung> rungs;
    for (std::uint64_t s = r_.seq_len / 2; s >= 64 && s % r_.parallel.context == 0; s /= 2)
      rungs.push_back(
          {{{"data.seq_len", text(s)}},
           fmt::format("sequences of {} tokens instead of {}", format_count(s), format_count(r_.seq_len)),
           0.4 + 0.1 * double(rungs.size()),
           "shorter context"});
    add(Price::kResult, std::move(rungs));
  }

  static std::string sequences(std::uint64_t n) {
    return n == 1 ? "1 sequence" : fmt::format("{} sequences", n);
  }

  const Situation& s_;
  const runfile::RunConfig& c_;
  const RunSpec& r_;
  std::vector<Family> out_;
};

bool is_quoted(const std::string& key) {
  const runfile::Key* k = runfile::find_key(key);
  if (!k) return true;  // [plugin.NAME]: words
  using runfile::Type;
  return k->type == Type::kText || k->type == Type::kChoice || k->type == Type::kPath ||
         k->type == Type::kTexts || k->type == Type::kPaths;
}

}  // namespace

std::uint64_t devices_of(const RunSpec& r) {
  return std::uint64_t{r.parallel.data} * r.parallel.tensor * r.parallel.pipeline * r.parallel.context;
}

std::string devices_words(std::uint64_t n, std::uint64_t before) {
  return fmt::format("{} devices instead of {}", n, before);
}

std::vector<Family> candidates(const Situation& s) { return Proposals(s).all(); }

std::string as_run_file(const Settings& settings) {
  std::vector<std::string> parts;
  for (const runfile::Override& o : settings)
    parts.push_back(is_quoted(o.key) ? fmt::format("{} = \"{}\"", o.key, o.value)
                                     : fmt::format("{} = {}", o.key, o.value));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace trainhost::planning
