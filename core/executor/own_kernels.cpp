// See own_kernels.hpp.
#include "core/executor/own_kernels.hpp"

#include <algorithm>
#include <vector>

#include "core/base/text.hpp"

namespace trainhost::executor {
namespace {

std::vector<std::string> split_at_spaces(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

const std::vector<std::string>& kernel_names() {
  static const std::vector<std::string> names = {
#define TRAINHOST_NAME(function, arguments, result) #function,
      TRAINHOST_KERNELS(TRAINHOST_NAME)
#undef TRAINHOST_NAME
  };
  return names;
}

std::string unknown_kernel(std::string_view name) {
  const std::string word(name);
  return contains(kernel_names(), word)
             ? ""
             : "there is no kernel '" + escaped(word, 40) + "'" + did_you_mean(word, kernel_names());
}

std::string wrong_kernel_names(std::string_view listed, std::string_view inherited) {
  const std::vector<std::string> not_own = split_at_spaces(inherited);
  for (const std::string& name : split_at_spaces(listed)) {
    if (const std::string wrong = unknown_kernel(name); !wrong.empty()) return "own_kernels: " + wrong;
    if (contains(not_own, name))
      return "own_kernels: the class does not define '" + name +
             "' but inherits it: compare the spelling and the argument of its function with kernels.hpp";
  }
  return "";
}

}  // namespace trainhost::executor
