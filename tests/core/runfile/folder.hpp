// A temporary folder for a test, with files that a run file may name; removed when the test ends.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace trainhost::testing {

class Folder {
 public:
  Folder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("trainhost-config-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
    path_ = std::filesystem::canonical(path_);
  }
  ~Folder() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  Folder(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  /// `text` with the path of this folder replaced by "@", so that messages can be compared.
  std::string relative(std::string text) const {
    for (std::size_t at; (at = text.find(path_.string())) != text.npos;)
      text.replace(at, path_.string().size(), "@");
    return text;
  }

 private:
  std::filesystem::path path_;
};

/// A small valid config.json; `more` replaces or adds fields: R"("hidden_act": "gelu")".
inline std::string small_config(const std::string& more = "", const std::string& family = "llama") {
  return "{\n\"model_type\": \"" + family +
         "\",\n\"vocab_size\": 320,\n\"hidden_size\": 64,\n\"num_hidden_layers\": 2,\n" +
         "\"num_attention_heads\": 4,\n\"num_key_value_heads\": 2,\n\"intermediate_size\": 172" +
         (more.empty() ? "" : ",\n" + more) + "\n}\n";
}

}  // namespace trainhost::testing
