// FSDP2 (fully_shard of torch.distributed.fsdp): which memory the gathering of weights and the reduction of
// gradients allocate on rank 0, and when it is freed. Describes torch 2.15. A model calls it around its
// layers (step_model.hpp). FSDP1: flat_fsdp.hpp.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/frameworks/autograd/tape.hpp"

namespace trainhost::frameworks {

/// backward_prefetch of FSDP1: the unit whose backward pass is next is gathered before or after that of a
/// unit.
enum class BackwardPrefetch : std::uint8_t { kNone, kBefore, kAfter };

struct FsdpPolicy {
  std::uint32_t ranks = 0;         // that share the weights; 0: no FSDP
  Element shards = Element::kF32;  // of trained weights, gradients after the reduction, and moments
  std::optional<Element>
      frozen;  // of frozen weights, beside which adapters are trained; else that of `shards`
  Element reduce = Element::kF32;  // of the reduction; also of gradients that are summed before it
  /// Weights of layers are freed after their forward pass; those of the root unit never are.
  bool reshard_after_forward = true;
  /// Every micro-batch reduces its gradients; otherwise only the last one of a step does.
  bool reduce_every_micro_batch = true;
  /// The outputs of the model are cast to the type of the gathered weights.
  bool casts_output = false;
  /// The embedding, and the last norm with the head, are units of their own; the second of them is not freed
  /// after its forward pass. Otherwise both belong to the root.
  bool separate_ends = false;
  bool frees_last = false;  // the second of them is freed too
  /// All weights stay gathered and no gradient is reduced until reduce_all(), as in a pipeline stage.
  bool reduces_at_end = false;
  /// The input of the last reduction of reduce_all() stays until the first one of the next step: stages of
  /// torch before 2.7 do not call the final callback of the backward pass, which frees it.
  bool keeps_last_reduction = false;
  /// Gradients that are kept are cast and summed after the backward pass of their unit, as in torch of 2024;
  /// otherwise where each is computed.
  bool sums_by_unit = false;
  /// fully_shard() of the model alone: all weights are one unit, which is freed where layers would be.
  bool one_unit = false;
  /// CPUOffloadPolicy, or CPUOffload of FSDP1: shards, their gradients and the optimizer are in host memory.
  bool offloads = false;
  /// The last layer stays gathered after its forward pass.
  bool keeps_last_layer = false;
  /// FSDP1, of which these are settings.
  bool flat = false;
  bool original_parameters = true;  // use_orig_params
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kNone;
  bool prefetches_forward = false;  // forward_prefetch
  /// Of FSDP1: gathers, reduces and has buffers in the type of the reduction.
  bool is_mixed() const { return reduce != shards; }
  bool operator==(const FsdpPolicy&) const = default;
};

/// The units of a sharded model, as models call them.
class ShardedUnits {
 public:
  virtual ~ShardedUnits() = default;
  struct Weight {
    Tensor full, shard;
  };
  /// Units that are no layer: the root, the embedding, the last norm with the head, and the experts of layer
  /// i, kExperts - i.
  static constexpr std::int32_t kRoot = -1, kFirst = -2, kLast = -3, kExperts = -4;
  /// type: of the gathered weight. gradient: before the reduction. Tape::layer names it. A frozen weight has
  /// no gradient, so it is not reduced.
  virtual Weight parameter(std::int32_t unit, const Shape& shape, Element type, const char* module,
                           Element gradient, bool trained = true) = 0;
  /// After the last parameter. Returns what the optimizer updates, where it is not the shards of parameter().
  virtual std::vector<Tensor> start() { return {}; }
  /// Of the weight of a unit, as code outside of the unit finds it: that of the shard or of the gathered
  /// weight. Only FSDP1.
  virtual Element visible_type(std::int32_t) { return Element::kF32; }

