// A correct trainer into which a test can put one fault by name. Its gradients are invented (towards zero,
// plus a wave that depends on the batch); its optimizers, counters and save() behave like those of a real
// trainer.
#pragma once
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/text.hpp"
#include "core/numerics/sample_runs.hpp"
#include "core/verify/context.hpp"
#include "core/verify/contract_check.hpp"

namespace trainhost::verify::fake {

using Clock = std::chrono::steady_clock;

/// The simulated time: each step advances it by its duration.
inline Clock::time_point& clock() {
  static Clock::time_point now{};
  return now;
}

/// The memory of a fake session: two tensors of width H per layer and token under recompute "full", else
/// sixteen.
inline MemoryReport report(const ModelSpec& m, const RunSpec& r, const std::string& fault) {
  const std::uint64_t p = count_parameters(m).total, tokens = r.tokens_per_micro_batch();
  const std::uint64_t kept = r.recompute == Recompute::kFull && fault != "keeps every tensor" ? 2 : 16;
  const std::uint64_t activations = m.layers * tokens * m.hidden * kept * 4;
  MemoryReport out;
  const auto add_entry = [&](Component c, std::uint64_t bytes) {
    MemoryEntry n;
    n.tier = Tier::kDevice, n.component = c, n.bytes = n.bytes_at_peak = bytes, n.has_at_peak = true;
    out.entries.push_back(n);
  };
  add_entry(Component::kWeights, p * (fault == "stores weights twice" ? 8 : 4));
  add_entry(Component::kGradients, p * 4);
  if (r.optimizer == Optimizer::kAdamW)
    add_entry(Component::kOptimizerState, p * (fault == "stores three moments" ? 12
                                               : fault == "stores one moment"  ? 4
                                                                               : 8));
  const bool hidden = fault == "reports activations as workspace";
  add_entry(hidden ? Component::kWorkspace : Component::kActivations, activations * (hidden ? 8 : 1));
  add_entry(Component::kLogits, tokens * m.vocab * 4);
  add_entry(Component::kWorkspace, fault == "allocates a GiB" ? 1u << 30 : 100);
  add_entry(Component::kFragmentation, 24);
  std::uint64_t total = 0;
  for (const MemoryEntry& n : out.entries) total += n.bytes;
  out.tiers = {{Tier::kDevice, total, kBackward}};
  return out;
}

class Session : public plugin::Session {
 public:
  Session(const ModelSpec& m, const RunSpec& r, std::string fault, plugin::Ledger& ledger)
      : m_(m),
        r_(r),
        fault_(std::move(fault)),
        large_(count_parameters(m).total > 10000000),
        ledger_(ledger) {
    allocated_bytes_ = static_cast<std::int64_t>(report(m, r, fault_).total_bytes());
    if (broken("allocates unreported bytes")) allocated_bytes_ += 1 << 14;
    ledger_.took(allocated_bytes_, Tier::kDevice, "arena");
    if (large_) return;  // the 350M model is only timed, not computed
    std::uint64_t at = 0;
    for (const TensorInfo& t : tensors(m)) {
      tensors_.push_back(t);
      first_.push_back(at);
      at += t.elements();
    }
    weights_.assign(at, 0.f), moment1_.assign(at, 0.f), moment2_.assign(at, 0.f), loaded_.assign(at, false);
  }

  ~Session() override { ledger_.took(-allocated_bytes_, Tier::kDevice, "arena"); }

  void load(plugin::Scope, const plugin::TensorPiece& p) override {
    const std::uint64_t at = first_[index(p.name)] + p.first;
    for (std::uint64_t i = 0; i < p.count; ++i)
      weights_[at + i] = static_cast<const float*>(p.data)[i], loaded_[at + i] = true;
  }
  void init(std::uint64_t seed) override {
    for (std::size_t i = 0; i < weights_.size(); ++i)
      if (!loaded_[i])
        weights_[i] = static_cast<float>(0.1 * std::sin(static_cast<double>(seed % 1000 + 7 * i)));
  }

