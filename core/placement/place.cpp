// Offsets for a program, tier by tier. Persistent buffers lie at the bottom, side by side: weights, moments,
// the rest, and the gradients last, because evaluation and generation may use the gradients' place. Each
// section's transient buffers are packed by themselves (pack.cpp) above whatever persists while it runs;
// sections never run at the same time.
#include <algorithm>
#include <array>
#include <vector>

#include "core/base/checked.hpp"
#include "core/placement/memory_plan.hpp"
#include "core/placement/pack.hpp"

namespace trainhost::placement {
namespace {

int rank(const Buffer& b) {
  switch (b.component) {
    case Component::kWeights:
      return 0;
    case Component::kOptimizerState:
      return 1;
    case Component::kGradients:
      return 3;
    default:
      return 2;
  }
}
constexpr int kRanks = 4;

/// The buffers of one tier.
class Placer {
 public:
  Placer(const Program& p, Tier tier, MemoryPlan& plan, std::uint64_t enough)
      : p_(p), plan_(plan), enough_(enough) {
    made_.tier = tier;
  }

  TierPlan run() {
    refuse_too_large();
    place_persistent();
    std::vector<Task> tasks;
    for (const Section& s : p_.sections) tasks.push_back(task(s));
    hand_out(tasks);
    // The section that needs most decides; the others only have to stay below it.
    std::stable_sort(tasks.begin(), tasks.end(),
                     [](const Task& a, const Task& b) { return a.base + a.bound > b.base + b.bound; });
    for (const Task& t : tasks) place_section(t);
    made_.arena_bytes = align_up(end_, p_.traits.alignment);
    find_peak();
    return made_;
  }

 private:
  struct Task {
    Section section;
    std::uint64_t base = 0, bound = 0;  // where its transient buffers begin; the least that they take
    std::vector<BufferId> ids;
    std::vector<PackItem> items;
  };

  bool here(BufferId b) const { return p_[b].tier == made_.tier && p_[b].storage != Storage::kExternal; }
  std::uint64_t padded(const Buffer& b) const { return align_up(b.bytes(), p_.traits.alignment); }

  /// No sum of sizes leaves 63 bits after this, in whatever order.
  void refuse_too_large() const {
    std::uint64_t sum = 0;
    for (BufferId b = 0; b < p_.buffers.size(); ++b)
      if (here(b)) sum = checked_add(sum, padded(p_[b]), "the memory plan");
  }

  /// Persistent buffers by rank, and those that only live across sections; what is left belongs to one
  /// section each.
  void place_persistent() {
    std::array<std::vector<BufferId>, kRanks> own;
    for (BufferId b = 0; b < p_.buffers.size(); ++b) {
      if (!here(b)) continue;
      if (has_own_place(b))
        own[static_cast<std::size_t>(rank(p_[b]))].push_back(b);
      else
        in_section_.push_back(b);
    }
    for (int r = 0; r < kRanks; ++r) {
      for (BufferId b : own[static_cast<std::size_t>(r)]) {
        plan_.offset[b] = end_;
        end_ += padded(p_[b]);
        if (p_[b].persistent) made_.persistent_bytes += p_[b].bytes();
      }
      if (r < kRanks - 1) below_gradients_ = end_;
    }
  }

  /// Persistent, or transient and yet used by several sections: no built program has such a buffer, others
  /// may.
  bool has_own_place(BufferId b) const {
    if (p_[b].persistent) return true;
    if (!plan_.lifetime[b].used()) return false;
    const auto in = [&](std::uint32_t op) {
      return std::find_if(p_.sections.begin(), p_.sections.end(),
                          [&](const Section& s) { return s.begin <= op && op < s.end; });
    };
    const auto first = in(plan_.lifetime[b].first), last = in(plan_.lifetime[b].last);
    return first != last || first == p_.sections.end();
  }

  Task task(const Section& s) const {
    Task t;
    t.section = s;
    const bool holds_gradients = s.kind == SectionKind::kMicro || s.kind == SectionKind::kUpdate;
    t.base = holds_gradients ? end_ : below_gradients_;
    return t;
  }

  /// Every transient buffer to the section that it lives in.
  void hand_out(std::vector<Task>& tasks) {
    for (BufferId b : in_section_) {
      const Lifetime& l = plan_.lifetime[b];
      if (!l.used()) plan_.offset[b] = 0;
      for (Task& t : tasks) {
        if (!l.used() || l.first < t.section.begin || l.first >= t.section.end) continue;
        t.ids.push_back(b);
        t.items.push_back({l.first - t.section.begin, l.last - t.section.begin, padded(p_[b])});
        break;
      }
    }
    for (Task& t : tasks) t.bound = pack_bound(t.items, t.section.end - t.section.begin);
  }

  void place_section(const Task& t) {
    const std::uint64_t top = std::max(end_, enough_), room = top > t.base ? top - t.base : 0;
    std::vector<std::uint64_t> offset;
    const std::uint64_t height = pack(t.items, t.section.end - t.section.begin, room, offset);
    for (std::size_t i = 0; i < t.ids.size(); ++i) plan_.offset[t.ids[i]] = t.base + offset[i];
    end_ = std::max(end_, t.base + height);
  }

  void find_peak() {
    const std::vector<std::uint64_t> live = live_bytes(p_, plan_.lifetime, made_.tier);
    const auto most = std::max_element(live.begin(), live.end());
    if (most == live.end()) return;
    made_.peak_tensor_bytes = *most;
    made_.peak_op = static_cast<std::uint32_t>(most - live.begin());
  }

  const Program& p_;
  MemoryPlan& plan_;  // lifetimes are read, offsets written
  TierPlan made_;
  std::vector<BufferId> in_section_;  // of one section each, or of none
  std::uint64_t end_ = 0, below_gradients_ = 0;
  std::uint64_t enough_;
};

}  // namespace

MemoryPlan place(const Program& p, std::uint64_t enough) {
  MemoryPlan plan;
  plan.lifetime = lifetimes(p);
  plan.offset.assign(p.buffers.size(), UINT64_MAX);
  static_cast<TierPlan&>(plan) = Placer(p, p.traits.tier, plan, enough).run();
  for (Tier t : {Tier::kDevice, Tier::kPinned, Tier::kHost, Tier::kDisk}) {
    const bool used = std::any_of(p.buffers.begin(), p.buffers.end(), [&](const Buffer& b) {
      return b.tier == t && b.storage != Storage::kExternal;
    });
    if (used && t != p.traits.tier) plan.others.push_back(Placer(p, t, plan, 0).run());
  }
  plan.digest = digest(p, plan.offset);
  return plan;
}

TierPlan MemoryPlan::of(Tier t) const {
  if (t == tier) return *this;
  for (const TierPlan& o : others)
    if (o.tier == t) return o;
  TierPlan none;
  none.tier = t;
  return none;
}

}  // namespace trainhost::placement
