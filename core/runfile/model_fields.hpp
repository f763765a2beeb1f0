// Builds a ModelSpec from fields with Hugging Face names, given in a config.json or inline in [model].
// Implements the rules of transformers' LlamaConfig, MistralConfig, Qwen2Config and Qwen3Config.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/model/model_spec.hpp"
#include "core/runfile/settings.hpp"
#include "core/runfile/value.hpp"

namespace trainhost::runfile {

/// Name -> value; members of nested objects are dotted: "rope_scaling.factor".
using ModelFields = std::map<std::string, Value>;

/// The model of a config.json. Absent fields take the family's defaults in transformers. For a family that
/// cannot be trained, returns the dimensions that core/model knows. `json`: the text of the config; `file`:
/// its name in messages. `of_framework`: another framework trains the model, so arithmetic that no trainer
/// here has (rope scaling, activation, quantized weights) is no error; memory does not depend on it.
ModelSpec model_from_config(const ModelFields& fields, const std::string& json, const std::string& file,
                            bool of_framework = false);

/// An inline model. Absent fields come from the built-in model, except that num_key_value_heads and head_dim
/// follow the given hidden_size and num_attention_heads. The checks are rules of `settings`.
ModelSpec model_from_inline(const ModelFields& fields, const Settings& settings);

/// The fields of a config.json. Throws usage_error with file, line and column on malformed JSON or a
/// duplicate key.
ModelFields read_config_fields(const std::string& json, const std::string& file);

}  // namespace trainhost::runfile
