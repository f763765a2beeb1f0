// Chooses the memory mode of a run: the requested one, or for "auto" the fastest that fits the device budget,
// in the order resident, resident with recomputed layers, streamed, streamed with recomputed layers. `hybrid`
// is never chosen automatically. Fitting is decided by the planner (core/placement), not by estimates.
#include "plugins/cuda/common/cuda_traits.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "core/model/tensor_parts.hpp"
#include "core/placement/least_arena.hpp"
#include "core/step/choose_recompute.hpp"
#include "plugins/cuda/common/device_requirements.hpp"
#include "trainhost/status.h"

namespace trainhost::cuda {
namespace {

// Tokens per chunk of logits: at most 256 MiB of logits, a multiple of 128 tokens, chunks of about
// equal size. `element`: bytes per logit. The result is the whole micro-batch if that fits.
std::uint32_t head_chunk(std::uint64_t vocab, std::uint64_t tokens, std::uint64_t element) {
  constexpr std::uint64_t kLogitBytes = 256ull << 20, kStep = 128;
  const std::uint64_t fit =
      std::max<std::uint64_t>(1, kLogitBytes / (element * std::max<std::uint64_t>(1, vocab)) / kStep) * kStep;
  if (fit >= tokens) return static_cast<std::uint32_t>(tokens);
  const std::uint64_t chunks = (tokens + fit - 1) / fit, even = (tokens + chunks - 1) / chunks;
  return static_cast<std::uint32_t>((even + kStep - 1) / kStep * kStep);
}

std::uint32_t ranks_of(const RunSpec& r) {
  return r.mode == RunMode::kInference ? 1 : r.parallel.data * r.parallel.tensor;
}
bool of_several_ranks(const RunSpec& r) { return ranks_of(r) > 1; }
/// NCCL communicators of a rank: one of all ranks, and where those are not the same, of its DP and TP ranks.
std::uint64_t communicators_of(const RunSpec& r) {
  if (!of_several_ranks(r)) return 0;
  return r.parallel.data > 1 && r.parallel.tensor > 1 ? 3 : 1;
}

/// What the traits depend on besides model, run and mode.
struct Hardware {
  std::uint32_t threads, multiprocessors;
  Attention attention;
  bool operator==(const Hardware&) const = default;
};

TrainerTraits traits_of(const ModelSpec& whole, const RunSpec& run, const char* mode, const Hardware& host) {
  const ModelSpec model = model_of_rank(whole, run);
  TrainerTraits p;
  p.trainer = kId;
  p.mode = mode;
  p.alignment = 256;
  p.tier = Tier::kDevice;
  p.threads = std::max(1u, host.threads);
  // Partial sums over tokens: two blocks for each multiprocessor, at most one per token. The number
  // determines the order of summation and so the bits of the result; it is part of the plan.
  p.slots = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(run.tokens_per_micro_batch(), 1, 2 * std::uint64_t{host.multiprocessors}));
  p.head_chunk_tokens = head_chunk(model.vocab, run.tokens_per_micro_batch(), size_of(run.weight));
  p.attention_tile_q = std::min<std::uint32_t>(64, run.seq_len);
  p.attention_tile_k = std::min<std::uint32_t>(64, run.seq_len);
  // One buffer for both libraries: their calls are on one stream, one after another.
  p.workspace_bytes = kBlasWorkspaceBytes;
  if (host.attention == Attention::kCudnn)
    p.workspace_bytes =
        std::max(p.workspace_bytes, cudnn_workspace_bytes(model, run, cudnn_backward_sequences(model, run)));
  p.runtime_bytes = runtime_bytes() + communicators_of(run) * kNcclBytes;
  return p;
}

/// One mode that is tested against the device budget. Computing a placement takes longer than computing the
/// lower bound of all placements, so a placement is computed only if the bound fits; the last one is kept and
/// becomes the plan of the run.
class Candidate {
 public:
  Candidate(const ModelSpec& m, const RunSpec& r, const char* mode, const Hardware& host)
      : m_(m), r_(r), traits(traits_of(m, r, mode, host)) {}

  /// Lower bound of the device bytes of every placement. The search asks for some numbers of layers
  /// repeatedly.
  std::uint64_t least() const {
    const RecomputeLayers& n = traits.recompute_layers;
    const auto known = std::ranges::find_if(least_, [&](const auto& k) { return k.first == n; });
    if (known != least_.end()) return known->second;
    least_.emplace_back(n, placement::least_arena(m_, r_, traits));
    return least_.back().second;
  }
  /// Device bytes of the placement that the planner finds.
  std::uint64_t bytes() {
    placed = placed_program(m_, r_, {traits, ""});
    return placed->plan.of(Tier::kDevice).arena_bytes;
  }
  bool fits() { return least() <= r_.device_budget && bytes() <= r_.device_budget; }

  /// Recomputes the smallest number of layers with which the run fits; all layers if none fits.
  void recompute() {
    const auto with = [this](const RecomputeLayers& n) { traits.recompute_layers = n; };
    with(step::choose_recompute(
        m_.layers, r_.device_budget, [&](const RecomputeLayers& n) { return with(n), least(); },
        [&](const RecomputeLayers& n) { return with(n), bytes(); }));
  }

  /// Device bytes for messages: those of the placement if one was computed for these traits, else the lower
  /// bound.
  std::uint64_t needs() const {
    return placed && placed->program.traits == traits ? placed->plan.of(Tier::kDevice).arena_bytes : least();
  }

