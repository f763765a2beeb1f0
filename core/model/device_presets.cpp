// Devices by name, with the vendors' published figures. Memory in the decimal units that vendors advertise,
// which is a little less than the chip holds: a plan that fits the preset fits the device. Never asks a real
// device.
#include "core/model/presets.hpp"

namespace trainhost {
namespace {

constexpr std::uint64_t kGB = 1'000'000'000;

// Peaks are dense (no structured sparsity), bf16 with f32 accumulation; links are NVLink, Infinity Fabric or
// ICI where there is one, else PCIe, in one direction.
const std::vector<DevicePreset>& presets() {
  // clang-format off
  static const std::vector<DevicePreset> all{
      // name             vendor    full name                    memory      GB/s  bf16    tf32   fp32   link GB/s
      {"a100-40gb",      "NVIDIA", "A100 SXM 40 GB",             40 * kGB,  1555, 312,    156,   19.5,  300},
      {"a100-80gb",      "NVIDIA", "A100 SXM 80 GB",             80 * kGB,  2039, 312,    156,   19.5,  300},
      {"b200-180gb",     "NVIDIA", "B200 SXM 180 GB",            180 * kGB, 8000, 2250,   1125,  75,    900},
      {"gb200-186gb",    "NVIDIA", "GB200 NVL72, one GPU",       186 * kGB, 8000, 2500,   1250,  80,    900},
      {"h100-80gb",      "NVIDIA", "H100 SXM 80 GB",             80 * kGB,  3350, 989.4,  494.7, 66.9,  450},
      {"h100-pcie-80gb", "NVIDIA", "H100 PCIe 80 GB",            80 * kGB,  2000, 756,    378,   51.2,  300},
      {"h200-141gb",     "NVIDIA", "H200 SXM 141 GB",            141 * kGB, 4800, 989.4,  494.7, 66.9,  450},
      {"l40s-48gb",      "NVIDIA", "L40S",                       48 * kGB,  864,  362,    183,   91.6,  32},
      {"mi300x-192gb",   "AMD",    "Instinct MI300X",            192 * kGB, 5300, 1307.4, 653.7, 163.4, 448},
      {"rtx-3090",       "NVIDIA", "GeForce RTX 3090",           24 * kGB,  936,  71,     35.6,  35.6,  56.25},
      {"rtx-4090",       "NVIDIA", "GeForce RTX 4090",           24 * kGB,  1008, 165.2,  82.6,  82.6,  32},
      {"rtx-5090",       "NVIDIA", "GeForce RTX 5090",           32 * kGB,  1792, 209.5,  104.8, 104.8, 64},
      {"tpu-v5p",        "Google", "Cloud TPU v5p, one chip",    95 * kGB,  2765, 459,    0,     0,     600},
  };
  // clang-format on
  return all;
}

}  // namespace

std::span<const DevicePreset> device_presets() { return presets(); }

const DevicePreset* find_device_preset(std::string_view name) {
  for (const DevicePreset& d : presets())
    if (d.name == name) return &d;
  return nullptr;
}

}  // namespace trainhost
