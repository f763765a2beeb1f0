// The small models and runs with which plugins are tested, of a family that the manifest names, and their C
// structs, which borrow from the C++ ones. Also variants with undefined enum values and zero dimensions.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/abi/convert_structs.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::plugin_validator {

/// A model and a run as a plugin sees them. Change model and run freely, then ask for the C structs.
struct Sample {
  ModelSpec model;
  RunSpec run;
  th_model c_model() const { return abi::to_c(model); }
  th_run c_run() const { return abi::to_c(run); }
  std::uint64_t tokens() const { return run.tokens_per_step(); }
};

/// 2 layers, hidden 32, vocabulary 96, 2 sequences of 16 tokens, f32, AdamW. `families`: the manifest's;
/// llama if it is among them or if the list is empty or contains *, else the first.
Sample small_sample(const std::vector<std::string>& families);

/// Writes a Hugging Face config.json that matches the dimensions into m.config_json.
void write_config(ModelSpec& m);

/// Calls `visit` once for each enum field of the run, set to a value that the interface does not define
/// ("optimizer 99").
void for_each_unknown_value(const Sample& s,
                            const std::function<void(const Sample&, const std::string& what)>& visit);

/// Calls `visit` once for each dimension that must not be zero, set to zero ("0 layers").
void for_each_degenerate_model(const Sample& s,
                               const std::function<void(const Sample&, const std::string& what)>& visit);

}  // namespace trainhost::plugin_validator
