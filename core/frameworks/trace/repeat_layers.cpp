// See repeat_layers.hpp. A replay of 80 layers costs 20 times that of four, although 78 of them allocate the
// same. So the trace of four layers is cut into runs (one layer in one phase); runs of layers 1 and 2 are
// paired and compared, and each pair becomes a template that is written once for every layer between the
// first and the last. A peak needs no trace: what a pair adds to the bytes grows by the same amount with each
// layer. "Layer" is a unit of LayerUnits here, except in storages.
#include "core/frameworks/trace/repeat_layers.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "core/frameworks/trace/evaluate.hpp"

namespace trainhost::frameworks {
namespace {

constexpr std::int32_t kLast = kRepeatedFrom - 1;
constexpr std::uint32_t kNone = UINT32_MAX;

/// Consecutive events of one layer in one phase. Layers 1 and 2 are two neighbouring runs, a pair.
struct Run {
  std::size_t begin = 0, end = 0;  // events
  std::int32_t layer = -1;
  std::uint32_t pair = kNone;
  bool outside = true;                            // no layer runs; `layer` is that of the storages
  std::uint32_t first_storage = 0, storages = 0;  // that the run allocates: consecutive indices
};

/// An event of a pair: the storage that it allocates or frees, for any layer.
struct Reference {
  std::uint32_t pair = kNone;                        // that allocates it
  std::int32_t distance = 0;                         // its layer minus the layer of the event: -1, 0 or 1
  std::uint32_t ordinal = 0;                         // of the allocations of its run
  std::uint32_t edge_run = kNone, edge_ordinal = 0;  // of layer 0 or the last one instead of the pair
  bool allocation = false;
};

/// Bytes that exist while events run, in two steps of which the second is a copy of the first.
class RunningBytes {
 public:
  /// Adds what `times` repetitions of a sequence of events do: each changes the bytes by `change` and has its
  /// maximum `most` above its start. The second of each is without the storages that the first step keeps.
  void add(std::int64_t times, const std::array<std::int64_t, 2>& change,
           const std::array<std::int64_t, 2>& most) {
    for (std::size_t step = 0; step < 2; ++step) {
      const std::int64_t start = now_[step] + std::max<std::int64_t>(0, (times - 1) * change[step]);
      peak_[step] = std::max(peak_[step], start + most[step]);
      now_[step] += times * change[step];
    }
  }
  void begin_step() { before_ = now_[1] = now_[0], peak_[1] = 0; }
  std::uint64_t peak(bool copied) const {
    // The second step begins with what the first has left.
    const std::int64_t second = copied ? now_[0] - before_ + peak_[1] : 0;
    return static_cast<std::uint64_t>(std::max(peak_[0], second));
  }

 private:
  std::int64_t before_ = 0;
  std::array<std::int64_t, 2> now_{}, peak_{};
};

class Repeater final : public LayerRepetition {
 public:
  Repeater(const Trace& small, std::span<const std::int32_t> executed, const LayerUnits& units)
      : small_(small),
        executed_(executed),
        units_(units),
        period_(static_cast<std::int32_t>(units.period)),
        layers_(static_cast<std::int32_t>(units.count())) {}

  /// A check that fails is no error: the caller then replays every layer.
  bool find() {
    if (!find_runs() || !find_pairs()) return false;
    templates_.resize(pairs_.size());
    for (std::uint32_t p = 0; p < pairs_.size(); ++p)
      if (!compare(p)) return false;
    return std::ranges::all_of(runs_, [&](const Run& r) { return r.pair != kNone || can_be_emitted(r); });
  }

