// The memory of many layouts of one model: stage_numbers() of the worst stage, to the byte, with everything
// that layouts have in common counted once. No formula stands here: the account is prepared once a stage and
// asked again for each place to keep things.
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
  struct Bytes {
    std::uint64_t device = 0,
                  host = 0;  // of the stage that needs most of the device; host: pinned memory too, disk not
  };

  /// `run` is the one that a search varies in place; it and `a` outlive the model.
  MemoryModel(const model::Architecture& a, const RunSpec& run) : a_(a), kinds_(a), r_(run) {}

  /// The run's micro_batch, tensor, context, expert, recompute, ... have changed.
  void set_shape();
  /// pipeline, interleave, data or accumulate have changed.
  void set_depth();
  /// Of the run as it stands.
  Bytes bytes() {
    return *bytes([](std::uint64_t) { return false; });
  }
  /// The same, for who may know before all stages are counted: enough(device bytes so far) is asked after
  /// each, which only grow. nullopt: it said yes.
  template <class Enough>
  std::optional<Bytes> bytes(Enough&& enough);

  /// With the run's zero the highest of a group of layouts that differ in zero alone: whether enough(bytes)
  /// says yes to what none of the group takes less than of a device, stage by stage as above. Counts what
  /// ZeRO shares, which only shrinks as the stage grows, and what it does not touch; leaves out what a stage
  /// may add: buffers of communication, and the allocator's gaps beside them.
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
      if (f.tier == Tier::kDevice && stays(f.component)) least += f.bytes;
    }
    static constexpr bool stays(Component c) {
      return c != Component::kCommunication && c != Component::kFragmentation;
    }
  };
  /// A stage and its account, which refers to it.
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

  /// stages_that_count(), once for each depth: under one recompute policy for all layers, as a search has it,
  /// they are the same.
  const std::vector<std::uint32_t>& candidates();

  /// Of the i-th candidate; prepared when it is first asked for.
  const Sink& emit(std::size_t i) {
    if (i == prepared_.size()) prepared_.emplace_back(a_, kinds_, r_, (*stages_)[i], sums_.data());
    return prepared_[i].emit();
  }

  const model::Architecture& a_;
  const LayerKinds kinds_;
  const RunSpec& r_;
  std::vector<LayerSums> sums_;  // of each kind of layer
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>>
      candidates_;                                      // by pipeline and interleave
  const std::vector<std::uint32_t>* stages_ = nullptr;  // candidates() of this depth
  std::deque<Prepared> prepared_;  // of the candidates, first stage first, as far as they were asked for
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
