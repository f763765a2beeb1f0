// The parts of tokenizer_config.json that change ids: which tokens begin and end a text, and whether they are
// added. Chat templates are read in core/records.
#pragma once
#include <string>
#include <string_view>

namespace trainhost::tokenizer {

struct TokenizerConfig {
  std::string bos, eos;                     // texts of the tokens; "" = not given
  bool adds_bos = false, adds_eos = false;  // "add_bos_token", "add_eos_token"
};

/// `json`: the content of the file, or "" if there is none; `beside`: the quoted path of the tokenizer. A
/// token is a text or an object with the text as "content". Errors: Error(kUsage) if it is not JSON.
TokenizerConfig read_tokenizer_config(std::string_view json, const std::string& beside);

}  // namespace trainhost::tokenizer
