// Speed of a run: smoothed tokens per second, and MFU (model FLOP/s over the peak rate that the trainer
// measures).
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/plugin/plugin.hpp"

namespace trainhost::training {

/// Of a run on several ranks the tokens are those of all of them; MFU is that of one, which computes its
/// part.
class Throughput {
 public:
  Throughput(const ModelSpec& m, const RunSpec& r);

  void add_step(std::uint64_t tokens, double seconds);
  double tokens_per_s() const { return rate_; }  // smoothed; 0 before the first step
  double seconds() const { return seconds_; }    // sum over all steps
  double mean_tokens_per_s() const { return seconds_ > 0 ? tokens_ / seconds_ : 0; }

  /// MFU at a rate in tokens per second. The peak is the trainer's metric "peak_flops", measured at the first
  /// call after half a second of steps: FMAs on registers for the CPU trainer in fp32, large matrix products
  /// on a GPU. If other work slowed that measurement, MFU exceeds 1 and the rate is measured again, at most 4
  /// times in all. nullopt: not known.
  std::optional<double> mfu(plugin::Session& session, double tokens_per_s);

 private:
  double flops_per_token_, rate_ = 0, tokens_ = 0, seconds_ = 0, peak_flops_ = 0;
  int measurements_ = 0;
};

/// FLOPs per token of a training step: 6 per matrix parameter (the head counts once) plus causal attention,
/// 6 * L * S * A * D: two products of S/2 keys on average over A*D columns with 2 FLOPs each in the forward
/// pass, twice that in the backward pass. Recomputation does not count. Source: PaLM, appendix B, causal
/// half. `frozen`: the run trains adapters, so a matrix parameter has 4: no gradient of the weight.
double train_flops_per_token(const ModelSpec& m, std::uint64_t seq_len, bool frozen = false);
/// The same for a run, with what train.freeze and train.only leave to compute.
double train_flops_per_token(const ModelSpec& m, const RunSpec& r);

/// "1:05", "2:03:07", "3d 4h"; "-" for what is no time, or longer than 30 million years.
std::string format_duration(double seconds);
/// "98.1K", "2.31M".
std::string format_rate(double per_second);

}  // namespace trainhost::training
