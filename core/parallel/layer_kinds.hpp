// The layers of a decoder by kind: equal layers are one kind wherever they stand, so that local and global
// attention in turn (Gemma 2 and 3) are two kinds and not a run a layer. Answers how many of a kind lie in a
// stretch of layers; knows no bytes. What a stage does with the answer: pipeline_stage.hpp.
#pragma once
#include <cstdint>
#include <vector>

#include "core/model/architecture.hpp"

namespace trainhost::parallel {

class LayerKinds {
 public:
  /// Refers to the layers of `a`, which outlives it. O(runs * kinds), once a model.
  explicit LayerKinds(const model::Architecture& a);

  std::size_t size() const { return kinds_.size(); }
  const model::Layer& layer(std::size_t kind) const { return *kinds_[kind].layer; }
  /// Of all kinds.
  std::uint64_t layers() const { return layers_; }
  /// Of one.
  std::uint64_t count(std::size_t kind) const { return kinds_[kind].count; }
  /// Layers of `kind` among layers from .. to - 1. O(log runs); O(1) where all layers are alike.
  std::uint64_t within(std::size_t kind, std::uint64_t from, std::uint64_t to) const {
    return kinds_.size() == 1 ? to - from : before(kind, to) - before(kind, from);
  }
  /// One run a kind, in the order of their first layers: for sums that do not ask where a layer stands.
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
