// Stands in for sentencepiece.cpp where the library was not found at build time: says so, and what to do.
#include "core/base/error.hpp"
#include "core/data/tokenizer.hpp"

namespace trainhost::data {

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model) {
  throw usage_error(
      "tokenizer " + in_quotes(model) + " needs SentencePiece, which this trainhost was built without",
      "install libsentencepiece-dev and build again, or give token ids in a .bin");
}

}  // namespace trainhost::data
