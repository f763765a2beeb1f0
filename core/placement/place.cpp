// place(): offsets and peak of a program, tier by tier. Persistent buffers are at the bottom: weights,
// moments, others, and gradients last, because eval and generate reuse the bytes of the gradients. The
// transient buffers of each section are packed (pack.cpp) above the buffers that persist while it runs;
// sections never run at the same time. If gradients are live for a part of them only
// (writes_gradients_once()), micro and update are packed as one section, gradients among its buffers. The
// peak is computed in find_peak().
#include <algorithm>
#include <array>
#include <cassert>
#include <vector>

#include "core/base/checked.hpp"
#include "core/placement/memory_plan.hpp"
#include "core/placement/pack.hpp"

namespace trainhost::placement {
namespace {

/// Order of the persistent regions.
int region_of(const Buffer& b) {
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
constexpr int kRegions = 4;

/// Places the buffers of one tier.
class TierPlacer {
 public:
  TierPlacer(const Program& p, Tier tier, MemoryPlan& plan, std::uint64_t enough)
      : p_(p), plan_(plan), gradients_once_(writes_gradients_once(p)), enough_(enough) {
    made_.tier = tier;
  }

  TierPlan run() {
    check_total_size();
    place_persistent();
    std::vector<SectionItems> sections;
    for (const Section& s : p_.sections) {
      if (gradients_once_ && s.kind == SectionKind::kUpdate) continue;
      sections.push_back(empty_items(s));
      if (gradients_once_ && s.kind == SectionKind::kMicro)
        sections.back().section.end = p_.section(SectionKind::kUpdate).end;
    }
    assign_to_sections(sections);
    // The section with the largest bound comes first and usually decides the arena; the others stop as soon
    // as they fit below it.
    std::stable_sort(sections.begin(), sections.end(), [](const SectionItems& a, const SectionItems& b) {
      return a.base + a.bound > b.base + b.bound;
    });
    for (const SectionItems& t : sections) place_section(t);
    made_.arena_bytes = align_up(end_, p_.traits.alignment);
    find_peak();
    assert(made_.arena_bytes >= made_.peak_tensor_bytes && made_.arena_bytes >= made_.persistent_bytes);
    return made_;
  }

 private:
  struct SectionItems {
    Section section;
    std::uint64_t base = 0, bound = 0;  // start of its transient buffers; lower bound on their height
    std::vector<BufferId> ids;
    std::vector<PackItem> items;
  };

  bool in_this_tier(BufferId b) const {
    return p_[b].tier == made_.tier && p_[b].storage != Storage::kExternal;
  }
  std::uint64_t padded(const Buffer& b) const { return align_up(b.bytes(), p_.traits.alignment); }

  /// Throws if the sum of all sizes exceeds 63 bits; no partial sum can overflow afterwards.
  void check_total_size() const {
    std::uint64_t sum = 0;
    for (BufferId b = 0; b < p_.buffers.size(); ++b)
      if (in_this_tier(b)) sum = checked_add(sum, padded(p_[b]), "the memory plan");
  }

  /// Places persistent buffers, and transient ones that are live in several sections, region by region. Every
  /// other buffer belongs to one section.
  void place_persistent() {
    std::array<std::vector<BufferId>, kRegions> region;
    for (BufferId b = 0; b < p_.buffers.size(); ++b) {
      if (!in_this_tier(b)) continue;
      if (is_packed_gradient(b)) {
        in_section_.push_back(b);
        made_.persistent_bytes += p_[b].bytes();
      } else if (outlives_section(b))
        region[static_cast<std::size_t>(region_of(p_[b]))].push_back(b);
      else
        in_section_.push_back(b);
    }
    for (int r = 0; r < kRegions; ++r) {
      for (BufferId b : region[static_cast<std::size_t>(r)]) {
        plan_.offset[b] = end_;
        end_ += padded(p_[b]);
        if (p_[b].persistent) made_.persistent_bytes += p_[b].bytes();
      }
      if (r < kRegions - 1) below_gradients_ = end_;
    }
  }

  bool is_packed_gradient(BufferId b) const {
    // A rank's part of a small tensor may be empty, which packing does not take.
    return gradients_once_ && p_[b].persistent && p_[b].component == Component::kGradients &&
           p_[b].bytes() > 0;
  }
  /// Persistent, or transient and used by several sections. build_program() makes no buffer of the second
  /// kind.
  bool outlives_section(BufferId b) const {
    if (p_[b].persistent) return true;
    if (!plan_.lifetime[b].used()) return false;
    const auto in = [&](std::uint32_t op) {
      return std::find_if(p_.sections.begin(), p_.sections.end(),
                          [&](const Section& s) { return s.begin <= op && op < s.end; });
    };
    const auto first = in(plan_.lifetime[b].first), last = in(plan_.lifetime[b].last);
    return first != last || first == p_.sections.end();
  }

  SectionItems empty_items(const Section& s) const {
    SectionItems t;
    t.section = s;
    const bool holds_gradients = s.kind == SectionKind::kMicro || s.kind == SectionKind::kUpdate;
    t.base = holds_gradients ? end_ : below_gradients_;
    return t;
  }

  /// Adds every transient buffer to the section in which it is live.
  void assign_to_sections(std::vector<SectionItems>& sections) {
    for (BufferId b : in_section_) {
      const Lifetime& l = plan_.lifetime[b];
      if (!l.used()) plan_.offset[b] = 0;
      for (SectionItems& t : sections) {
        if (!l.used() || l.first < t.section.begin || l.first >= t.section.end) continue;
        t.ids.push_back(b);
        t.items.push_back(
            {l.first - t.section.begin, l.last - t.section.begin, padded(p_[b]), is_packed_gradient(b)});
        break;
      }
    }
    for (SectionItems& t : sections) t.bound = pack_bound(t.items, t.section.end - t.section.begin);
  }

  void place_section(const SectionItems& t) {
    const std::uint64_t top = std::max(end_, enough_), available = top > t.base ? top - t.base : 0;
    std::vector<std::uint64_t> offset;
    const std::uint64_t height = pack(t.items, t.section.end - t.section.begin, available, offset);
    for (std::size_t i = 0; i < t.ids.size(); ++i) {
      assert(offset[i] % p_.traits.alignment == 0 && offset[i] + t.items[i].size <= height);
      plan_.offset[t.ids[i]] = t.base + offset[i];
    }
    end_ = std::max(end_, t.base + height);
  }

  /// The peak: the operation at which the most tensor bytes of this tier are live.
  void find_peak() {
    const std::vector<std::uint64_t> live = live_bytes(p_, plan_.lifetime, made_.tier);
    const auto most = std::max_element(live.begin(), live.end());
    if (most == live.end()) return;
    made_.peak_tensor_bytes = *most;
    made_.peak_op = static_cast<std::uint32_t>(most - live.begin());
  }

  const Program& p_;
  MemoryPlan& plan_;  // lifetimes are read, offsets written
  const bool gradients_once_;
  TierPlan made_;
  std::vector<BufferId> in_section_;  // buffers of one section, or without a use
  std::uint64_t end_ = 0, below_gradients_ = 0;
  std::uint64_t enough_;
};

}  // namespace

MemoryPlan place(const Program& p, std::uint64_t enough) {
  MemoryPlan plan;
  plan.lifetime = lifetimes(p);
  plan.offset.assign(p.buffers.size(), UINT64_MAX);
  static_cast<TierPlan&>(plan) = TierPlacer(p, p.traits.tier, plan, enough).run();
  for (Tier t : kAllTiers) {
    const bool used = std::any_of(p.buffers.begin(), p.buffers.end(), [&](const Buffer& b) {
      return b.tier == t && b.storage != Storage::kExternal;
    });
    if (used && t != p.traits.tier) plan.others.push_back(TierPlacer(p, t, plan, 0).run());
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
