// One key of a configuration file of another framework, and what became of it (core/framework_files).
#pragma once
#include <string>

#include "core/base/error.hpp"

namespace trainhost::runfile {

enum class KeyUse { kUsed, kWithoutEffect, kNotModelled, kNotUnderstood };

struct FileKey {
  std::string key, value;  // as in the file: "zero_optimization.stage", "3"
  Where where;
  KeyUse use = KeyUse::kUsed;
  std::string note;         // not modelled: its effect; not understood: the nearest known key or ""
  bool needs_more = false;  // not modelled, and the run may need more memory than its plan
};

}  // namespace trainhost::runfile
