// How long one update takes under a layout, by roofline: for every kind of work the larger of its arithmetic
// at the device's peak and its bytes at the memory's bandwidth, plus what the network adds that nothing
// hides. A model to rank layouts by, with its terms stated (README.md), never a promise.
#pragma once
#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::parallel {

/// What the model assumes of a machine. Bandwidths in bytes a second, one direction; flops a second for the
/// run's type.
struct Machine {
  double flops = 0, memory_bytes_s = 0;
  double link_bytes_s = 0;       // between devices of one node
  double network_bytes_s = 0;    // between nodes, per device
  double host_bytes_s = 0;       // device to host memory, for offload
  double disk_bytes_s = 0;       // device to NVMe, per device, for offload
  std::uint32_t node = 8;        // devices of a node
  double matrix_efficiency = 0;  // of the peak that large products reach
  std::uint64_t memory_bytes = 0;
};
Machine machine_of(const DevicePreset& d, const RunSpec& r);

/// Seconds of one update of accumulate micro-batches a data-parallel rank. step = the slowest stage's time
/// with the bubble.
struct Times {
  double compute = 0, memory = 0, recompute = 0, tensor = 0, context = 0, expert = 0, pipeline = 0, data = 0,
         bubble = 0, optimizer = 0, offload = 0;  // exposed, each; they sum to step
  double step = 0;
  double tokens_per_second = 0;  // of the whole job
  double model_flops_utilization = 0;
};
Times step_time(const model::Architecture& a, const RunSpec& r, const Machine& m);

/// Keys that a query sees on average, causal: (S + 1) / 2, less under a window; 0: none.
double mean_keys(double seq, double window);

/// One micro-batch through some part of the model, forward and backward, on one rank. Seconds, exposed.
struct Pass {
  double compute = 0, memory = 0, recompute = 0, tensor = 0, context = 0, expert = 0;
  double backward = 0;  // of the sum: what a gradient's way through the network can hide behind
  double sum() const { return compute + memory + recompute + tensor + context + expert; }
};

/// What every layout of one search has in common, taken out of step_time: step_time(a, r, m) is TimeModel(a,
/// r, m).step(r) to the last bit. Read-only after construction, so threads may share one.
class TimeModel {
 public:
  /// Of `r` it keeps number types, optimizer, run mode, LoRA and sequence length: what a search does not
  /// vary.
  TimeModel(const model::Architecture& a, const RunSpec& r, const Machine& m);

  /// The mean layer, and the LM head with its loss and the embedding. Depends on micro_batch, tensor,
  /// sequence, context, expert, recompute, attention and cross_entropy of `r` alone: a search
  /// computes it once for all that differs elsewhere.
  struct MicroBatch {
    Pass layer, head;
    double saved_bytes = 0 /* of activations, a layer */;
  };
  MicroBatch micro_batch(const RunSpec& r) const;

  /// The stage that an update waits for, all its micro-batches, bubble and sends included. Depends also on
  /// pipeline, interleave, accumulate and data of `r`; not on zero and offload.
  struct Stage {
    Times times;                         // data, optimizer and offload still 0
    double one = 0, back = 0;            // of a micro-batch: seconds, and its backward part
    double dense = 0, routed = 0;        // elements on a rank
    double group = 1, expert_group = 1;  // ranks that share the dense part, and the routed experts
    double wire = 0;                     // seconds that one byte an element takes once round its ring
    double saved_bytes = 0;              // of a micro-batch's activations
  };
  Stage stage(const MicroBatch& b, const RunSpec& r) const;

  /// Adds what zero and offload of `r` cost.
  Times step(const Stage& s, const RunSpec& r) const;
  /// step(s, r).step, to the bit.
  double seconds(const Stage& s, const RunSpec& r) const { return added(s, r).step; }
  Times step(const RunSpec& r) const { return step(stage(micro_batch(r), r), r); }

 private:
  struct Added {
    double data = 0, optimizer = 0, offload = 0, step = 0;
  };
  Added added(const Stage& s, const RunSpec& r) const;
  double bandwidth(double inner, double size) const;
  void add_layer(MicroBatch& b, const model::Layer& l, double share, const RunSpec& r) const;
  Pass head_pass(const RunSpec& r) const;
  double data_seconds(const Stage& s, const RunSpec& r) const;
  double offload_seconds(const Stage& s, const RunSpec& r, double held, double updated) const;

  model::Architecture a_;  // its layers one run a kind: where they stand makes no difference here
  Machine m_;
  double width_ = 2, grad_width_ = 4;  // bytes of a weight and of an activation; of a gradient
  double state_bytes_ = 0;             // of a trained element's optimizer state and master copy
  double trained_ = 1;                 // share of the parameters that are trained
  double layers_ = 0;
  double dense_ = 0,
         experts_ = 0;  // elements of the mean layer: that every token meets, and of all routed experts
  double embedding_ = 0, head_ = 0;  // elements; head_: of the product, tied or not
  double flops_per_token_ = 0;       // useful work, forward and backward
};

}  // namespace trainhost::parallel
