// Reads YAML or JSON text as a flat list of entries, as core/runfile reads TOML. It knows no framework; the
// rules (rules.hpp) give keys a meaning.
#pragma once
#include <string>
#include <vector>

#include "core/runfile/value.hpp"

namespace trainhost::framework_files {

/// The most bytes of a file that are read: configuration files have a few KiB.
inline constexpr std::uint64_t kMaxFileBytes = 1 << 20;
inline constexpr std::uint64_t kMaxNotebookBytes = 64 << 20;

/// The scalars, and the lists of scalars, of the first document, with dotted keys and positions. A member of
/// a list of tables has its index in the key ("datasets.0.path"). Plain scalars are read as YAML 1.1 does:
/// `yes` and `on` are true, `~` is null. Throws usage_error with the position for text that is not YAML, a
/// key that is given twice, and nesting or a number of values that no configuration file has. With
/// `repeated`, a second value of a key replaces the first, and its position is added there.
std::vector<runfile::Entry> read_yaml(const std::string& text, const std::string& name,
                                      std::vector<Where>* repeated = nullptr);

/// allows_commas: before a closing bracket. Throws usage_error with the position for JSON that ends too
/// early, has a comment, or a comma before a closing bracket: YAML allows such a comma, json.load() of Python
/// does not. Other deviations from JSON are left to read_yaml(), because DeepSpeed itself reads Hjson.
void check_json(const std::string& text, const std::string& name, bool allows_commas);

}  // namespace trainhost::framework_files