  std::uint64_t peak_bytes(std::uint64_t block, const std::optional<TraceMark>& copied,
                           const std::vector<bool>& kept) const override {
    RunningBytes bytes;
    for (std::uint32_t r = 0; r < runs_.size(); ++r) {
      const Run& run = runs_[r];  // of a pair: its first, which has the events of the other one
      // A step begins with a run of its own, because it begins a phase.
      if (copied && run.begin == copied->events) bytes.begin_step();
      std::array<std::int64_t, 2> now{}, most{};
      for (std::size_t i = run.begin; i < run.end; ++i) {
        const TraceEvent e = small_.events[i];
        const auto size = static_cast<std::int64_t>(rounded_up(small_.storages[e.storage].bytes, block));
        const bool keeps = copied && e.storage >= copied->storages && kept[e.storage - copied->storages];
        now[0] += e.allocation ? size : -size;
        if (!keeps) now[1] += e.allocation ? size : -size;
        for (std::size_t step = 0; step < 2; ++step) most[step] = std::max(most[step], now[step]);
      }
      bytes.add(run.pair == kNone ? 1 : layers_ - 2, now, most);
      if (run.pair != kNone) ++r;
    }
    return bytes.peak(copied.has_value());
  }

  Trace write() override {
    out_.names = small_.names;
    const auto times = static_cast<std::size_t>(layers_) / kRepeatedFrom + 1;
    out_.events.reserve(small_.events.size() * times);
    out_.storages.reserve(small_.storages.size() * times);
    base_of_run_.resize(runs_.size());
    bases_.assign(pairs_.size(), std::vector<std::uint32_t>(static_cast<std::size_t>(layers_)));
    std::size_t phase = 0;
    for (std::uint32_t r = 0; r < runs_.size(); ++r) {
      for (; phase < small_.phases.size() && small_.phases[phase].event <= runs_[r].begin; ++phase)
        add_phase(phase);
      if (runs_[r].pair == kNone) {
        emit_once(r);
      } else {
        // Layer 1 comes first in a forward pass, layer 2 in a backward pass.
        emit_pair(runs_[r].pair, runs_[r].layer == 1);
        ++r;  // the other run of the pair
      }
    }
    for (; phase < small_.phases.size(); ++phase) add_phase(phase);
    return std::move(out_);
  }

 private:
  /// The layer that runs counts, not that of the storage: a layer frees storages of its neighbours. Outside
  /// of the layers it is that of the storage, because the optimizer's step goes through the weights layer by
  /// layer.
  std::int32_t layer_of(std::size_t event) const {
    const std::int32_t layer =
        executed_[event] >= 0 ? executed_[event] : small_.storages[small_.events[event].storage].layer;
    if (layer < 0) return layer;
    return std::min(static_cast<std::int32_t>(units_.unit_of(static_cast<std::uint32_t>(layer))), kLast);
  }

  bool find_runs() {
    home_.resize(small_.storages.size());
    std::size_t phase = 0;
    std::uint32_t storages = 0;
    for (std::size_t i = 0; i < small_.events.size(); ++i) {
      bool new_phase = false;
      for (; phase < small_.phases.size() && small_.phases[phase].event <= i; ++phase) new_phase = true;
      const std::int32_t layer = layer_of(i);
      if (runs_.empty() || new_phase || runs_.back().layer != layer)
        runs_.push_back({i, i, layer, kNone, true, storages, 0});
      Run& run = runs_.back();
      run.end = i + 1;
      if (executed_[i] >= 0) run.outside = false;
      if (!small_.events[i].allocation) continue;
      // Indices of storages ascend in the order of allocation, so a run allocates consecutive ones.
      if (small_.events[i].storage != storages) return false;
      home_[storages++] = static_cast<std::uint32_t>(runs_.size() - 1);
      ++run.storages;
    }
    return true;
  }

  bool find_pairs() {
    for (std::uint32_t r = 0; r < runs_.size(); ++r) {
      if (runs_[r].layer != 1 && runs_[r].layer != 2) continue;
      if (r + 1 == runs_.size() || runs_[r + 1].layer != 3 - runs_[r].layer) {
        // What a neighbour of the first or the last layer has kept is freed after the layers.
        if (!runs_[r].outside || runs_[r].storages != 0) return false;
        continue;
      }
      const Run &a = runs_[r], &b = runs_[r + 1];
      if (a.end - a.begin != b.end - b.begin || a.storages != b.storages) return false;
      runs_[r].pair = runs_[r + 1].pair = static_cast<std::uint32_t>(pairs_.size());
      pairs_.push_back(runs_[r].layer == 1 ? std::pair(r, r + 1) : std::pair(r + 1, r));
      ++r;
    }
    return true;
  }

