// Reads typed values from a plugin's [plugin.NAME] table of the run file, or those of [plan] that the host
// passes to estimators of a framework. Errors name the key, the value and what was expected. Has no defaults: an absent key gives nullopt.
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
  /// Returns the value of a key, nullptr if absent; valid until the next call.
  using Text = std::function<const char*(const char* key)>;
  Options(Text text, std::string plugin) : text_(std::move(text)), plugin_(std::move(plugin)) {}
  /// `host` may be null (no options) and must outlive this.
  Options(const th_host* host, std::string plugin);

  /// Positive integer, "7e9", "4096", or size with a unit, "25MiB". Throws StatusError(TH_E_ARG).
  std::optional<std::uint64_t> count(const char* key) const;
  /// Number in [least, most]. Throws StatusError(TH_E_ARG).
  std::optional<double> number(const char* key, double least, double most) const;
  /// Index of the value in `values`. Throws StatusError(TH_E_ARG) with the nearest word.
  std::optional<std::size_t> choice(const char* key, const std::vector<std::string>& values) const;
  /// The value itself, one of `values`. Same errors.
  std::optional<std::string> word(const char* key, const std::vector<std::string>& values) const;
  /// The value as it was given.
  std::optional<std::string> text(const char* key) const;
  /// "true" or "false"; `otherwise` if the key is absent. Same errors.
  bool flag(const char* key, bool otherwise) const;

 private:
  [[noreturn]] void wrong(const char* key, const std::string& value, const std::string& expected) const;
  Text text_;
  std::string plugin_;
};

}  // namespace trainhost::rules
