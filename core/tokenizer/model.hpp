// The model of tokenizer.json: the ids of one word. BPE and Unigram.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/json_value.hpp"

namespace trainhost::tokenizer {

/// A place in a word where a text can be cut: the tokens before and behind it do not depend on each other.
struct Cut {
  std::size_t byte = 0;  // of the word
  std::size_t ids = 0;   // number of ids before it
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const char* type() const = 0;
  /// Appends the ids of a word that is not empty. `cuts`: where to put the places within it; or null.
  virtual void encode(std::string_view word, std::vector<std::int32_t>& ids,
                      std::vector<Cut>* cuts) const = 0;
};

/// What the "model" of tokenizer.json contains.
struct ModelData {
  std::string type;
  std::vector<std::pair<std::string, std::int32_t>> vocab;  // BPE
  std::vector<std::pair<std::string, std::string>> merges;  // BPE, the first has the lowest rank
  std::vector<std::pair<std::string, double>> pieces;       // Unigram, by id
  JsonValue options = JsonValue::object();                  // the other members
};

/// `bytes`: words are bytes and the vocabulary is in the byte-level alphabet. `file`: for messages. Errors:
/// usage_error, also for a merge whose parts or result are not in the vocabulary.
std::unique_ptr<Model> make_bpe(const ModelData& data, bool bytes, const std::string& file);
std::unique_ptr<Model> make_unigram(const ModelData& data, bool bytes, const std::string& file);

/// A number that no other model of the process has: the key of WordCache.
std::uint64_t new_model_number();

/// The ids of the tokens "<0x00>" to "<0xFF>"; -1 where the vocabulary has none.
std::vector<std::int32_t> byte_token_ids(const std::unordered_map<std::string_view, std::int32_t>& ids);

}  // namespace trainhost::tokenizer
