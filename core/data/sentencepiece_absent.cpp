// Compiled instead of sentencepiece.cpp if the library was not found at build time: reports that.
#include "core/base/error.hpp"
#include "core/data/tokenizer.hpp"

namespace trainhost::data {

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model) {
  throw usage_error(
      "tokenizer " + in_quotes(model) + " needs SentencePiece, but trainhost was built without it",
      "install libsentencepiece-dev and build again, or use token ids in a .bin file");
}

}  // namespace trainhost::data
