// FSDP1 (FullyShardedDataParallel of torch.distributed.fsdp): flat parameters on rank 0, when they are
// gathered and their gradients reduced. Describes torch 2.15. Called as FSDP2 is (fsdp.hpp).
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/frameworks/sharding/fsdp.hpp"

namespace trainhost::frameworks {

/// Every layer is a unit, and what is outside of the layers is the root unit. The parameters of a unit are
/// views of one flat tensor, of which a rank has a shard. A unit is gathered before its forward pass: the
/// shard is cast in mixed precision and gathered into the memory of the flat tensor, which is freed after the
/// forward pass and gathered again before the backward pass. The backward pass concatenates the gradients of
/// all views; the result is reduced, and cast to the type of the shard.
///
/// Units with numbers above those of the layers are in a layer: the matrices of adapters, each of which peft
/// makes a unit. Their layer then has frozen weights only, which have no gradient: it is freed when the
/// gradient of its input is known. A recomputation in the backward pass gathers and frees units in a layer
/// again.
///
/// With use_orig_params a unit may have trained and frozen weights. All of them are views of a tensor that
/// requires a gradient, so autograd computes the gradients of frozen weights too, and they are reduced; only
/// parts of trained weights reach the optimizer.
///
/// The hook that frees a frozen layer refers to the layer's input, and the input to the hook. Where a
/// reentrant checkpoint holds the whole unit (transformers before 4.52), that input is a leaf with its
/// gradient: both exist until the backward pass has ended, one of each per layer.
///
/// The units of one model. Weights that parameter() returns are views, without memory until their unit is
/// gathered.
class FlatFsdp : public ShardedUnits {
 public:
  FlatFsdp(Tape& tape, const FsdpPolicy& policy, std::size_t layers);

  Weight parameter(std::int32_t unit, const Shape& shape, Element type, const char* module, Element gradient,
                   bool trained = true) override;
  std::vector<Tensor> start() override;
  Element visible_type(std::int32_t unit) override;

  void before_forward(std::int32_t unit) override;
  Tensor input(std::int32_t unit, const Tensor& x) override;
  void after_forward(std::int32_t unit, const Tensor& output) override;
  void before_backward(bool reduces) override { reduces_ = reduces; }
  void after_backward() override;
  std::vector<OffloadedShard> offloaded() const override;

 private:
  struct View {
    Tensor tensor;
    std::uint64_t padding = 0;  // elements before it
    bool trained = false;
  };
  struct Unit {
    std::vector<View> views;
    Element type = Element::kF32;        // of the gathered weights
    Element shard_type = Element::kF32;  // of the shard
    bool trained = false;                // any of its weights is
    std::int32_t layer = -1;
    std::uint64_t elements = 0;        // with padding
    std::uint64_t padding_behind = 0;  // elements of padding at the end
    std::uint64_t part = 0;            // elements of a rank
    Tensor flat, shard;
    Tensor reduced;  // gradient of the shard
    // The optimizer's parameters: parts of the shard, or the shard. None if this rank has none.
    std::vector<Tensor> updated;
    bool is_gathered = false;
    bool has_views = false;        // of the next forward pass, or the one that runs
    bool shows_gathered = false;   // weights are views of the gathered tensor, not parts of the shard
    bool was_used = false;         // in a forward pass of any step
    bool awaits_forward = false;   // in this micro-batch
    bool awaits_backward = false;  // its forward pass has ended
    bool in_backward = false;      // a recomputation finds it gathered
    std::size_t place = kNoPlace;  // in order_
    std::size_t next = kNoPlace;   // unit whose first forward pass began next
  };
  static constexpr std::size_t kNoPlace = SIZE_MAX;

  Unit& unit(std::int32_t index) { return units_[static_cast<std::size_t>(index + 1)]; }
  static bool is_cast(const Unit& u) { return u.type != u.shard_type; }
  Tensor buffer(const Unit& u, std::uint64_t elements, Element type, Purpose purpose, const char* name,
                Stream stream);
  void allocate_once();
  void gather(Unit& u);
  void make_views(Unit& u);
  void use(Unit& u);
  void free_weights(Unit& u);
  void unit_before_backward(std::size_t index);
  void unit_after_backward(Unit& u);
  void gather_before(const Unit& u);
  void reduce(Unit& u);

  Tape& t_;
  FsdpPolicy policy_;
  std::vector<Unit> units_;  // root, layers, units in layers
  std::int32_t last_layer_;
  std::unordered_map<const void*, std::size_t> unit_of_flat_;
  std::vector<std::size_t> order_;     // units in the order in which their forward passes ended
  std::size_t last_begun_ = kNoPlace;  // the last unit whose first forward pass has begun
  std::vector<Tensor>
      kept_inputs_;  // of frozen layers that reentrant checkpoints recompute; they have gradients
  bool reduces_ = true;
  bool started_ = false;      // the first forward pass has begun
  bool order_known_ = false;  // the first backward pass has ended
};

}  // namespace trainhost::frameworks
