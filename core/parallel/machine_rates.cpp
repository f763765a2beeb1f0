// Machine of a device preset. The preset has peak rates; the shares of them that programs reach, and
// latencies, are below, with defaults for rates that the preset lacks. `search` prints the rates that it
// used.
#include <algorithm>
#include <string_view>

#include "core/parallel/step_time.hpp"

namespace trainhost::parallel {
namespace {

constexpr double kGB = 1e9, kTera = 1e12, kMicro = 1e-6;
constexpr double kNetwork = 25;  // GB/s: one 200 Gbit/s port per device
constexpr double kHost = 32;     // GB/s: PCIe 4.0 x16
constexpr double kDisk = 3;      // GB/s: one NVMe drive per two devices

/// Shares of the peak rates that products with 16-bit and with fp8 operands and flash attention reach.
struct Shares {
  std::string_view prefix;  // of the names of the devices
  double products, fp8, attention;
};
// Fitted to published steps: README.md, "Rates". The last row is that of all other devices.
constexpr Shares kShares[] = {{"a100", 0.72, 0, 0.55}, {"", 0.62, 0.57, 0.45}};
constexpr double kMemory = 0.87;    // share of the memory bandwidth that a copy reaches
constexpr double kLink = 0.78;      // share of the bandwidth between devices that a ring reaches
constexpr double kPortShare = 0.9;  // share of the network bandwidth
// Latencies by which NCCL chooses its algorithms: a ring with its protocol for long messages.
constexpr double kStart = 8.4 * kMicro, kFastLink = 3.4 * kMicro, kPcie = 5.7 * kMicro, kPort = 9.6 * kMicro;
constexpr double kPcieGbs = 64;  // a link up to PCIe 5.0 x16 is taken to be PCIe

double value_or(double value, double otherwise) { return value > 0 ? value : otherwise; }

double bf16_tflops(const DevicePreset& d) {
  return value_or(d.bf16_tflops, value_or(d.fp16_tflops, d.fp32_tflops));
}

/// Peak rate for the run's compute type, else of the next wider type that the device has.
double peak_tflops(const DevicePreset& d, const RunSpec& r) {
  const double bf16 = bf16_tflops(d), f32 = value_or(d.fp32_tflops, bf16);
  switch (r.compute) {
    case DType::kF8:
      return value_or(d.fp8_tflops, bf16);
    case DType::kF16:
      return value_or(d.fp16_tflops, bf16);
    case DType::kTF32:
      return value_or(d.tf32_tflops, f32);
    case DType::kF32:
      return f32;
    default:
      return bf16;
  }
}

const Shares& shares_of(const DevicePreset& d) {
  return *std::find_if(std::begin(kShares), std::end(kShares),
                       [&](const Shares& s) { return d.name.starts_with(s.prefix); });
}

}  // namespace

Machine machine_of(const DevicePreset& d, const RunSpec& r) {
  const Shares& shares = shares_of(d);
  Machine m;
  m.converts = r.compute == DType::kF8 && d.fp8_tflops > 0;
  m.flops = peak_tflops(d, r) * kTera;
  m.wide_flops = m.converts ? bf16_tflops(d) * kTera : m.flops;
  m.matrix_efficiency = m.converts ? shares.fp8 : shares.products;
  m.wide_efficiency = shares.products;
  m.attention_efficiency = shares.attention;
  m.memory_bytes_s = kMemory * d.memory_gbs * kGB;
  m.node = std::max(1u, d.node);
  m.host_bytes_s = value_or(d.host_gbs, kHost) * kGB;
  // Devices without a link exchange data through the host.
  m.link_bytes_s = kLink * (d.link_gbs > 0 ? d.link_gbs * kGB : m.host_bytes_s);
  m.network_bytes_s = kPortShare * value_or(d.network_gbs, kNetwork) * kGB;
  m.start_s = kStart;
  m.link_latency_s = d.link_gbs > kPcieGbs ? kFastLink : kPcie;
  m.network_latency_s = kPort;
  m.disk_bytes_s = kDisk * kGB;
  m.memory_bytes = d.memory_bytes;
  return m;
}

}  // namespace trainhost::parallel
