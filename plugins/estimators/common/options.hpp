// A plugin's own [plugin.NAME] table as numbers, with the messages of the run file: the key, the value, what
// was expected. Knows no key by itself and has no defaults; a key that is absent is nullopt.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainhost/host.h"

namespace trainhost::rules {

class Options {
 public:
  /// The value of a key, nullptr where it is absent; good until the next call.
  using Text = std::function<const char*(const char* key)>;
  Options(Text text, std::string plugin) : text_(std::move(text)), plugin_(std::move(plugin)) {}
  /// `host` may be null (no options) and must outlive this.
  Options(const th_host* host, std::string plugin);

  /// A whole number above zero: "7e9", "4096"; with a unit where it is a size: "25MiB". Throws
  /// StatusError(TH_E_ARG).
  std::optional<std::uint64_t> count(const char* key) const;
  /// A number of [least, most]. Throws StatusError(TH_E_ARG).
  std::optional<double> number(const char* key, double least, double most) const;
  /// Which of `words`. Throws StatusError(TH_E_ARG) with the nearest.
  std::optional<std::size_t> choice(const char* key, const std::vector<std::string>& words) const;
  /// The word itself. The same errors.
  std::optional<std::string> word(const char* key, const std::vector<std::string>& words) const;
  /// "true" or "false"; `otherwise` where the key is absent. The same errors.
  bool flag(const char* key, bool otherwise) const;

 private:
  [[noreturn]] void wrong(const char* key, const std::string& value, const std::string& expected) const;
  Text text_;
  std::string plugin_;
};

}  // namespace trainhost::rules
