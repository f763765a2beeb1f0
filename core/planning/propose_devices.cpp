// Changes of price kHardware: more devices for each kind of parallelism, and a device with more memory. Costs
// are numbers of devices, plus a fraction under one that orders equal numbers (tensor, pipeline, context,
// data).
#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/base/text.hpp"
#include "core/planning/propose_changes.hpp"

namespace trainhost::planning {
namespace {

class DeviceProposer {
 public:
  explicit DeviceProposer(const ChangeContext& s) : s_(s), c_(s.config), r_(s.config.run) {}

  std::vector<CandidateSeries> all() {
    if (on_device_) more_devices();
    other_device();
    return std::move(out_);
  }

 private:
  void add(std::vector<CandidateChange> changes, bool falling = true, std::uint32_t shards = 0) {
    if (!changes.empty())
      out_.push_back({Price::kHardware, falling, std::move(changes), UINT64_MAX, 0, shards});
  }

  /// More devices, in powers of two, for each kind of parallelism.
  /// The devices are multiplied, not replaced: a run on 8 devices is proposed 16, 32 and so on. Tensor
  /// parallelism ends at 8, the size of a node in which devices have fast links.
  void more_devices() {
    const std::uint64_t now = devices_of(r_);
    const auto devices = [&](std::uint64_t n) { return describe_device_count(now * n, s_.devices); };
    std::vector<CandidateChange> tensor, pipeline, context;
    for (std::uint64_t n = 2; r_.parallel.tensor * n <= 8; n *= 2)
      tensor.push_back(
          {{{"parallel.tensor", std::to_string(r_.parallel.tensor * n)}, {"parallel.sequence", "true"}},
           fmt::format("{}-way tensor and sequence parallelism", r_.parallel.tensor * n),
           double(now * n),
           devices(n)});
    // Sequence parallelism exists only while training; the setting is the second of each change.
    if (!trains_)
      for (CandidateChange& t : tensor) {
        assert(t.settings.size() == 2);
        t.settings.pop_back();
      }
    for (std::uint64_t n = 2; r_.parallel.pipeline * n <= c_.model.layers; n *= 2)
      pipeline.push_back({{{"parallel.pipeline", std::to_string(r_.parallel.pipeline * n)}},
                          fmt::format("{} pipeline stages", r_.parallel.pipeline * n),
                          double(now * n) + 0.1,
                          devices(n)});
    // The context ranks must divide the sequence length.
    for (std::uint64_t n = 2; n <= 64 && r_.seq_len % (r_.parallel.context * n) == 0; n *= 2)
      context.push_back({{{"parallel.context", std::to_string(r_.parallel.context * n)}},
                         fmt::format("each sequence split over {} CP ranks", r_.parallel.context * n),
                         double(now * n) + 0.2,
                         devices(n)});
    add(std::move(tensor));
    add(std::move(pipeline),
        false);  // the last stage holds the head, which does not shrink
    if (trains_) add(std::move(context));
    if (trains_ && !s_.dense) add(experts(now), false);  // as above
    if (trains_)
      for (std::uint32_t zero = 1; zero <= 3; ++zero) add(zero_ranks(zero, now), true, zero);
  }

  /// Expert parallelism over new data ranks.
  /// ZeRO 3 in addition, since the parameters outside the experts are not divided by expert parallelism.
  std::vector<CandidateChange> experts(std::uint64_t now) const {
    std::vector<CandidateChange> changes;
    for (std::uint64_t n = 2; n <= 256 && r_.parallel.expert == 1; n *= 2)
      changes.push_back(
          {{{"parallel.data", std::to_string(r_.parallel.data * n)},
            {"parallel.expert", std::to_string(n)},
            {"parallel.zero", "3"}},
           fmt::format("experts and all state sharded over {} data ranks", r_.parallel.data * n),
           double(now * n) + 0.25,
           describe_device_count(now * n, s_.devices)});
    return changes;
  }

  /// More data ranks with sharded state. The number of sequences per step stays the same as long as the
  /// accumulated micro-batches can be divided by n; otherwise the sentence states the larger batch.
  std::vector<CandidateChange> zero_ranks(std::uint32_t zero, std::uint64_t now) const {
    static constexpr const char* kShared[] = {"", "optimizer state", "optimizer state and gradients",
                                              "all state"};
    std::vector<CandidateChange> changes;
    // A lower stage than that of the run would need more memory per rank.
    if (zero < r_.parallel.zero) return changes;
    for (std::uint64_t n = 2; n <= 4096; n *= 2) {
      Settings settings = {{"parallel.data", std::to_string(r_.parallel.data * n)},
                           {"parallel.zero", std::to_string(zero)}};
      std::string batch = fmt::format("{} times as many sequences per step", n);
      if (r_.accumulate % n == 0)
        settings.push_back({"train.grad_accum", std::to_string(r_.accumulate / n)}),
            batch = "the same update";
      changes.push_back(
          {settings,
           fmt::format("{} sharded over {} data ranks, {}", kShared[zero], r_.parallel.data * n, batch),
           double(now * n) + 0.3 + 0.01 * zero, describe_device_count(now * n, s_.devices)});
    }
    return changes;
  }

  /// Presets with more memory, the smallest first. Software rarely moves between vendors, so only devices of
  /// the vendor of memory.device are proposed; without one, those that the trainers here can use.
  void other_device() {
    const DevicePreset* named = find_device_preset(c_.device);
    const std::string vendor = named && named->link_gbs > 0 ? named->vendor : "NVIDIA";
    std::vector<const DevicePreset*> more;
    // A processor has no link and its memory is host memory, so it is no substitute for a device.
    for (const DevicePreset& d : device_presets())
      if (d.memory_bytes > s_.budget_bytes && d.link_gbs > 0 && d.vendor == vendor) more.push_back(&d);
    std::stable_sort(more.begin(), more.end(),
                     [](auto* a, auto* b) { return a->memory_bytes < b->memory_bytes; });
    std::vector<CandidateChange> changes;
    const bool chosen =
        !on_device_ && c_.backend != "auto";  // a CPU backend selected by name; a device needs another one
    for (const DevicePreset* d : more) {
      CandidateChange r{{{"memory.device", d->name}},
                        fmt::format("{}, {} of memory", d->full_name, format_bytes(d->memory_bytes)),
                        1.5,
                        "another device",
                        d->memory_bytes};
      if (chosen) {
        r.settings.insert(r.settings.begin(), {"train.backend", "auto"});
        r.cost_text = fmt::format("another device, without the selected backend {}", c_.backend),
        r.leaves_backend = true;
      }
      changes.push_back(std::move(r));
    }
    add(std::move(changes), false);  // no trainer may exist for the largest one
  }

  const ChangeContext& s_;
  const runfile::RunConfig& c_;
  const RunSpec& r_;
  const bool trains_ = r_.mode != RunMode::kInference, on_device_ = s_.compute_tier != Tier::kHost;
  std::vector<CandidateSeries> out_;
};

}  // namespace

/// Expert ranks are data ranks and ranks of sequence parallelism are tensor ranks: neither multiplies.
std::uint64_t devices_of(const RunSpec& r) {
  return std::uint64_t{r.parallel.data} * r.parallel.tensor * r.parallel.pipeline * r.parallel.context;
}

std::string describe_device_count(std::uint64_t n, std::uint64_t before) {
  return fmt::format("{} devices instead of {}", n, before);
}

std::vector<CandidateSeries> propose_devices(const ChangeContext& s) { return DeviceProposer(s).all(); }

}  // namespace trainhost::planning
