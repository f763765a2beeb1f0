// Keywords of calls as entries with the keys that JSON and YAML have.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "core/framework_files/file_kinds.hpp"
#include "core/framework_files/python_calls.hpp"

namespace trainhost::framework_files::python {

/// Writes the entries of one file.
class CallEntries {
 public:
  CallEntries(const JobCalls& calls, File& file) : calls_(calls), file_(file) {}

  void add_assumption(const Where& where, const Assumption& a);
  void add_entry(const std::string& key, const std::string& spelling, const Where& where,
                 runfile::Value value);
  /// A key and what an expression is: dicts and BitsAndBytesConfig become dotted keys.
  void add(const std::string& key, const std::string& spelling, const Node& keyword, const Node& n,
           const Place& place);
  /// Every keyword of a call below `table`, and positional arguments with these names.
  void add_keywords(const Call& call, const std::string& table, std::initializer_list<const char*> positional,
                    const std::string& shown = "", std::initializer_list<std::string_view> left_out = {});
  /// **dict: its members. Of any other expression no keyword is known.
  void spread(const Node& c, const Place& place, const std::string& table, const std::string& shown,
              std::initializer_list<std::string_view> left_out);
  /// What no key says: an entry whose key begins with @@ (mark_of()).
  void mark(const char* key, const Node& n, std::string text = "true");
  bool has(std::string_view key) const;
  runfile::Value with_place(runfile::Value v, const Node& n) const;
  /// The key of a keyword below a table: names that files have too have no table.
  static std::string key_in(const std::string& table, const std::string& name);
  static runfile::Value flag(bool on);
  File& file() { return file_; }

 private:
  void add_value(const std::string& key, const std::string& spelling, const Node& keyword, const Node& n,
                 PyValue v, const Place& place);

  const JobCalls& calls_;
  File& file_;
};

}  // namespace trainhost::framework_files::python