  plugin::StepResult step(const plugin::StepInput& in) override {
    const auto begin = Clock::now();
    // Depends on the length of the delay, which differs between runs even on a busy machine.
    if (broken("stale when late") && steps_ && !large_)
      for (auto late = (begin - last_) / std::chrono::microseconds(100); late > 0; --late)
        weights_[0] = std::nextafter(weights_[0], 1.f);
    if (broken("fails") && steps_ == 4)
      throw plugin::PluginError(Exit::kFailed, "internal", "a kernel is missing", "", 0);
    plugin::StepResult r = result(in);
    if (broken("loss drifts") && steps_ >= 10) r.loss += 2e-3;
    if (!large_) update(in, r);
    ++steps_;
    count(in);
    last_ = Clock::now();
    return r;
  }
  plugin::StepResult evaluate(const plugin::StepInput& in) override {
    plugin::StepResult r = result(in);
    if (broken("head drifts") && steps_) r.loss += 1e-9;
    return r;
  }
  void save(plugin::Scope scope, const std::function<void(const plugin::TensorPiece&)>& sink) override {
    if (scope != plugin::Scope::kWeights && r_.optimizer != Optimizer::kAdamW) return;
    if (scope == plugin::Scope::kMoment2 && broken("saves one moment")) return;
    const bool weights = scope == plugin::Scope::kWeights;
    saves_ += weights;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const TensorInfo& t = tensors_[i];
      if (broken("saves too few") && weights && i == 3) continue;
      if (broken("saves too few of small models") && weights && i == 3 && m_.hidden <= 4) continue;
      std::vector<float> piece(weights_.begin() + static_cast<long>(first_[i]),
                               weights_.begin() + static_cast<long>(first_[i] + t.elements()));
      if (broken("saves too early") && saves_ % 2 == 0) piece[0] = std::nextafter(piece[0], 1.f);
      sink({t.name, DType::kF32, t.rank, t.dim, piece.data(), 0, piece.size()});
      if (broken("saves a tensor more") && weights && i == 0 && m_.hidden > 4)
        sink({"lm_head.weight",
              DType::kF32,
              t.rank,
              {t.dim[0] - 1, t.dim[1]},
              piece.data(),
              0,
              piece.size() - t.dim[1]});
    }
  }
  void save_own_part(plugin::Scope scope,
                     const std::function<void(const plugin::TensorPiece&)>& sink) override {
    save(scope, sink);
  }
  plugin::Counters counters() override { return c_; }
  std::string info(const std::string&) override { return ""; }
  std::optional<double> metric(const std::string& key) override {
    if (key == "sync_mismatch") return broken("copies differ") ? 3 : 0;
    if (key == "order_violations" && broken("counts violations")) return 1;
    return std::nullopt;
  }
  bool can_generate() const override { return false; }
  std::unique_ptr<plugin::Profiler> start_profiler(std::span<std::byte>,
                                                   plugin::Profiler::OnBoundary) override {
    return nullptr;
  }
  void next_logits(std::int32_t, std::uint32_t, std::span<float>) override {}

 private:
  bool broken(const char* what) const { return fault_ == what; }
  std::size_t index(const std::string& name) const {
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (tensors_[i].name == name) return i;
    throw plugin::PluginError(Exit::kUsage, "argument", "no tensor " + name, "", 0);
  }
  double wave(const plugin::StepInput& in) const {
    const auto bytes =
        std::string_view(reinterpret_cast<const char*>(in.tokens.data()), in.tokens.size_bytes());
    return static_cast<double>(fnv1a(bytes) % 1000);
  }
  plugin::StepResult result(const plugin::StepInput& in) const {
    plugin::StepResult r;
    r.loss = 1 + wave(in) * 1e-5;
    for (float x : weights_) r.loss += 0.05 * x * x / static_cast<double>(weights_.size());
    r.tokens_counted = in.tokens.size();
    return r;
  }

