// Finds the built-in chat template that renders conversations as a model's Jinja template does.
#pragma once
#include <string>
#include <string_view>

#include "core/records/chat_template.hpp"

namespace trainhost::records {

/// The template that `jinja`, the "chat_template" of tokenizer_config.json, describes. It is recognized by
/// the texts that it contains; the default system message and the start and end tokens are taken from it and
/// from `bos` and `eos`, the texts of these tokens ("" = none). A template with a token that the built-in one
/// does not know is not recognized. Throws usage_error that names the built-in templates; `file` is named in
/// the message.
ChatTemplate recognize_template(std::string_view jinja, const std::string& bos, const std::string& eos,
                                const std::string& file);

}  // namespace trainhost::records
