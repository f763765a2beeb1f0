// Names of models as frameworks write them, as presets. A name is compared by its words:
// "Meta-Llama-3-8B-Instruct" and "llama3_8b" have the letters of llama-3-8b once words without a meaning for
// memory are left out.
#include <algorithm>

#include "core/framework_files/read_files.hpp"
#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"

namespace trainhost::framework_files {
namespace {

/// Words of a name that say how a model was trained or stored, and not how large it is.
bool is_left_out(const std::string& word) {
  static constexpr const char* kWords[] = {"meta", "hf",  "base", "instruct", "chat",
                                           "it",   "bnb", "4bit", "v0.1",     "v1.0"};
  return std::ranges::any_of(kWords, [&](const char* w) { return word == w; });
}

/// "Meta-Llama-3.1-8B-Instruct" as "llama318b".
std::string letters_of(const std::string& name) {
  std::string out, word;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    const char c = i < name.size() ? name[i] : '-';
    if (c == '-' || c == '_' || c == ' ') {
      if (!is_left_out(word))
        std::ranges::copy_if(word, std::back_inserter(out), [](char x) { return x != '.'; });
      word.clear();
    } else {
      word += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
  }
  return out;
}

}  // namespace

std::string preset_of(const std::string& name) {
  const std::size_t slash = name.find_last_of('/');
  const std::string letters = letters_of(slash == name.npos ? name : name.substr(slash + 1));
  if (letters.empty()) return "";
  // Names of torchtune and torchtitan that leave out a part.
  static constexpr struct {
    const char *letters, *preset;
  } kShort[] = {
      {"phi3mini", "phi-3-mini-4k"},         {"llama3405b", "llama-3.1-405b"},
      {"deepseekv316b", "deepseek-v2-lite"}, {"deepseekv3236b", "deepseek-v2"},
      {"deepseekv3671b", "deepseek-v3"},     {"tinyllama11bintermediatestep1431k3t", "tinyllama-1.1b"}};
  for (const auto& s : kShort)
    if (letters == s.letters) return s.preset;
  for (const ModelSpec& m : model_presets())
    if (letters_of(m.name) == letters) return m.name;
  for (const ModelSpec& m : model::planned_presets())
    if (letters_of(m.name) == letters) return m.name;
  return "";
}

}  // namespace trainhost::framework_files