  void update(const plugin::StepInput& in, plugin::StepResult& r) {
    const double h = wave(in);
    std::vector<double> g(weights_.size());
    double sum = 0;
    for (std::size_t i = 0; i < g.size(); ++i)
      g[i] = 0.1 * weights_[i] + 0.01 * std::sin(0.37 * static_cast<double>(i) + h), sum += g[i] * g[i];
    r.grad_norm = std::sqrt(sum);
    const double scale = r_.clip_norm > 0 && r.grad_norm > r_.clip_norm ? r_.clip_norm / r.grad_norm : 1;
    for (std::size_t k = 0; k < tensors_.size(); ++k) {
      if (broken("freezes a norm") && tensors_[k].role == TensorRole::kFinalNorm) continue;
      const bool embedding = tensors_[k].role == TensorRole::kEmbed;
      for (std::uint64_t i = first_[k]; i < first_[k] + tensors_[k].elements(); ++i)
        update_one(i, g[i] * (broken("embedding unclipped") && embedding ? 1 : scale), tensors_[k], in);
    }
    if (broken("gives a NaN weight") && steps_ == 3) weights_[5] = NAN;
    if (broken("reports no norm") && steps_ == 3) r.grad_norm = NAN;
  }
  void update_one(std::uint64_t i, double g, const TensorInfo& t, const plugin::StepInput& in) {
    const bool embedding = t.role == TensorRole::kEmbed;
    const double decay = t.rank >= 2 || broken("decays norms") ? r_.weight_decay : 0;
    const double eps = broken("hidden eps") && embedding ? 1e-8 : r_.eps;
    const double beta2 = broken("hidden beta2") && embedding ? 0.8 : r_.beta2;
    double change = g;
    if (r_.optimizer == Optimizer::kAdamW) {
      const double n = static_cast<double>(in.step_index + 1);
      const double m1 = r_.beta1 * moment1_[i] + (1 - r_.beta1) * g,
                   m2 = beta2 * moment2_[i] + (1 - beta2) * g * g;
      moment1_[i] = static_cast<float>(m1), moment2_[i] = static_cast<float>(m2);
      change = m1 / (1 - std::pow(r_.beta1, n)) / (std::sqrt(m2 / (1 - std::pow(beta2, n))) + eps);
    }
    weights_[i] = static_cast<float>(weights_[i] - in.lr * (change + decay * weights_[i]));
  }

  /// Advances the counters of hybrid mode and the simulated time of the kernels.
  void count(const plugin::StepInput& in) {
    const std::uint64_t micro = in.batch / r_.micro_batch, elements = r_.tokens_per_micro_batch();
    c_.h2d += 2 * micro, c_.d2h += micro;
    c_.h2d_bytes += micro * elements * (m_.hidden + m_.vocab) * 4;
    c_.d2h_bytes += micro * elements * m_.vocab * (broken("sends half") ? 2 : 4);
    c_.sync += micro + 1, c_.sync_bytes += 100;
    if (broken("makes one transfer more")) ++c_.h2d;
    if (broken("counts a copy as sync")) ++c_.sync;
    constexpr auto kStep =
        std::chrono::microseconds(500);  // simulated, so that the load of the machine has no effect
    clock() += kStep;
    const auto ns = static_cast<double>(std::chrono::nanoseconds(kStep).count());
    c_.compute_ns += static_cast<std::uint64_t>(ns * (broken("leaves the device idle") ? 0.5
                                                      : broken("counts time twice")    ? 2
                                                                                       : 0.98));
    c_.exposed_transfer_ns += static_cast<std::uint64_t>(ns * (broken("exposes transfers") ? 0.2 : 0.01));
  }