  Choice choice(std::string why) const {
    return {traits, std::move(why), placed && placed->program.traits == traits ? placed : nullptr};
  }

 private:
  const ModelSpec& m_;
  const RunSpec& r_;
  /// By recomputed layers, in which alone the traits of a candidate differ.
  mutable std::vector<std::pair<RecomputeLayers, std::uint64_t>> least_;

 public:
  TrainerTraits traits;
  std::shared_ptr<const Placed> placed;
};

Choice automatic(const ModelSpec& m, const RunSpec& r, const Hardware& host) {
  Candidate resident(m, r, "resident", host);
  if (r.device_budget == 0 || resident.fits()) return resident.choice("");
  const std::uint64_t whole = resident.needs();
  const std::string budget = ", the device budget is " + format_bytes(r.device_budget);
  const bool may_recompute = r.recompute == Recompute::kNone && r.mode != RunMode::kInference;
  std::uint64_t least_resident = whole;
  if (may_recompute) {
    resident.recompute();
    least_resident = resident.needs();
    if (least_resident <= r.device_budget)
      return resident.choice("mode resident with recompute: without it needs " + format_bytes(whole) +
                             budget);
  }
  // The planner then says by how much the run does not fit.
  if (of_several_ranks(r))
    return resident.choice("mode resident" + std::string(may_recompute ? " with recompute" : "") +
                           ": needs " + format_bytes(least_resident) + budget +
                           "; several ranks train in no other mode");
  Candidate streamed(m, r, "streamed", host);
  std::string why = "mode streamed: resident needs " + format_bytes(whole);
  if (least_resident < whole) why += " (" + format_bytes(least_resident) + " with every layer recomputed)";
  why += budget;
  if (may_recompute && !streamed.fits()) {
    streamed.recompute();
    why += "; layers are recomputed in streamed mode too";
  }
  return streamed.choice(std::move(why));
}

/// automatic() with a cache of one entry: the host asks for the traits and then for the plan of the same run,
/// and a choice needs several placements. Not per thread: glibc ends the process if it has no memory to
/// register the destructor of a thread-local variable.
Choice cached_automatic(const ModelSpec& m, const RunSpec& r, const Hardware& host) {
  struct Last {
    ModelSpec model;
    RunSpec run;
    Hardware host;
    Choice choice;
  };
  static std::mutex lock;
  static std::shared_ptr<const Last> last;
  std::shared_ptr<const Last> known;
  {
    const std::lock_guard guard(lock);
    known = last;
  }
  if (!known || !(known->host == host) || !(known->run == r) || !(known->model == m)) {
    known = std::make_shared<const Last>(Last{m, r, host, automatic(m, r, host)});
    const std::lock_guard guard(lock);
    last = known;
  }
  return known->choice;
}

}  // namespace

ModelSpec model_of_rank(const ModelSpec& whole, const RunSpec& run) {
  return run.mode == RunMode::kInference ? whole : part_of_model(whole, run.parallel);
}

Choice choose(const ModelSpec& model, const RunSpec& run, const std::string& mode_option,
              std::uint32_t threads, std::uint32_t multiprocessors, Attention attention) {
  const Hardware host{threads, multiprocessors, attention};
  if (mode_option == "auto") return cached_automatic(model, run, host);
  static const std::vector<std::string> modes = {"auto", "resident", "hybrid", "streamed"};
  if (of_several_ranks(run) && (mode_option == "hybrid" || mode_option == "streamed"))
    throw abi::StatusError(TH_E_ARG,
                           "plugin.cuda.mode = \"" + mode_option + "\": " + std::to_string(ranks_of(run)) +
                               " ranks train in mode resident only",
                           "set plugin.cuda.mode = \"resident\"; parallel.zero = 3 needs the least memory");
  for (const std::string& mode : modes)
    if (mode_option == mode) return {traits_of(model, run, mode.c_str(), host), ""};
  throw abi::StatusError(
      TH_E_ARG,
      "plugin.cuda.mode = \"" + escaped(mode_option) + "\": unknown mode" + did_you_mean(mode_option, modes),
      "use auto, resident, hybrid or streamed");
}

std::uint32_t multiprocessors_option(const th_host* host) {
  const char* text = host && host->option ? host->option(host, "multiprocessors") : nullptr;
  if (!text) return 0;
  std::uint32_t n = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, failed] = std::from_chars(text, end, n);
  if (failed != std::errc{} || rest != end || n < 1 || n > 4096)
    throw abi::StatusError(
        TH_E_ARG, "plugin.cuda.multiprocessors = " + escaped(text, 60) + ": expected a number from 1 to 4096",
        "leave it out to use the multiprocessors of the device");
  return n;
}

void require_supported(const RunSpec& r) {
  auto refuse = [](const char* what) {
    throw abi::StatusError(
        TH_E_UNSUPPORTED,
        std::string(
            "the cuda trainer supports only f32, TF32 and bf16 on data- and tensor-parallel ranks: ") +
            what);
  };
  const bool f32 = (r.compute == DType::kF32 || r.compute == DType::kTF32) && r.weight == DType::kF32;
  const bool bf16 = r.compute == DType::kBF16 && r.weight == DType::kBF16 && r.master == DType::kF32;
  if (!(f32 || bf16) || r.grad != DType::kF32 || r.moment != DType::kF32)
    refuse("train.precision must be \"fp32\", \"tf32\" or \"bf16\"");
  if (const PlannedOnly b = planned_only_setting(r)) refuse((b.key + " = " + b.value).c_str());
}

}  // namespace trainhost::cuda
