// Settings of [parallel], [plan] and [lora], from Settings to RunConfig (planned_settings.cpp,
// adapter_settings.cpp). Called by run_config.cpp in this order, after the tables of training.
#pragma once
#include "core/model/presets.hpp"
#include "core/runfile/run_config.hpp"
#include "core/runfile/settings.hpp"

namespace trainhost::runfile {

void set_parallel(const Settings& s, RunConfig& c);
/// Keys of [plan] replace what train.precision and the optimizer imply.
void set_plan(const Settings& s, RunConfig& c);
/// [lora] and model.adapter switch to adapters. `base`: the folder that relative paths refer to.
void set_lora(const Settings& s, const std::filesystem::path& base, RunConfig& c);
/// train.freeze and train.only (trainable_settings.cpp).
void set_trainable(const Settings& s, RunConfig& c);
/// Rules: Transformer Engine has products as plan.fp8_recipe and the keys that need it say, on the
/// device of the run (product_settings.cpp).
void require_possible_products(const Settings& s, const RunConfig& c);
/// Whether the workspaces of a plan for PyTorch follow from the compute capability of the device, 0 for AMD.
inline bool decides_workspaces(const DevicePreset& d) { return d.capability > 0 || d.vendor == "AMD"; }
/// Reads the result of set_plan() and set_lora(): some of it becomes options of the estimator.
void set_framework(const Settings& s, RunConfig& c);

}  // namespace trainhost::runfile
