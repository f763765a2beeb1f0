// Presets of trainable models and of devices by name. Presets of models that are only planned:
// architecture.hpp.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model_spec.hpp"

namespace trainhost {

/// Presets of trainable families, sorted by name ("llama-3-8b"); ModelSpec::name is the name of the preset.
std::span<const ModelSpec> model_presets();
const ModelSpec* find_model_preset(std::string_view name);

/// The default model of a run: a small byte-level LLaMA (V = 256, tied).
const ModelSpec& builtin_model();

struct DevicePreset {
  std::string name;  // "h100-80gb"
  std::string vendor, full_name;
  std::uint64_t memory_bytes;                    // usable, as the driver reports it
  double memory_gbs;                             // bandwidth, GB/s
  double bf16_tflops, tf32_tflops, fp32_tflops;  // dense peaks; 0 = not offered
  double link_gbs;                               // to other devices, one direction; 0 = none
  double fp16_tflops, fp8_tflops;                // dense, f32 accumulation; 0 = not offered
  std::uint32_t node;  // devices connected by the link in the vendor's system, or on one board
  double network_gbs;  // between nodes, per device, one direction; 0 = unknown
  double host_gbs;     // to host memory, one direction; 0 = unknown
  std::uint32_t
      multiprocessors;  // streaming multiprocessors of an NVIDIA device, as its driver reports them; else 0
  std::uint32_t capability;  // CUDA compute capability times 10; else 0
};
std::span<const DevicePreset> device_presets();
const DevicePreset* find_device_preset(std::string_view name);

}  // namespace trainhost
