// Memory of many layouts of one model: stage_numbers() of the stage that needs most, to the byte, with shared
// work done once. Has no formulas of its own: prepares the RankBreakdown of a stage once and emits it once
// per StateSettings.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "core/parallel/layout_space.hpp"
#include "core/parallel/rank_breakdown.hpp"
#include "core/parallel/rank_memory.hpp"

namespace trainhost::parallel {

class MemoryModel {
 public:
  /// Bytes of the stage that needs most device memory; host includes pinned memory.
  struct Bytes {
    std::uint64_t device = 0, host = 0;
  };

  /// `run` is varied in place by the search; it and `a` must outlive the model.
  MemoryModel(const model::Architecture& a, const RunSpec& run) : a_(a), kinds_(a), r_(run) {}

  /// Call after a change of micro_batch, tensor, context, expert, recompute, ... (MicroBatchSettings).
  void set_micro_batch() { sums_ = sums_by_kind(Stage(a_, kinds_, r_, 0)); }
  /// Call after a change of pipeline, virtual_stages, data or accumulate (PipelineSettings).
  void set_pipeline() {
    prepared_.clear();
    stages_ = &candidates();
  }
  /// Of the current run.
  Bytes bytes() {
    return *bytes([](std::uint64_t) { return false; });
  }
  /// The same with early exit: calls enough(device bytes so far) after each stage; nullopt if it returned
  /// true.
  template <class Enough>
  std::optional<Bytes> bytes(Enough&& enough);

  /// For a group of layouts that differ only in ZeRO, with the run's zero the highest of them: whether
  /// enough(bytes) is true for a lower bound of device bytes of the group, stage by stage as above. The bound
  /// has everything except communication buffers and allocator gaps: only these can grow with ZeRO.
  template <class Enough>
  bool at_least(Enough&& enough);

 private:
  struct Sink {
    static constexpr bool kPerTensor = false;
    std::array<Size, kTiers> bytes{};
    Size least;
    template <class Name, class Formula>
    void add(const Entry& f, Name&&, Formula&&) {
      if (!f.at_peak) return;
      bytes[std::size_t(f.tier)] += f.bytes;
      if (f.tier == Tier::kDevice && never_grows_with_zero(f.component)) least += f.bytes;
    }
    static constexpr bool never_grows_with_zero(Component c) {
      return c != Component::kCommunication && c != Component::kFragmentation;
    }
  };
  /// A stage and its breakdown, which refers to it.
  struct Prepared {
    Prepared(const model::Architecture& a, const LayerKinds& kinds, const RunSpec& r, std::uint32_t stage,
             const LayerSums* known)
        : is(a, kinds, r, stage), breakdown(is, to) {
      breakdown.prepare(known);
    }
    Prepared(const Prepared&) = delete;
    const Sink& emit() { return to = {}, breakdown.emit(), to; }
    Sink to;
    Stage is;
    RankBreakdown<Sink> breakdown;
  };

  /// candidate_stages() of each PipelineSettings, cached: with one recompute policy for all layers (as in a
  /// search) they depend only on them.
  const std::vector<std::uint32_t>& candidates() {
    std::vector<std::uint32_t>& out = candidates_[{r_.parallel.pipeline, r_.parallel.virtual_stages}];
    if (out.empty()) out = candidate_stages(a_, kinds_, r_);
    return out;
  }

  /// Emits the i-th candidate; prepares it at the first call.
  const Sink& emit(std::size_t i) {
    if (i == prepared_.size()) prepared_.emplace_back(a_, kinds_, r_, (*stages_)[i], sums_.data());
    return prepared_[i].emit();
  }

  const model::Architecture& a_;
  const LayerKinds kinds_;
  const RunSpec& r_;
  std::vector<LayerSums> sums_;  // of each kind of layer
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>>
      candidates_;                                      // by pipeline and virtual_stages
  const std::vector<std::uint32_t>* stages_ = nullptr;  // candidates() of these PipelineSettings
  std::deque<Prepared> prepared_;                       // of the first candidates
};

template <class Enough>
std::optional<MemoryModel::Bytes> MemoryModel::bytes(Enough&& enough) {
  Bytes worst;
  for (std::size_t i = 0; i < stages_->size(); ++i) {
    const Sink& s = emit(i);
    const std::uint64_t device = s.bytes[std::size_t(Tier::kDevice)].value();
    if (i == 0 || device > worst.device)
      worst = {device, (s.bytes[std::size_t(Tier::kPinned)] + s.bytes[std::size_t(Tier::kHost)]).value()};
    if (enough(worst.device)) return std::nullopt;
  }
  return worst;
}

template <class Enough>
bool MemoryModel::at_least(Enough&& enough) {
  for (std::size_t i = 0; i < stages_->size(); ++i)
    if (enough(emit(i).least.value())) return true;
  return false;
}

}  // namespace trainhost::parallel
