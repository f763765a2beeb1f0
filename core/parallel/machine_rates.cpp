// A device preset as the time model reads it. What a preset does not state is assumed here, and search prints
// what it used.
#include <algorithm>

#include "core/parallel/step_time.hpp"

namespace trainhost::parallel {
namespace {

constexpr double kGB = 1e9, kTera = 1e12;
constexpr double kMatrixEfficiency =
    0.75;                        // large products on current devices reach 0.7 to 0.85 of the stated peak
constexpr double kNetwork = 25;  // GB/s: one 200 Gbit/s port a device
constexpr double kHost = 32;     // GB/s: sixteen lanes of PCIe 4
constexpr double kDisk = 3;      // GB/s: an NVMe drive that two devices share

double stated(double value, double otherwise) { return value > 0 ? value : otherwise; }

/// The peak for the run's type; where a device has none of its own, the next wider that it has.
double peak_tflops(const DevicePreset& d, const RunSpec& r) {
  const double bf16 = stated(d.bf16_tflops, stated(d.fp16_tflops, d.fp32_tflops)),
               f32 = stated(d.fp32_tflops, bf16);
  switch (r.compute) {
    case DType::kF8:
      return stated(d.fp8_tflops, bf16);
    case DType::kF16:
      return stated(d.fp16_tflops, bf16);
    case DType::kTF32:
      return stated(d.tf32_tflops, f32);
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
  m.host_bytes_s = stated(d.host_gbs, kHost) * kGB;
  m.link_bytes_s = d.link_gbs > 0 ? d.link_gbs * kGB : m.host_bytes_s;
  m.network_bytes_s = stated(d.network_gbs, kNetwork) * kGB;
  m.disk_bytes_s = kDisk * kGB;
  m.memory_bytes = d.memory_bytes;
  return m;
}

}  // namespace trainhost::parallel
