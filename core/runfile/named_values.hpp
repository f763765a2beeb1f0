// Keys of type string whose values are names that this program knows: presets of models and devices, matrices
// of adapters; and those with a form of their own: digests, backends. Their values are checked with the type.
#pragma once
#include <string>
#include <vector>

#include "core/model/model_spec.hpp"
#include "core/runfile/schema.hpp"

namespace trainhost::runfile {

/// Names of the presets that can be trained, then of those that can only be planned.
std::vector<std::string> preset_names();
/// nullptr if there is no preset of that name.
const ModelSpec* find_preset(const std::string& name);

/// The names that `key` accepts, or of a list each of its items; empty = any string.
std::vector<std::string> known_names(const Key& key);

/// Throws usage_error with the nearest name for a value of model.preset, memory.device, lora.targets,
/// plugins.allow or plugins.order that is no such name. `v` has the type of the key. Accepts any other key.
void validate_names(const Key& key, const Value& v);

/// The digest of a value of plugins.allow, in lower case and without the prefix "sha256:"; "" if it is none.
std::string sha256_digits(std::string text);

}  // namespace trainhost::runfile