  ModelSpec m_;
  RunSpec r_;
  std::string fault_;
  bool large_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::uint64_t> first_;
  std::vector<float> weights_, moment1_, moment2_;
  std::vector<bool> loaded_;
  plugin::Counters c_;
  plugin::Ledger& ledger_;
  std::int64_t allocated_bytes_ = 0;
  std::uint64_t steps_ = 0, saves_ = 0;
  Clock::time_point last_{};
};

class Trainer : public plugin::Trainer {
 public:
  explicit Trainer(plugin::Ledger& ledger, std::string fault = {})
      : ledger_(ledger), fault_(std::move(fault)) {}
  const std::string& id() const override { return id_; }
  void probe() override {}
  TrainerTraits traits(const ModelSpec&, const RunSpec&) override {
    TrainerTraits p;
    p.tier = Tier::kDevice;
    return p;
  }
  MemoryReport plan(const ModelSpec& m, const RunSpec& r) override { return report(m, r, fault_); }
  std::optional<std::uint64_t> profile_bytes(const ModelSpec&, const RunSpec&) override {
    return std::nullopt;
  }
  std::optional<plugin::DeviceMemory> device_memory() override { return std::nullopt; }
  std::unique_ptr<plugin::Session> create(const ModelSpec& m, const RunSpec& r) override {
    // Invented gradients cannot pass REF-001; tests/core/numerics proves that check.
    if (m.name == numerics::kSampleName)
      throw plugin::PluginError(Exit::kNoBackend, "unsupported", "it trains no sample of REF-001", "", 0);
    if (fault_ == "not enough memory" || (fault_ == "memory for three sequences" && r.micro_batch > 3))
      throw plugin::PluginError(Exit::kDoesNotFit, "device_oom", "GPU is 3 GiB short", "", 3u << 30);
    return std::make_unique<Session>(m, r, fault_, ledger_);
  }

 private:
  plugin::Ledger& ledger_;
  std::string id_ = "cuda", fault_;
};

/// Two modes, each with its own trainer; the reference trainer is correct.
class TestedTrainers : public verify::TestedTrainers {
 public:
  TestedTrainers(const std::string& resident, const std::string& hybrid) {
    trainers_["resident"] = std::make_unique<Trainer>(ledger_, resident);
    trainers_["hybrid"] = std::make_unique<Trainer>(ledger_, hybrid);
  }
  const std::string& backend() const override { return backend_; }
  std::string unavailable_reason() override { return unavailable_reason_; }
  bool on_device() override { return on_device_; }
  std::vector<std::string> modes() override { return {"resident", "hybrid"}; }
  bool has_mode(const std::string& mode) override { return trainers_.count(mode) > 0; }
  plugin::Trainer& trainer(const std::string& mode) override { return *trainers_.at(mode); }
  plugin::Trainer& reference_trainer() override { return correct_trainer_; }
  plugin::Ledger& ledger() override { return ledger_; }
  RunSpec resolve_run(const std::string&, const runfile::RunConfig& c) override { return c.run; }

  std::string backend_ = "cuda", unavailable_reason_;
  bool on_device_ = true;

 private:
  plugin::Ledger ledger_;
  std::map<std::string, std::unique_ptr<plugin::Trainer>> trainers_;
  Trainer correct_trainer_{ledger_};
};

/// Results of checks, and the ids that decide and were falsified.
struct Outcome {
  std::vector<Result> results;
  std::string falsified;  // ids, with spaces
  const Result& of(const std::string& id) const {
    for (const Result& r : results)
      if (r.id == id) return r;
    throw std::runtime_error("no result " + id);
  }
};

inline Outcome outcome_of(Context& context, const std::string& only) {
  Outcome o;
  o.results = run_checks(context, select(only));
  for (const Result& r : o.results)
    if (r.decides && r.status == Status::kFalsified) o.falsified += (o.falsified.empty() ? "" : " ") + r.id;
  return o;
}

}  // namespace trainhost::verify::fake
