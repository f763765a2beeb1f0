// GPU-005: in hybrid mode exactly three transfers of class `activation` per micro-batch, with the bytes that
// follow from the shapes; transfers of class `sync` at most one per micro-batch and one per optimizer step;
// exposed transfer time under 5 % of compute time.
#include <fmt/format.h>

#include <cmath>

#include "core/base/text.hpp"
#include "core/verify/contract_table.hpp"
#include "core/verify/hybrid_measurement.hpp"
#include "core/verify/judge_modes.hpp"

namespace trainhost::verify {
namespace {

constexpr double kTransfers = 3, kExposed = 0.05;

/// S*B*(H+2V) per micro-batch: hidden states to the device, logits to the host, their gradient to the device.
std::uint64_t activation_elements(const runfile::RunConfig& c) {
  return c.run.tokens_per_micro_batch() * (c.model.hidden + 2 * c.model.vocab);
}

/// bf16 runs may send bf16 or f32; any other run sends f32.
bool is_expected_size(const runfile::RunConfig& c, std::uint64_t bytes, std::uint64_t micro_batches) {
  const std::uint64_t elements = activation_elements(c) * micro_batches;
  return bytes == elements * 4 || (c.precision == "bf16" && bytes == elements * 2);
}

Finding judge_transfers(const HybridMeasurement& f) {
  const plugin::Counters& n = f.counted;
  const double micro = static_cast<double>(f.micro_batches);
  const double each = static_cast<double>(n.h2d + n.d2h) / micro;
  const std::uint64_t bytes = n.h2d_bytes + n.d2h_bytes;
  const double exposed = n.compute_ns
                             ? static_cast<double>(n.exposed_transfer_ns) / static_cast<double>(n.compute_ns)
                             : INFINITY;
  std::string text = fmt::format(
      "{:g} transfers of class activation per micro-batch ({} bytes), {:g} of class sync per step ({} "
      "bytes), "
      "exposed transfer time {:.2f} % of compute time, {}; {}",
      each, format_count(bytes / f.micro_batches), static_cast<double>(n.sync) / static_cast<double>(f.steps),
      format_count(n.sync_bytes / f.steps), 100 * exposed,
      f.transfer_ns ? fmt::format("{:.2f} ms of transfers per step in total",
                                  *f.transfer_ns / 1e6 / static_cast<double>(f.steps))
                    : "the trainer does not report transfer_ns",
      f.describe());
  // Number and direction: two to the device, one back.
  if (n.h2d + n.d2h != 3 * f.micro_batches || n.d2h != f.micro_batches)
    return {false, each, kTransfers, text};
  if (!is_expected_size(f.run, bytes, f.micro_batches))
    return {false, static_cast<double>(bytes) / micro, 4 * static_cast<double>(activation_elements(f.run)),
            "bytes per micro-batch are not S*B*(H+2V) elements: " + text};
  if (n.sync > f.micro_batches + f.steps)
    return {false, static_cast<double>(n.sync), static_cast<double>(f.micro_batches + f.steps),
            "more transfers of class sync than one per micro-batch and one per step: " + text};
  // The bound on exposed time is stated for 350M; small models have little compute time to hide it.
  if (f.is_350m && exposed >= kExposed)
    return {false, exposed, kExposed, "too much exposed transfer time: " + text};
  if (!f.is_350m) text += "; exposed time is tested for 350M only";
  return {true, each, kTransfers, text};
}

}  // namespace

Result check_transfers(Context& context) {
  return run_once([&] { return judge_transfers(context.hybrid()); });
}

}  // namespace trainhost::verify
