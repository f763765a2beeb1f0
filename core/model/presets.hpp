// Built-in facts: models by name (dimensions retyped from their published configs) and devices by name.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model_spec.hpp"

namespace trainhost {

/// All model presets of trainable families, "llama-3-8b" style names, sorted by name. name == preset name.
std::span<const ModelSpec> model_presets();
const ModelSpec* find_model_preset(std::string_view name);

/// The model that trains when nothing is said: a small byte-level LLaMA (V = 256, tied).
const ModelSpec& builtin_model();

struct DevicePreset {
  std::string name;  // "h100-80gb"
  std::string vendor, full_name;
  std::uint64_t memory_bytes;                    // what the vendor states
  double memory_gbs;                             // bandwidth, GB/s
  double bf16_tflops, tf32_tflops, fp32_tflops;  // dense peaks; 0 = not offered
  double link_gbs;                               // to its peers, one direction; 0 = none
  double fp16_tflops, fp8_tflops;                // dense, f32 accumulation; 0 = not offered
  std::uint32_t node;  // devices that the link joins in the vendor's own system, or on one board
  double network_gbs;  // out of the node, per device, one direction; 0 = no such system is stated
  double host_gbs;     // to the host's memory, one direction; 0 = not stated
};
std::span<const DevicePreset> device_presets();
const DevicePreset* find_device_preset(std::string_view name);

}  // namespace trainhost
