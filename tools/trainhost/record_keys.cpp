// See record_keys.hpp.
#include "tools/trainhost/record_keys.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"

namespace trainhost::cli {

NamedKeys named_keys(records::RecordKeys& k) {
  return {{"text", &k.text},
          {"prompt", &k.prompt},
          {"completion", &k.completion},
          {"instruction", &k.instruction},
          {"input", &k.input},
          {"output", &k.output},
          {"messages", &k.messages},
          {"role", &k.role},
          {"content", &k.content}};
}

void set_keys(const std::vector<std::string>& settings, const NamedKeys& keys) {
  std::vector<std::string> names;
  for (const auto& [name, key] : keys) names.push_back(name);
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    const std::string name = setting.substr(0, equals);
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end() || equals == setting.npos || equals + 1 == setting.size())
      throw usage_error(fmt::format("--key {}: expected NAME=KEY with a NAME of {}{}", escaped(setting, 60),
                                    fmt::join(names, ", "), did_you_mean(name, names)));
    *keys[static_cast<std::size_t>(found - names.begin())].second = setting.substr(equals + 1);
  }
}

}  // namespace trainhost::cli
