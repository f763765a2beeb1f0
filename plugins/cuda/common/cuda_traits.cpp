// Chooses the memory mode of a run: the requested one, or for "auto" the fastest that fits the device budget,
// in the order resident, resident with recomputed layers, streamed, streamed with recomputed layers. `hybrid`
// is never chosen automatically. Fitting is decided by the planner (core/placement), not by estimates.
#include "plugins/cuda/common/cuda_traits.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
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

TrainerTraits traits_of(const ModelSpec& model, const RunSpec& run, const char* mode, std::uint32_t threads,
                        Attention attention) {
  TrainerTraits p;
  p.trainer = kId;
  p.mode = mode;
  p.alignment = 256;
  p.tier = Tier::kDevice;
  p.threads = std::max(1u, threads);
  // Partial sums over tokens: 264 = 2 blocks for each of the 132 SMs of an H100 or H200, at most one per
  // token. The number is fixed rather than taken from the device, because it determines the order of
  // summation and so the bits of the result.
  p.slots = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(run.tokens_per_micro_batch(), 1, 264));
  p.head_chunk_tokens = head_chunk(model.vocab, run.tokens_per_micro_batch(), size_of(run.weight));
  p.attention_tile_q = std::min<std::uint32_t>(64, run.seq_len);
  p.attention_tile_k = std::min<std::uint32_t>(64, run.seq_len);
  // One buffer for both libraries: their calls are on one stream, one after another.
  p.workspace_bytes = kBlasWorkspaceBytes;
  if (attention == Attention::kCudnn)
    p.workspace_bytes =
        std::max(p.workspace_bytes, cudnn_workspace_bytes(model, run, cudnn_backward_sequences(model, run)));
  p.runtime_bytes = kRuntimeBytes;
  return p;
}

/// One mode that is tested against the device budget. Computing a placement takes longer than computing the
/// lower bound of all placements, so a placement is computed only if the bound fits; the last one is kept and
/// becomes the plan of the run.
class Candidate {
 public:
  Candidate(const ModelSpec& m, const RunSpec& r, const char* mode, std::uint32_t threads,
            Attention attention)
      : m_(m), r_(r), traits(traits_of(m, r, mode, threads, attention)) {}

  /// Lower bound of the device bytes of every placement.
  std::uint64_t least() const { return placement::least_arena(m_, r_, traits); }
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

 public:
  TrainerTraits traits;
  std::shared_ptr<const Placed> placed;
};

Choice automatic(const ModelSpec& m, const RunSpec& r, std::uint32_t threads, Attention attention) {
  Candidate resident(m, r, "resident", threads, attention);
  if (r.device_budget == 0 || resident.fits()) return resident.choice("");
  const std::uint64_t whole = resident.needs();
  const std::string short_of =
      "resident needs " + format_bytes(whole) + ", the device budget is " + format_bytes(r.device_budget);
  const bool may_recompute = r.recompute == Recompute::kNone && r.mode != RunMode::kInference;
  std::uint64_t least_resident = whole;
  if (may_recompute) {
    resident.recompute();
    least_resident = resident.needs();
    if (least_resident <= r.device_budget)
      return resident.choice("mode resident with recompute: " + short_of);
  }
  Candidate streamed(m, r, "streamed", threads, attention);
  std::string why = "mode streamed: " + short_of;
  if (least_resident < whole) why += "; " + format_bytes(least_resident) + " with every layer recomputed";
  if (may_recompute && !streamed.fits()) {
    streamed.recompute();
    why += "; layers are recomputed in streamed mode too";
  }
  return streamed.choice(std::move(why));
}

/// automatic() with a cache of one entry per thread: the host asks for the traits and then for the plan of
/// the same run, and a choice needs several placements.
Choice cached_automatic(const ModelSpec& m, const RunSpec& r, std::uint32_t threads, Attention attention) {
  struct Last {
    ModelSpec model;
    RunSpec run;
    std::uint32_t threads = 0;
    Attention attention = Attention::kOwn;
    Choice choice;
  };
  thread_local std::optional<Last> last;
  if (!last || last->threads != threads || last->attention != attention || !(last->run == r) ||
      !(last->model == m))
    last = Last{m, r, threads, attention, automatic(m, r, threads, attention)};
  return last->choice;
}

}  // namespace

Choice choose(const ModelSpec& model, const RunSpec& run, const std::string& mode_option,
              std::uint32_t threads, Attention attention) {
  if (mode_option == "auto") return cached_automatic(model, run, threads, attention);
  static const std::vector<std::string> modes = {"auto", "resident", "hybrid", "streamed"};
  for (const std::string& mode : modes)
    if (mode_option == mode) return {traits_of(model, run, mode.c_str(), threads, attention), ""};
  throw abi::StatusError(
      TH_E_ARG,
      "plugin.cuda.mode = \"" + escaped(mode_option) + "\": unknown mode" + did_you_mean(mode_option, modes),
      "use auto, resident, hybrid or streamed");
}

void require_supported(const RunSpec& r) {
  auto refuse = [](const char* what) {
    throw abi::StatusError(
        TH_E_UNSUPPORTED,
        std::string("the cuda trainer supports only f32, TF32 and bf16 on one rank: ") + what);
  };
  const bool f32 = (r.compute == DType::kF32 || r.compute == DType::kTF32) && r.weight == DType::kF32;
  const bool bf16 = r.compute == DType::kBF16 && r.weight == DType::kBF16 && r.master == DType::kF32;
  if (!(f32 || bf16) || r.grad != DType::kF32 || r.moment != DType::kF32)
    refuse("train.precision must be \"fp32\", \"tf32\" or \"bf16\"");
  if (const PlannedOnly b = planned_only_setting(r)) refuse((b.key + " = " + b.value).c_str());
}

}  // namespace trainhost::cuda
