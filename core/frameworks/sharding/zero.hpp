// ZeRO stages 1 and 2 of DeepSpeed: which memory the reduction of gradients and the step of the sharded
// optimizer allocate on one rank, and when it is freed, and what an offloaded optimizer keeps in host memory.
// Describes DeepSpeed 0.19 with torch 2.15. Stage 3: zero3.hpp.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "core/frameworks/autograd/tape.hpp"
#include "core/frameworks/trace/host_memory.hpp"

namespace trainhost::frameworks {

struct StepSettings;
class OptimizerStep;
class ZeroScript;

/// The rank whose partition has a part of most parameters, in elements of these parameters.
inline constexpr std::uint32_t kFullestRank = ~std::uint32_t{0};

struct ZeroPolicy {
  std::uint32_t stage = 0;             // 1 to 3; 0: no DeepSpeed
  std::uint32_t ranks = 1;             // data-parallel ranks
  std::uint32_t rank = kFullestRank;   // that is described
  std::uint64_t bucket = 500'000'000;  // elements: reduce_bucket_size
  bool overlap = false;                // overlap_comm: a second bucket
  bool separate_vectors = true;        // norms and biases are a group of their own, without weight decay
  bool offload_optimizer = false;      // f32 weights, f32 gradients and moments are in host memory
  bool offload_parameters = false;     // the parts of the weights are in host memory; stage 3 only
  bool pinned = true;                  // pin_memory of both
  // Stage 3; elements. The defaults are those of DeepSpeed.
  std::uint64_t sub_group = 1'000'000'000;            // of a rank, that are updated together
  std::uint64_t prefetch = 50'000'000;                // gathered early
  std::uint64_t persistence = 100'000;                // parameters up to this size stay gathered,
  std::uint64_t persistence_sum = ~std::uint64_t{0};  // up to this sum
  std::uint64_t max_live = 1'000'000'000;             // gathered at the same time
  std::uint64_t reuse_distance = 1'000'000'000;       // until the next use of a parameter that stays gathered
  bool operator==(const ZeroPolicy&) const = default;
};

/// The weights of a group of parameters are one flat tensor, padded, in the type of the model. A rank has a
/// partition of it: an f32 copy and the moments. Gradients are copied into a bucket, in the order of the
/// backward pass (stage 2, or with overlapped communication) or after it in the order of the parameters
/// (stage 1), and freed there. A full bucket is reduced. What belongs to the rank's partition is copied into
/// the buffer of its gradients, which later micro-batches are added to.
///
/// With offload_optimizer there is no buffer of gradients: each reduced gradient is copied to the host, in
/// f32 after the last micro-batch, and the host updates the partition. Stage 2 keeps sums of micro-batches in
/// host memory too, and copies them back to add to them.
///
/// The weights, gradients and optimizer of one rank. All arguments must outlive it.
class Zero {
 public:
  /// trained: in the order of model.parameters().
  Zero(Tape& tape, const StepSettings& settings, const std::vector<Tensor>& trained);
  ~Zero();
  Zero(const Zero&) = delete;
  Zero& operator=(const Zero&) = delete;

  /// boundary: the last micro-batch of a step.
  void before_backward(bool boundary);
  /// The gradient of a parameter is complete.
  void after_gradient(const Tensor& parameter);
  void after_backward();
  /// Norm of the gradients, update of the partition, update of the weights.
  void step();
  const HostMemory& host() const { return host_; }

 private:
  /// Parameters that one call of the optimizer updates; positions are elements of the flat tensor.
  struct Group {
    std::vector<Tensor> parameters;
    std::vector<std::uint64_t> offsets;
    std::uint64_t partition = 0;  // elements of a rank
    std::vector<Tensor> master;   // one: the f32 weights of the partition
    std::unique_ptr<OptimizerStep> optimizer;
  };
  struct Place {
    std::size_t group = 0;
    std::uint64_t offset = 0, elements = 0;
  };

  void add_group(std::vector<Tensor> parameters);
  void choose_rank();
  const Place& place(const Tensor& parameter) const { return places_.at(parameter.get()); }
  bool is_own(const Place& p) const;
  Tensor buffer(std::uint64_t elements, Element type, Purpose purpose, const char* name);
  void offload_partition(std::uint64_t elements);
  void put_into_bucket(const Tensor& parameter);
  void reduce_bucket();
  void flatten_slices();
  void copy_to_host(const Tensor& parameter);
  std::uint64_t own_part(const Place& p) const;
  // Where calls are noted only (zero_script.hpp).
  void declare();
  void note_gradient(const Tensor& parameter, bool handed_over);
  void note_after_backward();

  Tape& t_;
  const StepSettings& s_;
  const ZeroPolicy& policy_;
  ZeroScript* const script_;  // none: the calls are carried out
  const std::vector<Tensor>& trained_;
  std::unordered_map<const TensorBody*, std::uint32_t> ordinals_;  // of the parameters in their layers
  std::uint32_t rank_ = 0;
  Element type_;  // of weights and gradients
  std::vector<Group> groups_;
  std::unordered_map<const TensorBody*, Place> places_;
  std::vector<Tensor> padding_;     // of the flat tensors
  std::uint64_t own_elements_ = 0;  // of all parameters that the partition has a part of

  bool boundary_ = true;
  bool sums_micro_batches_ = false;  // stage 2: more than one of them is reduced per step
  std::vector<Tensor> buckets_;      // memory
  std::vector<Tensor> in_bucket_;
  std::uint64_t bucket_elements_ = 0;
  Tensor own_;     // gradients of this micro-batch that belong to the partition
  Tensor summed_;  // of the micro-batches before
  std::vector<Tensor> gradient_padding_;

  HostMemory host_;
  Tensor from_host_;           // sums that were copied back
  std::vector<Tensor> norms_;  // of the gradients that were copied to the host
  std::set<const TensorBody*> summed_on_host_;
};

}  // namespace trainhost::frameworks
