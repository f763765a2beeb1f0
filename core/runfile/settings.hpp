// The user's settings after each key was checked by itself: the run file, then the overrides; the last value
// of a key wins. A key that was not given has its schema default. Rules for several keys: combinations.hpp.
//
// Errors: training and planning throw the first one. Settings that collect errors keep all of them: a key
// with an error counts as not given, each rule runs in rule(), and the error of a rule that reads a key with
// an error is dropped, because it may only be a consequence.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/runfile/run_config.hpp"
#include "core/runfile/value.hpp"

namespace trainhost::runfile {

class Settings {
 public:
  /// `file`: name of the run file in messages. Throws usage_error on an unknown key or an invalid value,
  /// unless `errors` is given, which collects these errors and those of rule() as long as rules are run.
  Settings(std::string file, const std::vector<Entry>& entries, const std::vector<Override>& overrides,
           std::vector<RunFileError>* errors = nullptr);

  /// Runs f(), which throws an Error where the settings break a rule. Where errors are collected: true if
  /// neither f() nor a rule inside it had an error or read a key with one; the result of a rule that returns
  /// false must not be used. Otherwise the error is thrown, and the result is true.
  template <class F>
  bool rule(F&& f) const {
    if (!errors_) return f(), true;
    const State outer = std::exchange(state_, {});
    try {
      f();
    } catch (const Error& e) {
      collect(e);
    }
    const bool passed = !state_.failed && !state_.read_invalid;
    state_ = {outer.failed || !passed, outer.read_invalid};
    return passed;
  }
  /// States that the current rule uses the result of another one, or what a table describes.
  void depends_on(const std::string& key) const { note(key); }
  /// Marks a key or table whose rule failed: rules that read it may fail as a consequence.
  void mark_invalid(const std::string& key) { invalid_.push_back(key); }

  /// Sets `key` as if the run file contained it; used for --model.
  void set(const std::string& key, Value value);

  const std::string& file() const { return file_; }
  bool given(const std::string& key) const {
    note(key);
    return values_.count(key) != 0;
  }
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

  /// All given keys with their values, except [plugin.*]. A rule that reads them all states what it
  /// depends_on().
  const std::map<std::string, Value>& values() const { return values_; }
  /// Model family or "*" -> a text or a list of texts, from [memory.estimators].
  const std::map<std::string, Value>& family_estimators() const {
    note("memory.estimators");
    return family_estimators_;
  }
  /// "NAME.key" -> value, from [plugin.NAME].
  const std::map<std::string, Value>& plugin_values() const {
    note("plugin");
    return plugin_values_;
  }

 private:
  /// Of the rule that runs now.
  struct State {
    bool failed = false;        // it, or a rule inside it
    bool read_invalid = false;  // it read a key with an error
  };

  void collect(const Error& e) const;
  bool below_invalid(const std::string& key) const;
  void note(const std::string& key) const {
    if (errors_) note_read(key);
  }
  void note_read(const std::string& key) const;
  template <class F>
  void set_key(const std::string& key, F&& set);
  void add(const Entry& entry);
  void add_plugin(const Entry& entry);
  void add_family_estimators(const Entry& entry);
  void add_override(const Override& o);
  const Value& value(const std::string& key) const;

  std::string file_;
  std::map<std::string, Value> values_, plugin_values_, family_estimators_;
  std::map<std::string, bool> overridden_;
  std::vector<std::string> tables_;
  std::vector<RunFileError>* errors_ = nullptr;  // not read after the last rule
  // Where errors are collected: keys and tables with an error; keys that are most like unknown ones, which
  // the user may have meant; unknown tables (or keys) and the nearest ones.
  std::vector<std::string> invalid_, meant_;
  std::map<std::string, std::string> unknown_tables_;
  mutable State state_;
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
