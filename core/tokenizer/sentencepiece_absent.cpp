// Compiled instead of sentencepiece.cpp if the library was not found at build time: reports that.
#include "core/base/error.hpp"
#include "core/tokenizer/loaders.hpp"

namespace trainhost::tokenizer {

std::unique_ptr<Tokenizer> load_sentencepiece(std::string_view, std::string_view, const std::string& file) {
  throw usage_error("tokenizer " + file + " needs SentencePiece, but trainhost was built without it",
                    "install libsentencepiece-dev and build again, or use token ids in a .bin file");
}

}  // namespace trainhost::tokenizer
