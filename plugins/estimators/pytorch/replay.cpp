#include "plugins/estimators/pytorch/replay.hpp"

#include <algorithm>

namespace trainhost::pytorch {
namespace {

/// Results of the first run, then of others, the last one used first.
class KeptReplays {
 public:
  ReplayPointer find(const model::Architecture& a, const frameworks::StepSettings& s,
                     const frameworks::AllocatorConfig& c) {
    const auto found = std::ranges::find_if(replays_, [&](const ReplayPointer& r) {
      return r->settings == s && r->allocator == c && r->architecture == a;
    });
    if (found == replays_.end()) return nullptr;
    const ReplayPointer r = *found;
    if (found != replays_.begin()) move_to_front(found);
    return r;
  }
  void erase(const ReplayPointer& r) { std::erase(replays_, r); }
  void add(const ReplayPointer& r) {
    if (replays_.size() == kMost) replays_.pop_back();
    replays_.push_back(r);
    if (replays_.size() > 1) move_to_front(replays_.end() - 1);
  }

 private:
  // A result has some hundred bytes. A run with pipeline stages has three replays, and one for each of four
  // ranks.
  static constexpr std::size_t kMost = 48, kSteps = 3;
  /// A step has some MiB, and memory that is used again is faster than new pages.
  void move_to_front(std::vector<ReplayPointer>::iterator r) {
    std::rotate(replays_.begin() + 1, r, r + 1);
    if (replays_.size() > kSteps) replays_[kSteps]->forget_step();
  }
  std::vector<ReplayPointer> replays_;
};

}  // namespace

ReplayPointer replay(const model::Architecture& a, const frameworks::StepSettings& s,
                     const frameworks::AllocatorConfig& c, std::uint64_t limit) {
  static std::mutex lock;
  static KeptReplays kept;
  {
    const std::lock_guard guard(lock);
    const ReplayPointer found = kept.find(a, s, c);
    if (found && found->answers(limit)) return found;
    // The same run on a larger device: it is calculated to its end, for still larger ones.
    if (found) {
      kept.erase(found);
      limit = UINT64_MAX;
    }
  }
  // Without the lock: other threads may replay other steps at the same time. Two that make the same one keep
  // both.
  const auto made = std::make_shared<const Replay>(a, s, c, limit);
  const std::lock_guard guard(lock);
  kept.add(made);
  return made;
}

}  // namespace trainhost::pytorch
