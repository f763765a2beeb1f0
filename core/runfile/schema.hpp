// The schema: one row per run-file key with its type, default, limits and documentation. Validation, name
// suggestions, --set, `trainhost init`, `trainhost schema` and docs/run-file.md all read this table; to add a
// key, add a row.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/runfile/value.hpp"

namespace trainhost::runfile {

enum class Type { kInteger, kNumber, kPair, kNumbers, kSize, kBool, kText, kChoice, kPath, kTexts, kPaths };

struct Key {
  const char* name;  // full dotted name: "train.micro_batch"
  Type type;
  const char* default_toml;  // default value as TOML; "" = unset
  double min, max;           // kInteger, kNumber, and all numbers of kPair and kNumbers; inclusive
  const char* choices;       // kChoice: "fp32|tf32|bf16"
  const char* example;       // value that `trainhost init` shows for a key without a default
  const char* doc;           // one line, printed by `trainhost init` and in docs/run-file.md
};

/// All keys, grouped by table, in the order of the generated run file.
std::span<const Key> schema();
/// nullptr if no key has this full name.
const Key* find_key(std::string_view name);

struct Table {
  const char* name;
  const char* doc;
};
std::span<const Table> tables();
bool is_table(std::string_view name);

/// Throws usage_error at the position of the value unless it has the key's type and is within its limits.
void validate_value(const Key& key, const Value& value);

/// A setting of ours under the name that other trainers use; only for suggestions.
struct ForeignName {
  std::string_view name, key;
};
std::span<const ForeignName> foreign_names();

/// " from 0 to 100", " above 0, at most 1", " in [0, 1)": limits of a kInteger, kNumber or kPair key.
std::string limits_text(const Key& key);

/// Values that the key accepts, in words: "a whole number from 1 to 1048576".
std::string accepted_values(const Key& key);

/// Throws usage_error for a whole number of more than 64 bits, stating the key's limits.
[[noreturn]] void reject_digits(const Key& key, const std::string& digits, const Where& where);

/// The key or table that an unknown key is most like: a similar name in the same table, the same name in
/// another table, or the key that another trainer calls by this name. "" if nothing is similar.
std::string nearest_key(std::string_view name);
/// "; did you mean '...'?" with nearest_key(), or "".
std::string suggest_key(std::string_view name);

/// JSON Schema (draft 4) of run files. It accepts a file if each key by itself is valid for the parser,
/// except sizes of 2^63 bytes or more.
std::string run_file_json_schema();

/// The text of docs/run-file.md.
std::string run_file_reference();

}  // namespace trainhost::runfile
