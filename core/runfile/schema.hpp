// Every key of the run file, once: its type, default, limits and the line that documents it. Validation,
// nearest-name messages, --set and the file that `init` writes all read this table; adding a key is adding a
// row.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/runfile/value.hpp"

namespace trainhost::runfile {

enum class Type { kInteger, kNumber, kPair, kSize, kBool, kText, kChoice, kPath, kTexts, kPaths };

struct Key {
  const char* name;  // "train.micro_batch"
  Type type;
  const char* fallback;  // default as TOML; "" = unset
  double min, max;       // of kInteger, kNumber and the two of kPair; inclusive
  const char* choices;   // of kChoice: "fp32|tf32|bf16"
  const char* example;   // what `init` shows for a key that is unset by default
  const char* doc;
};

std::span<const Key> schema();
const Key* find_key(std::string_view name);

struct Table {
  const char* name;
  const char* doc;
};
std::span<const Table> tables();
bool is_table(std::string_view name);

/// Throws usage_error at the value's place unless it has the key's type and lies within its limits.
void check_value(const Key& key, const Value& value);

/// Throws usage_error for a whole number too long to be read, by the key's limits.
[[noreturn]] void refuse_digits(const Key& key, const std::string& digits, const Where& where);

/// "; did you mean '...'?" for a key that does not exist: the nearest full name, or the same word in another
/// table.
std::string suggest_key(std::string_view name);

}  // namespace trainhost::runfile
