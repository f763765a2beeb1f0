// Machine of a device preset. Rates that the preset does not have get the defaults below; `search` prints the
// rates that it used.
#include <algorithm>

#include "core/parallel/step_time.hpp"

namespace trainhost::parallel {
namespace {

constexpr double kGB = 1e9, kTera = 1e12;
constexpr double kMatrixEfficiency = 0.75;  // large products reach 0.7 to 0.85 of the stated peak rate
constexpr double kNetwork = 25;             // GB/s: one 200 Gbit/s port per device
constexpr double kHost = 32;                // GB/s: PCIe 4.0 x16
constexpr double kDisk = 3;                 // GB/s: one NVMe drive per two devices

double value_or(double value, double otherwise) { return value > 0 ? value : otherwise; }

/// Peak rate for the run's compute type, else of the next wider type that the device has.
double peak_tflops(const DevicePreset& d, const RunSpec& r) {
  const double bf16 = value_or(d.bf16_tflops, value_or(d.fp16_tflops, d.fp32_tflops)),
               f32 = value_or(d.fp32_tflops, bf16);
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

}  // namespace

Machine machine_of(const DevicePreset& d, const RunSpec& r) {
  Machine m;
  m.flops = peak_tflops(d, r) * kTera;
  m.matrix_efficiency = kMatrixEfficiency;
  m.memory_bytes_s = d.memory_gbs * kGB;
  m.node = std::max(1u, d.node);
  m.host_bytes_s = value_or(d.host_gbs, kHost) * kGB;
  // Devices without a link exchange data through the host.
  m.link_bytes_s = d.link_gbs > 0 ? d.link_gbs * kGB : m.host_bytes_s;
  m.network_bytes_s = value_or(d.network_gbs, kNetwork) * kGB;
  m.disk_bytes_s = kDisk * kGB;
  m.memory_bytes = d.memory_bytes;
  return m;
}

}  // namespace trainhost::parallel
