// The fields of a model under their Hugging Face names, from a config.json or from [model] inline, and what
// they make: a ModelSpec. The rules of transformers' LlamaConfig, MistralConfig, Qwen2Config and Qwen3Config
// live here.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/model/model_spec.hpp"
#include "core/runfile/value.hpp"

namespace trainhost::runfile {

/// Name -> value; nested objects as "rope_scaling.factor".
using Fields = std::map<std::string, Value>;

/// A config.json's model: absent fields take the family's defaults in transformers. A family that cannot be
/// trained comes back as its outline by core/model, checked where the family is known there. `json` is the
/// text of `fields`.
ModelSpec model_from_config(const Fields& fields, const std::string& json, const std::string& file);

/// An inline model: absent fields come from the built-in model; heads and head_dim that follow from what was
/// given do.
ModelSpec model_from_inline(const Fields& fields, const std::string& file);

/// The fields of a config.json. Throws usage_error with file, line and column on malformed JSON or a key
/// given twice.
Fields read_config_fields(const std::string& json, const std::string& file);

}  // namespace trainhost::runfile
