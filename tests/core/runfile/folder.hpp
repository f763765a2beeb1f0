// A temporary folder for a test, with files that a run file may name; removed when the test ends.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/files.hpp"

namespace trainhost::testing {

class Folder : public test::TemporaryDirectory {
 public:
  /// `text` with the path of this folder replaced by "@", so that messages can be compared.
  std::string relative(std::string text) const {
    for (std::size_t at; (at = text.find(path().string())) != text.npos;)
      text.replace(at, path().string().size(), "@");
    return text;
  }
};

/// A small valid config.json; `more` replaces or adds fields: R"("hidden_act": "gelu")".
inline std::string small_config(const std::string& more = "", const std::string& family = "llama") {
  return "{\n\"model_type\": \"" + family +
         "\",\n\"vocab_size\": 320,\n\"hidden_size\": 64,\n\"num_hidden_layers\": 2,\n" +
         "\"num_attention_heads\": 4,\n\"num_key_value_heads\": 2,\n\"intermediate_size\": 172" +
         (more.empty() ? "" : ",\n" + more) + "\n}\n";
}

}  // namespace trainhost::testing