  /// Makes the template of a pair.
  bool compare(std::uint32_t p) {
    const Run &one = runs_[pairs_[p].first], &two = runs_[pairs_[p].second];
    for (std::size_t k = 0; k < one.end - one.begin; ++k) {
      const TraceEvent a = small_.events[one.begin + k], b = small_.events[two.begin + k];
      if (a.allocation != b.allocation || !same(small_.storages[a.storage], small_.storages[b.storage]))
        return false;
      const Run &home_a = runs_[home_[a.storage]], &home_b = runs_[home_[b.storage]];
      Reference r;
      r.allocation = a.allocation;
      // Layers 1 and 2 must refer to the layer at the same distance: layer 1 frees what layer 0 allocated,
      // and layer 2 what layer 1 did.
      r.distance = home_a.layer - 1;
      if (home_b.layer - 2 != r.distance || r.distance < -1 || r.distance > 1) return false;
      // A neighbour may be layer 0 or 3, which have runs of their own, not pairs. Then the template has both:
      // the pair for layers inside, the run for those beside the first or the last.
      const bool edge_a = home_a.pair == kNone, edge_b = home_b.pair == kNone;
      if ((edge_a && edge_b) || (!edge_a && !edge_b && home_a.pair != home_b.pair)) return false;
      const std::uint32_t in_pair = edge_a ? b.storage : a.storage, edge = edge_a ? a.storage : b.storage;
      r.pair = edge_a ? home_b.pair : home_a.pair;
      r.ordinal = in_pair - runs_[home_[in_pair]].first_storage;
      if (edge_a || edge_b) {
        r.edge_run = home_[edge];
        r.edge_ordinal = edge - runs_[r.edge_run].first_storage;
      } else if (b.storage - home_b.first_storage != r.ordinal) {
        return false;
      }
      templates_[p].push_back(r);
    }
    return true;
  }

  bool same(const TraceStorage& a, const TraceStorage& b) const {
    return a.bytes == b.bytes && a.module == b.module && a.tensor == b.tensor && a.purpose == b.purpose &&
           a.saved == b.saved && a.stream == b.stream &&
           (b.layer == a.layer + period_ || (a.layer == -1 && b.layer == -1));
  }

  void add_phase(std::size_t index) {
    TracePhase p = small_.phases[index];
    p.event = out_.events.size();
    out_.phases.push_back(p);
  }

  void add_storages(const Run& run, std::int32_t shift) {
    for (std::uint32_t i = 0; i < run.storages; ++i) {
      TraceStorage s = small_.storages[run.first_storage + i];
      if (s.layer >= 0) s.layer += shift * period_;
      out_.storages.push_back(s);
    }
  }

  /// A run of no layer that frees what a layer of a pair has allocated cannot be repeated: it would be one
  /// event instead of one per layer.
  bool can_be_emitted(const Run& run) const {
    if (run.layer >= 0) return true;
    for (std::size_t i = run.begin; i < run.end; ++i)
      if (runs_[home_[small_.events[i].storage]].pair != kNone) return false;
    return true;
  }

