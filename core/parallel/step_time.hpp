// Time of one step of a run by a roofline model: for each kind of work the larger of arithmetic and memory
// traffic at the rates that programs reach, plus exposed communication by latency and bandwidth. Meant for
// ranking layouts. Terms: README.md; compared with published steps in docs/scaling.md.
#pragma once
#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::parallel {

/// Rates of a machine: those that programs reach, except for the two peak rates. Bandwidths in bytes per
/// second, one direction; latencies in seconds.
struct Machine {
  double flops = 0;       // peak rate, flops per second, of the products of the layers
  double wide_flops = 0;  // peak rate of attention and head, which stay in 16 bits where products are fp8
  double matrix_efficiency = 0;                          // share of `flops` that large products reach
  double wide_efficiency = 0, attention_efficiency = 0;  // shares of `wide_flops`: head, flash attention
  bool converts = false;  // products are in fp8: operands are converted from 16 bits before each of them
  double memory_bytes_s = 0;
  double link_bytes_s = 0;                           // between devices of one node
  double network_bytes_s = 0;                        // between nodes, per device
  double start_s = 0;                                // of each collective operation or message
  double link_latency_s = 0, network_latency_s = 0;  // of each step of a ring, of each stage of a tree
  double tensor_overlap = 0;  // share of the tensor-parallel exchange that runs during products
  double host_bytes_s = 0;    // device to host memory, for offload
  double disk_bytes_s = 0;    // device to NVMe, per device, for offload
  std::uint32_t node = 8;     // devices per node
  std::uint64_t memory_bytes = 0;
};
Machine machine_of(const DevicePreset& d, const RunSpec& r);

// Groups of `size` ranks with a distance of `inner` ranks.
/// Bytes per second of a ring. Over several nodes every rank of the ring in a node has its own network port.
double ring_bandwidth(const Machine& m, double inner, double size);
/// Seconds of an all-gather or a reduce-scatter beyond those of its bytes. A ring has size - 1 steps, of
/// which nodes - 1 leave a node.
double ring_latency(const Machine& m, double inner, double size);
/// Likewise of an all-reduce: two passes of the ring, or up and down a binary tree of nodes with a chain of
/// ranks in each node.
double all_reduce_latency(const Machine& m, double inner, double size);

/// Seconds of one step with `accumulate` micro-batches per DP rank, on the slowest stage.
struct Times {
  double compute = 0, memory = 0, recompute = 0, tensor = 0, context = 0, expert = 0, pipeline = 0, data = 0,
         bubble = 0, optimizer = 0, offload = 0;  // exposed seconds; their sum is `step`
  double step = 0;
  double tokens_per_second = 0;  // of all devices
  double model_flops_utilization = 0;
};

/// Mean number of visible keys of a query (causal): (S + 1) / 2, less with a window; window 0: none.
double mean_keys(double seq, double window);

/// The same for the attention of a layer; a chunk is a short sequence of its own.
double visible_keys(const model::Attention& a, double seq);

/// FLOPs per token of a forward pass of linear attention beyond its matrices: a product with the state to
/// read it, one to write it, and two with the other tokens of the chunk.
double recurrence_flops(const model::LinearAttention& a);

/// Exposed seconds of one micro-batch in a part of the model, forward and backward, on one rank.
struct Pass {
  double compute = 0, memory = 0, recompute = 0, tensor = 0, context = 0, expert = 0;
  double backward = 0;  // part of the sum that can overlap with gradient reduction
  double sum() const { return compute + memory + recompute + tensor + context + expert; }
};

/// Step time in three levels, so that a search computes what layouts share once; step(r) computes all three.
/// Immutable, so threads can share one.
class TimeModel {
 public:
  /// Reads from `r` only what a search does not vary: number types, optimizer, mode, LoRA, sequence length.
  TimeModel(const model::Architecture& a, const RunSpec& r, const Machine& m);

  /// The mean layer, and the LM head with loss and embedding. Depends only on micro_batch, tensor, sequence,
  /// context, expert, recompute, attention and cross_entropy of `r`.
  struct MicroBatch {
    Pass layer, head;
    double saved_bytes = 0;  // activations kept per layer
  };
  MicroBatch micro_batch(const RunSpec& r) const;

  /// The slowest stage with all its micro-batches, bubble and pipeline sends. Depends also on pipeline,
  /// virtual_stages, accumulate and data of `r`; not on zero and offload.
  struct Stage {
    Times times;                         // without data, optimizer and offload
    double one = 0, back = 0;            // seconds of a micro-batch; of its backward pass
    double dense = 0, routed = 0;        // elements per rank
    double group = 1, expert_group = 1;  // ranks with the same dense part; with the same experts
    double wire = 0;                     // seconds of one ring pass with one byte per element
    double ring = 0, reduce = 0;         // latency of a gather or scatter, of an all-reduce, of all weights
    double saved_bytes = 0;              // activations kept per micro-batch
  };
  Stage stage(const MicroBatch& b, const RunSpec& r) const;

  /// Adds the terms of zero and offload of `r`.
  Times step(const Stage& s, const RunSpec& r) const;
  /// Equal to step(s, r).step to the last bit.
  double seconds(const Stage& s, const RunSpec& r) const { return added(s, r).step; }
  Times step(const RunSpec& r) const { return step(stage(micro_batch(r), r), r); }

 private:
  struct Added {
    double data = 0, optimizer = 0, offload = 0, step = 0;
  };
  Added added(const Stage& s, const RunSpec& r) const;
  double exchange(double bytes, const RunSpec& r) const;
  void add_layer(MicroBatch& b, const model::Layer& l, double share, const RunSpec& r) const;
  Pass head_pass(const RunSpec& r) const;
  double data_seconds(const Stage& s, const RunSpec& r) const;
  double offload_seconds(const Stage& s, const RunSpec& r, double held, double updated) const;

  model::Architecture a_;  // with one LayerRun per kind of layer: their order does not matter here
  Machine m_;
  double width_ = 2, grad_width_ = 4;           // bytes of an activation, of a gradient
  double stored_width_ = 2, gather_width_ = 2;  // bytes of a stored weight; of one that ranks exchange
  double state_bytes_ = 0;                      // of a trained element's optimizer state and master copy
  double trained_ = 1;                          // share of the parameters that are trained
  double layers_ = 0;
  double dense_ = 0, experts_ = 0;   // elements of the mean layer: used by every token; of routed experts
  double embedding_ = 0, head_ = 0;  // elements; head_ also if tied
  double flops_per_token_ = 0;       // forward and backward, without recompute
};

}  // namespace trainhost::parallel