  virtual void before_forward(std::int32_t unit) = 0;
  /// `x` as the unit sees it; when its gradient is known, the backward pass of the unit has ended.
  virtual Tensor input(std::int32_t unit, const Tensor& x) = 0;
  /// output: of the unit; before its gradient is used, the unit is gathered.
  virtual void after_forward(std::int32_t unit, const Tensor& output) = 0;
  /// reduces: this micro-batch ends with reduced gradients.
  virtual void before_backward(bool reduces) = 0;
  virtual void after_backward() = 0;
  /// Frees all gathered weights and reduces all gradients.
  virtual void reduce_all() {}
  struct OffloadedShard {
    std::uint64_t elements = 0;
    Element type = Element::kF32;
    bool trained = false;
    std::int32_t layer = -1;
  };
  virtual std::vector<OffloadedShard> offloaded() const { return {}; }
};

/// Every layer is a unit, and what is outside of the layers is the root unit. A unit is gathered before its
/// forward pass and before its backward pass: the shards are cast into a flat input, gathered into one
/// buffer, and copied into the weights. In the forward pass the buffer stays until the next unit has been
/// gathered; in the backward pass the unit before it is gathered early. After the backward pass of a unit its
/// gradients are copied into the input of the reduction, which stays until the reduction of the next unit
/// begins.
///
/// The units of one model. Weights that parameter() returns have no memory until their unit is gathered.
class Fsdp : public ShardedUnits {
 public:
  Fsdp(Tape& tape, const FsdpPolicy& policy, std::size_t layers);
  /// Experts of a layer are a unit inside of the layer's, and other ranks share them. Before the first of
  /// their parameters. Their units are then gathered early as set_modules_to_forward_prefetch() and
  /// set_modules_to_backward_prefetch() of torchtitan say: with the layer that is next.
  void separate_experts(std::uint32_t ranks);
  /// Of the experts of a layer: sharded along the dimension `dim`.
  Tensor expert_parameter(std::int32_t layer, const Shape& shape, Element type, const char* module, int dim,
                          Tensor& shard);

  Weight parameter(std::int32_t unit, const Shape& shape, Element type, const char* module, Element gradient,
                   bool trained = true) override;
  /// A weight whose shard is that of a weight of another unit: each unit gathers it, and adds its gradient.
  Tensor tied_parameter(std::int32_t unit, const Shape& shape, Element type, const char* module,
                        Element gradient, const Tensor& shard);
  void before_forward(std::int32_t unit) override;
  Tensor input(std::int32_t unit, const Tensor& x) override;
  void after_forward(std::int32_t unit, const Tensor& output) override;
  void before_backward(bool reduces) override;
  void after_backward() override;
  void reduce_all() override;
  std::vector<OffloadedShard> offloaded() const override;

 private:
  struct Parameter {
    Tensor full, shard;
    const char* module;
    std::int32_t layer;
    Element gradient_type;
    Tensor sum;  // of the gradients of earlier micro-batches, in the type of the reduction
    const Tensor& gradient() const { return sum ? sum : full->grad; }
  };
  enum class State : std::uint8_t { kIdle, kBeforeBackward, kAfterBackward };
  struct Unit {
    std::vector<Parameter> parameters;
    std::uint64_t gathered_bytes = 0;  // from this rank
    std::uint64_t cast_bytes = 0;  // of gathered_bytes: of shards in another type than the gathered weight
    Tensor gathered;               // not yet copied into the weights
    bool whole = false;
    std::uint32_t ranks = 1;
    State state = State::kIdle;
    std::vector<std::size_t> uses;  // indices of order_
  };

  Unit& unit(std::int32_t index);
  Tensor add(std::int32_t index, const Shape& shape, Element type, const char* module, Element gradient,
             const Tensor& shard);
  bool stays_gathered(std::int32_t index) const;
  Weight sharded(std::int32_t index, Shape part, const Shape& shape, Element type, const char* module,
                 Element gradient, bool trained);
  void gather_layer(std::int32_t layer);
  Tensor buffer(const Unit& u, std::uint64_t bytes, Purpose purpose, const char* name, Stream stream);
  void gather(Unit& u);
  void copy_out(Unit& u, bool forward);
  void free_weights(Unit& u);
  void unit_before_backward(Unit& u);
  void unit_after_backward(Unit& u);
  void sum_gradients(Unit& u);
  void reduce(Unit& u);

  Tape& t_;
  FsdpPolicy policy_;
  std::int32_t layers_;
  bool explicit_ = false;     // separate_experts()
  std::vector<Unit> units_;   // root, first, layers, last, experts of the layers
  std::vector<Unit*> order_;  // of the forward passes
  Tensor last_gathered_;      // of the forward pass
  Tensor reduced_;            // input of the last reduction
  bool reduces_ = true;
};

}  // namespace trainhost::frameworks
