// Makes the tokenizers from the content of their files.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "core/tokenizer/tokenizer.hpp"

namespace trainhost::tokenizer {

/// Every byte is an id.
std::unique_ptr<Tokenizer> make_bytes();

/// `model`: the content of a SentencePiece .model; `config`: that of tokenizer_config.json beside it, or "";
/// `file`: the quoted path of the model, for messages. As in transformers 5, texts get begin and end tokens
/// where the config says so ("add_bos_token", "add_eos_token"): the model itself does not. Errors:
/// Error(kUsage), also if the library was missing at build time.
std::unique_ptr<Tokenizer> load_sentencepiece(std::string_view model, std::string_view config,
                                              const std::string& file);

/// `json`: the content of tokenizer.json; `config`: that of tokenizer_config.json beside it, which names the
/// begin and end tokens, or "". Which of them texts get is the rule of tokenizer.json (post_processor),
/// whatever the config says. `file`: the quoted path of tokenizer.json. Errors: Error(kUsage) that names file
/// and component, and what is supported.
std::unique_ptr<Tokenizer> load_tokenizer_json(std::string_view json, std::string_view config,
                                               const std::string& file);

/// Length of the first piece of `text`, from 1 to its size, for tokenizers without a rule where a text can be
/// cut: after the last newline in the second half, else at a UTF-8 boundary.
std::size_t piece_end(std::string_view text, bool is_last);

}  // namespace trainhost::tokenizer
