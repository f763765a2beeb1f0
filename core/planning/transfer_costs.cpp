// See transfer_costs.hpp. P parameters, T tokens of an update; 6 P T operations forward and backward, 2 P T
// without.
#include "core/planning/transfer_costs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/parallel/step_time.hpp"

namespace trainhost::planning {
namespace {

constexpr double kReached = 0.4;  // of the peak, over a whole update; its large products alone reach more:
                                  // core/parallel/machine_rates.cpp
constexpr double kHostMemory = 100e9;

/// Where no device is named: one of middle size, so that a price still has an order of magnitude.
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
double host_link(const Situation& s) { return machine(s.config).host_bytes_s; }

/// Seconds of arithmetic of one update on this rank.
double compute_seconds(const Situation& s) {
  const RunSpec& r = s.config.run;
  const double passes = r.mode == RunMode::kInference ? 2 : 6;
  const double shared = double(r.parallel.tensor) * r.parallel.pipeline * r.parallel.context;
  const double operations = passes * double(s.parameters) * double(r.tokens_per_step()) / shared;
  return operations > 0 ? operations / (kReached * peak_flops(s.config)) : 1;
}

/// Those that a rank holds: a token uses few of the experts, but all of them are moved.
double held(const Situation& s) {
  const RunSpec& r = s.config.run;
  return double(s.all_parameters ? s.all_parameters : s.parameters) /
         (double(r.parallel.tensor) * r.parallel.pipeline);
}

double weight_bytes(const Situation& s) { return held(s) * bits_of(s.config.run.weight) / 8; }
double gradient_bytes(const Situation& s) { return held(s) * size_of(s.config.run.grad); }

/// Weights, gradient and two moments in f32, read; all but the gradient written. Tensor ranks are neighbours
/// on one host.
double host_update_seconds(const Situation& s) {
  return held(s) * s.config.run.parallel.tensor * 4 * 7 / kHostMemory;
}

/// One more token of every sequence: arithmetic, or reading the weights that the tokens use (of experts each
/// its own, at most), whichever takes longer.
double token_seconds(const Situation& s) {
  const RunSpec& r = s.config.run;
  const double ranks = double(r.parallel.tensor) * r.parallel.pipeline;
  const double used = std::min(held(s), double(s.parameters) * r.micro_batch / ranks);
  const double reading = used * bits_of(r.weight) / 8 / machine(s.config).memory_bytes_s;
  return std::max(reading,
                  2 * double(s.parameters) * r.micro_batch / ranks / (kReached * peak_flops(s.config)));
}

}  // namespace

double optimizer_offload_cost(const Situation& s) {
  return ((gradient_bytes(s) + weight_bytes(s)) / host_link(s) + host_update_seconds(s)) / compute_seconds(s);
}
double weight_offload_cost(const Situation& s) {
  if (s.config.run.mode == RunMode::kInference)
    return s.parameters ? weight_bytes(s) / host_link(s) / token_seconds(s) : 1;
  return 2 * weight_bytes(s) * s.config.run.accumulate / host_link(s) / compute_seconds(s);
}
double activation_offload_cost(const Situation& s) {
  return 2 * double(s.activation_bytes) * s.config.run.accumulate / host_link(s) / compute_seconds(s);
}
double streaming_cost(const Situation& s) {
  return weight_offload_cost(s) +
         (gradient_bytes(s) * s.config.run.accumulate / host_link(s) + host_update_seconds(s)) /
             compute_seconds(s);
}
double gathered_cost(const Situation& s) {
  return weight_bytes(s) * s.config.run.accumulate / machine(s.config).link_bytes_s / compute_seconds(s);
}

std::string time_words(double share) {
  if (share < 0.005) return "hardly any time";
  if (share < 1) return fmt::format("about {:.0f} % more time", 100 * share);
  return fmt::format("about {:.{}f} times the time", 1 + share, share < 9 ? 1 : 0);
}

}  // namespace trainhost::planning
