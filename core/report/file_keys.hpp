// What became of the keys of another framework's files (`trainhost plan --from`), as text and as JSON.
#pragma once
#include <string>
#include <vector>

#include "core/base/json_value.hpp"
#include "core/planning/plan_result.hpp"
#include "core/report/terminal.hpp"

namespace trainhost::report {

/// Sentences that list every key: those that are used by name, those without effect on memory by name, and
/// each of the others with position, value and reason. None without keys.
std::vector<std::string> file_keys_sentences(const std::vector<runfile::FileKey>& keys);
/// The same with a heading, for a terminal.
std::string file_keys_text(const std::vector<runfile::FileKey>& keys, const Terminal& t);

/// "not planned, and may need more memory: rl; not understood, perhaps misspelt: lora_rnk"; "" where no key
/// may change the plan so. It belongs to the verdict, so that "fits" is not read without it.
std::string needs_more_text(const std::vector<runfile::FileKey>& keys);

/// Adds "file_keys" to a document: one object per key, in the order of the files, with "use": "used",
/// "without_effect", "not_modelled" or "not_understood", and "needs_more" where the run may need more memory
/// than its plan. Nothing without keys.
void add_file_keys(JsonValue& document, const std::vector<runfile::FileKey>& keys);

}  // namespace trainhost::report