  /// Events outside of the layers, of the first, or of the last layer.
  void emit_once(std::uint32_t index) {
    const Run& run = runs_[index];
    base_of_run_[index] = static_cast<std::uint32_t>(out_.storages.size());
    add_storages(run, run.layer == kLast ? layers_ - 1 - kLast : 0);
    for (std::size_t i = run.begin; i < run.end; ++i) {
      const TraceEvent e = small_.events[i];
      const Run& home = runs_[home_[e.storage]];
      const std::uint32_t ordinal = e.storage - home.first_storage;
      if (home.pair == kNone) {
        out_.events.push_back({base_of_run_[home_[e.storage]] + ordinal, e.allocation});
        continue;
      }
      // Freed by the first or the last layer, or after it, but allocated by a layer of a pair: a neighbour.
      assert(run.layer >= 0);
      const bool at_end = run.layer == kLast || run.layer == kLast - 1;
      const std::int32_t layer = home.layer + (at_end ? layers_ - 1 - kLast : 0);
      out_.events.push_back({bases_[home.pair][static_cast<std::size_t>(layer)] + ordinal, e.allocation});
    }
  }

  void emit_pair(std::uint32_t p, bool ascending) {
    const Run& one = runs_[pairs_[p].first];
    for (std::int32_t n = 1; n < layers_ - 1; ++n) {
      const std::int32_t layer = ascending ? n : layers_ - 1 - n;
      // Every storage of a layer has the same offset from this base.
      bases_[p][static_cast<std::size_t>(layer)] = static_cast<std::uint32_t>(out_.storages.size());
      add_storages(one, layer - 1);
      for (const Reference& r : templates_[p]) {
        const std::int32_t of = layer + r.distance;
        const std::uint32_t storage = of == 0 || of == layers_ - 1
                                          ? base_of_run_[r.edge_run] + r.edge_ordinal
                                          : bases_[r.pair][static_cast<std::size_t>(of)] + r.ordinal;
        out_.events.push_back({storage, r.allocation});
      }
    }
  }

  const Trace& small_;
  std::span<const std::int32_t> executed_;
  LayerUnits units_;
  std::int32_t period_, layers_;
  std::vector<Run> runs_;
  std::vector<std::uint32_t> home_;                             // run that allocates a storage
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs_;  // runs of layer 1 and of layer 2
  std::vector<std::vector<Reference>> templates_;
  std::vector<std::uint32_t> base_of_run_;         // first storage in the result, of runs in no pair
  std::vector<std::vector<std::uint32_t>> bases_;  // the same of each pair and layer
  Trace out_;
};

}  // namespace

TraceMark end_of(const Trace& t) { return {t.storages.size(), t.events.size(), t.phases.size()}; }

std::optional<std::vector<bool>> kept_by_step(const Trace& t, const TraceMark& first) {
  std::vector<bool> kept(t.storages.size() - first.storages, true);
  for (std::size_t i = first.events; i < t.events.size(); ++i) {
    const TraceEvent e = t.events[i];
    if (e.allocation) continue;
    if (e.storage < first.storages) return std::nullopt;
    kept[e.storage - first.storages] = false;
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    // What step 1 keeps may be optimizer state, or a workspace of cuBLAS: both exist once in a run. Kept
    // gradients or logits mean that step 2 frees what step 1 allocated: its events are other ones.
    const Purpose p = t.storages[first.storages + i].purpose;
    if (kept[i] && p != Purpose::kOptimizerState && p != Purpose::kKernel) return std::nullopt;
  }
  return kept;
}

bool repeat_saved_bytes(std::vector<std::uint64_t>& bytes, const LayerUnits& units) {
  const auto first = bytes.begin() + 1 + units.leading + units.period, second = first + units.period;
  if (!std::equal(first, second, second)) return false;
  const std::vector<std::uint64_t> each(first, second);
  const std::ptrdiff_t at = first - bytes.begin();
  for (std::uint32_t i = kRepeatedFrom; i < units.count(); ++i)
    bytes.insert(bytes.begin() + at, each.begin(), each.end());
  return true;
}

std::unique_ptr<LayerRepetition> LayerRepetition::find(const Trace& small,
                                                       std::span<const std::int32_t> executed,
                                                       const LayerUnits& units) {
  auto repeater = std::make_unique<Repeater>(small, executed, units);
  if (!repeater->find()) return nullptr;
  return repeater;
}

}  // namespace trainhost::frameworks
