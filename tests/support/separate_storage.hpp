// A storage that takes every buffer by itself at its first use and gives it back after its last, by a rule of
// its own: it reads the operations and knows no plan. Counts the most bytes alive at once, fills fresh
// buffers with NaN, and puts a guard band around each, which is looked at after every operation that names
// the buffer. For tests alone.
#pragma once
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/executor/storage.hpp"

namespace trainhost::test {

class SeparateStorage final : public executor::Storage {
 public:
  explicit SeparateStorage(const step::Program& p)
      : p_(p), first_(p.buffers.size(), UINT32_MAX), last_(p.buffers.size(), 0), blocks_(p.buffers.size()) {
    for (std::uint32_t i = 0; i < p.ops.size(); ++i)
      for (step::BufferId b : named(p.ops[i]))
        first_[b] = std::min(first_[b], i), last_[b] = std::max(last_[b], i);
    for (step::BufferId b = 0; b < p.buffers.size(); ++b)
      if (p.buffers[b].persistent && !gradient(b)) take(b);
    const step::Section micro = p.section(step::SectionKind::kMicro),
                        update = p.section(step::SectionKind::kUpdate),
                        generate = p.section(step::SectionKind::kGenerate);
    for (step::BufferId b = 0; b < p.buffers.size(); ++b) {
      if (gradient(b) && (p.run.accumulate > 1 || p.traits.tier != Tier::kHost))
        first_[b] = micro.begin, last_[b] = update.end - 1;  // from micro-batch to micro-batch
      if (p.buffers[b].component == Component::kKvCache)
        first_[b] = generate.begin, last_[b] = UINT32_MAX;  // from token to token
    }
    starts_.resize(p.ops.size()), ends_.resize(p.ops.size());
    for (step::BufferId b = 0; b < p.buffers.size(); ++b) {
      if (!transient(b)) continue;
      starts_[first_[b]].push_back(b);
      if (last_[b] != UINT32_MAX) ends_[last_[b]].push_back(b);
    }
  }

  void* at(step::BufferId b) override {
    if (blocks_[b].empty()) throw std::logic_error("buffer " + p_[b].name() + " is used while it is dead");
    return blocks_[b].data() + kGuard;
  }
  void enter(std::uint32_t op) override {
    for (step::BufferId b : starts_[op])
      if (blocks_[b].empty()) take(b);
    peak_ = std::max(peak_, now_);
  }
  void leave(std::uint32_t op) override {
    for (step::BufferId b : named(p_.ops[op])) check_guards(b);
    for (step::BufferId b : ends_[op]) drop(b);
  }
  std::uint64_t peak() const { return peak_; }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kMark = 0xA5;

  bool gradient(step::BufferId b) const {
    return p_[b].persistent && p_[b].component == Component::kGradients;
  }
  bool transient(step::BufferId b) const {
    return p_[b].storage == step::Storage::kArena && first_[b] != UINT32_MAX &&
           (!p_[b].persistent || gradient(b));
  }
  static std::vector<step::BufferId> named(const step::Op& op) {
    std::vector<step::BufferId> all;
    for (step::BufferId b : op.inputs())
      if (b != step::kNoBuffer) all.push_back(b);
    all.insert(all.end(), op.outputs().begin(), op.outputs().end());
    return all;
  }
  // Persistent buffers start as the host's memory does, zero-filled; the others hold whatever is worst.
  void take(step::BufferId b) {
    const std::uint64_t bytes = p_[b].bytes();
    blocks_[b].assign(bytes + 2 * kGuard, kMark);
    if (p_[b].persistent && !gradient(b))
      std::memset(blocks_[b].data() + kGuard, 0, bytes);
    else
      fill_nan(blocks_[b].data() + kGuard, bytes);
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  static void fill_nan(unsigned char* p, std::uint64_t bytes) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (std::uint64_t i = 0; i + 4 <= bytes; i += 4) std::memcpy(p + i, &nan, 4);
  }
  void drop(step::BufferId b) {
    check_guards(b);
    now_ -= p_[b].bytes();
    std::vector<unsigned char>().swap(blocks_[b]);
  }
  void check_guards(step::BufferId b) const {
    const auto& block = blocks_[b];
    if (block.empty()) return;
    for (std::size_t i = 0; i < kGuard; ++i)
      if (block[i] != kMark || block[block.size() - 1 - i] != kMark)
        throw std::logic_error("something wrote beside buffer " + p_[b].name());
  }

  const step::Program& p_;
  std::vector<std::uint32_t> first_, last_;
  std::vector<std::vector<step::BufferId>> starts_,
      ends_;  // per operation: buffers whose life starts, ends there
  std::vector<std::vector<unsigned char>> blocks_;
  std::uint64_t now_ = 0, peak_ = 0;
};

}  // namespace trainhost::test
