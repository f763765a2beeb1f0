// The user's settings after each key was checked by itself: the run file, then the overrides; the last value
// of a key wins. A key that was not given has its schema default. Rules for several keys: combinations.hpp.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/runfile/run_config.hpp"
#include "core/runfile/value.hpp"

namespace trainhost::runfile {

class Settings {
 public:
  /// `file`: name of the run file in messages. Throws usage_error on an unknown key or an invalid value.
  Settings(std::string file, const std::vector<Entry>& entries, const std::vector<Override>& overrides);

  /// Sets `key` as if the run file contained it; used for --model.
  void set(const std::string& key, Value value);

  const std::string& file() const { return file_; }
  bool given(const std::string& key) const { return values_.count(key) != 0; }
  bool overridden(const std::string& key) const { return overridden_.count(key) != 0; }
  bool table_given(const std::string& table) const;  // the table itself, or one of its keys
  Where where(const std::string& key) const;         // the file name alone if the key was not given

  std::int64_t integer(const std::string& key) const { return value(key).integer; }
  double number(const std::string& key) const { return value(key).number; }
  std::string text(const std::string& key) const { return value(key).text; }
  bool flag(const std::string& key) const { return value(key).boolean; }
  std::vector<Value> list(
      const std::string& key) const;  // of kTexts, kPaths, kPair, kNumbers; empty when unset
  std::optional<std::uint64_t> size(const std::string& key) const;

  /// All given keys with their values, except [plugin.*].
  const std::map<std::string, Value>& values() const { return values_; }
  /// Model family or "*" -> a text or a list of texts, from [memory.estimators].
  const std::map<std::string, Value>& family_estimators() const { return family_estimators_; }
  /// "NAME.key" -> value, from [plugin.NAME].
  const std::map<std::string, Value>& plugin_values() const { return plugin_values_; }

 private:
  void add(const Entry& entry);
  void add_plugin(const Entry& entry);
  void add_family_estimators(const Entry& entry);
  void add_override(const Override& o);
  const Value& value(const std::string& key) const;

  std::string file_;
  std::map<std::string, Value> values_, plugin_values_, family_estimators_;
  std::map<std::string, bool> overridden_;
  std::vector<std::string> tables_;
};

/// The run file with every key that has a value, as TOML. `base`: the folder that relative paths refer to.
std::string resolved_text(const Settings& s, const std::filesystem::path& base);

/// The value of a key of the schema, as TOML.
std::string toml_value(const Value& v);

/// Values of keys whose schema rows limit them to the type.
inline std::uint32_t u32(const Settings& s, const char* key) {
  return static_cast<std::uint32_t>(s.integer(key));
}
inline std::uint64_t u64(const Settings& s, const char* key) {
  return static_cast<std::uint64_t>(s.integer(key));
}

}  // namespace trainhost::runfile
