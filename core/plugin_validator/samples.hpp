// The small models and runs that plugins are tried on: tiny dimensions, odd where that finds mistakes, the
// family one that the plugin's manifest names. With them the C structs of the interface, which borrow from
// the C++ ones.
#pragma once
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

/// 2 layers, hidden 32, 96 words, 2 sequences of 16 tokens, f32, AdamW. `families`: the manifest's; llama
/// where it is among them or where any will do, else the first.
Sample small_sample(const std::vector<std::string>& families);

/// The same with a Hugging Face config of that family beside the numbers.
void write_config(ModelSpec& m);

}  // namespace trainhost::plugin_validator
