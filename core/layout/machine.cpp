// What the time model assumes of a device that a preset does not say. Every figure here is an assumption that search prints.
#include "core/layout/time.hpp"

namespace trainhost::layout {
namespace {

constexpr double kGB = 1e9, kTera = 1e12;
constexpr double kMatrixEfficiency = 0.75;  // large products on current devices reach 0.7 to 0.85 of the stated peak
constexpr double kDisk = 3 * kGB;           // an NVMe drive shared by two devices

double peak_tflops(const DevicePreset& d, const RunSpec& r) {
  const double narrow = d.bf16_tflops > 0 ? d.bf16_tflops : d.fp32_tflops;
  switch (r.compute) {
    case DType::kTF32: return d.tf32_tflops > 0 ? d.tf32_tflops : d.fp32_tflops;
    case DType::kF32: return d.fp32_tflops > 0 ? d.fp32_tflops : narrow;
    default: return narrow;
  }
}

}  // namespace

Machine machine_of(const DevicePreset& d, const RunSpec& r) {
  Machine m;
  m.flops = peak_tflops(d, r) * kTera;
  m.matrix_efficiency = kMatrixEfficiency;
  m.memory_bytes_s = d.memory_gbs * kGB;
  m.node = 8;
  m.network_bytes_s = 50 * kGB;
  m.host_bytes_s = 50 * kGB;
  m.link_bytes_s = d.link_gbs > 0 ? d.link_gbs * kGB : m.host_bytes_s;
  m.disk_bytes_s = kDisk;
  m.memory_bytes = d.memory_bytes;
  return m;
}

}  // namespace trainhost::layout
