// See transfer_costs.hpp. With P parameters and T tokens per step, training takes 6 P T operations and
// inference 2 P T.
#include "core/planning/transfer_costs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/parallel/step_time.hpp"

namespace trainhost::planning {
namespace {

constexpr double kPeakFraction = 0.4;  // achieved over a whole step; large matrix products alone achieve more
                                       // (core/parallel/machine_rates.cpp)
constexpr double kHostMemoryBytesPerS = 100e9;

/// Where no device is named: a mid-size one, so that costs have the right order of magnitude.
DevicePreset unknown_device() {
  DevicePreset d{};
  d.memory_gbs = 1000, d.bf16_tflops = 100, d.link_gbs = 100;
  return d;
}

parallel::Machine machine(const runfile::RunConfig& c) {
  const DevicePreset* d = find_device_preset(c.device);
  return parallel::machine_of(d ? *d : unknown_device(), c.run);
}

double peak_flops(const runfile::RunConfig& c) { return machine(c).flops; }
double host_link(const ChangeContext& s) { return machine(s.config).host_bytes_s; }

/// Arithmetic of one optimizer step on one rank.
double compute_seconds(const ChangeContext& s) {
  const RunSpec& r = s.config.run;
  const double passes = r.mode == RunMode::kInference ? 2 : 6;
  const double ranks = double(r.parallel.tensor) * r.parallel.pipeline * r.parallel.context;
  const double operations = passes * double(s.parameters) * double(r.tokens_per_step()) / ranks;
  return operations > 0 ? operations / (kPeakFraction * peak_flops(s.config)) : 1;
}

/// Parameters per rank, including experts that a token does not use: all of them are transferred.
double parameters_per_rank(const ChangeContext& s) {
  const RunSpec& r = s.config.run;
  return double(s.all_parameters ? s.all_parameters : s.parameters) /
         (double(r.parallel.tensor) * r.parallel.pipeline);
}

double weight_bytes(const ChangeContext& s) {
  return parameters_per_rank(s) * bits_of(s.config.run.weight) / 8;
}
double gradient_bytes(const ChangeContext& s) { return parameters_per_rank(s) * size_of(s.config.run.grad); }

/// Reads weights, gradients and two moments in f32 and writes all but the gradients. Tensor-parallel ranks
/// share one host, so their updates share its memory bandwidth.
double host_update_seconds(const ChangeContext& s) {
  return parameters_per_rank(s) * s.config.run.parallel.tensor * 4 * 7 / kHostMemoryBytesPerS;
}

/// One generated token per sequence: the longer of arithmetic and reading the weights. Each sequence may use
/// other experts, so up to micro_batch times the weights per token are read.
double token_seconds(const ChangeContext& s) {
  const RunSpec& r = s.config.run;
  const double ranks = double(r.parallel.tensor) * r.parallel.pipeline;
  const double used = std::min(parameters_per_rank(s), double(s.parameters) * r.micro_batch / ranks);
  const double reading = used * bits_of(r.weight) / 8 / machine(s.config).memory_bytes_s;
  return std::max(reading,
                  2 * double(s.parameters) * r.micro_batch / ranks / (kPeakFraction * peak_flops(s.config)));
}

}  // namespace

double optimizer_offload_cost(const ChangeContext& s) {
  return ((gradient_bytes(s) + weight_bytes(s)) / host_link(s) + host_update_seconds(s)) / compute_seconds(s);
}
double weight_offload_cost(const ChangeContext& s) {
  if (s.config.run.mode == RunMode::kInference)
    return s.parameters ? weight_bytes(s) / host_link(s) / token_seconds(s) : 1;
  return 2 * weight_bytes(s) * s.config.run.accumulate / host_link(s) / compute_seconds(s);
}
double activation_offload_cost(const ChangeContext& s) {
  return 2 * double(s.activation_bytes) * s.config.run.accumulate / host_link(s) / compute_seconds(s);
}
double streaming_cost(const ChangeContext& s) {
  return weight_offload_cost(s) +
         (gradient_bytes(s) * s.config.run.accumulate / host_link(s) + host_update_seconds(s)) /
             compute_seconds(s);
}
double zero3_gather_cost(const ChangeContext& s) {
  return weight_bytes(s) * s.config.run.accumulate / machine(s.config).link_bytes_s / compute_seconds(s);
}

std::string describe_extra_time(double share) {
  if (share < 0.005) return "under 0.5 % more time";
  if (share < 1) return fmt::format("about {:.0f} % more time", 100 * share);
  return fmt::format("a step takes about {:.{}f} times as long", 1 + share, share < 9 ? 1 : 0);
}

}  // namespace trainhost::planning
