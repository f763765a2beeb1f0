// The decoder of tokenizer.json: turns the texts of tokens into the text that they stand for.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/tokenizer/component.hpp"

namespace trainhost::tokenizer {

class TokenDecoder {
 public:
  TokenDecoder() = default;  // joins the tokens with spaces
  explicit TokenDecoder(const Component& component);
  /// Bytes of tokens such as "<0xE2>", and byte-level ones, are kept even if they are not UTF-8.
  std::string decode(std::vector<std::string> tokens) const;

 private:
  using Step = std::function<void(std::vector<std::string>& tokens)>;
  void add(const Component& component);
  std::vector<Step> steps_;
};

}  // namespace trainhost::tokenizer
