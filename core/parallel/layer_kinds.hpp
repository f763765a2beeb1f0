// Layers of a decoder by kind: equal layers are one kind wherever they are, so that alternating local and
// global attention (Gemma 2 and 3) gives two kinds. Counts the layers of a kind in a range of layers; used by
// pipeline_stage.hpp. Computes no bytes.
#pragma once
#include <cassert>
#include <cstdint>
#include <vector>

#include "core/model/architecture.hpp"

namespace trainhost::parallel {

class LayerKinds {
 public:
  /// Refers to the layers of `a`, which must outlive it. O(runs * kinds).
  explicit LayerKinds(const model::Architecture& a);

  std::size_t size() const { return kinds_.size(); }
  const model::Layer& layer(std::size_t kind) const { return *kinds_[kind].layer; }
  /// Number of layers of all kinds.
  std::uint64_t layers() const { return layers_; }
  /// Number of layers of one kind.
  std::uint64_t count(std::size_t kind) const { return kinds_[kind].count; }
  /// Layers of `kind` among layers from .. to - 1. O(log runs); O(1) for a single kind.
  std::uint64_t within(std::size_t kind, std::uint64_t from, std::uint64_t to) const {
    assert(from <= to && to <= layers_);
    return kinds_.size() == 1 ? to - from : before(kind, to) - before(kind, from);
  }
  /// One LayerRun per kind, ordered by first layer; for sums that do not depend on the position of layers.
  std::vector<model::LayerRun> merged() const;

 private:
  struct Run {
    std::uint64_t first, count, before;  // before: layers of the kind in earlier runs
  };
  struct Kind {
    const model::Layer* layer;
    std::uint64_t count;
    std::vector<Run> runs;
  };
  std::uint64_t before(std::size_t kind, std::uint64_t at) const;

  std::vector<Kind> kinds_;
  std::uint64_t layers_ = 0;
};

}  // namespace trainhost::parallel
