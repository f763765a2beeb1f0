// What tokenizer.json says, read into the parts that encode and decode. The tokenizer made of them:
// json_tokenizer.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/tokenizer/added_tokens.hpp"
#include "core/tokenizer/model.hpp"
#include "core/tokenizer/normalizer.hpp"
#include "core/tokenizer/pre_tokenizer.hpp"
#include "core/tokenizer/token_decoder.hpp"

namespace trainhost::tokenizer {

struct TokenizerJson {
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<Model> model;
  TokenDecoder decoder;
  std::vector<std::int32_t> before, after;  // of the post_processor
  std::vector<std::string> tokens;          // text of every id; "" where there is none
  std::unordered_map<std::string, std::int32_t> ids;
  std::vector<std::string> notes;
};

/// Errors: Error(kUsage), see load_tokenizer_json().
TokenizerJson read_tokenizer_json(std::string_view json, const std::string& file);

}  // namespace trainhost::tokenizer
