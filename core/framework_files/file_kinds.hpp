// The kinds of files that --from reads, and one such file: how its text is written, by which keys it is
// recognized, and which rules (rules.hpp) read it.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {

enum class Syntax { kYaml, kToml, kArguments, kPython };  // YAML reads JSON too

struct Kind {
  const char* name;
  Syntax syntax;
  std::vector<const char*> telling;  // keys, or beginnings of keys, that few other kinds have
  void (*read)(const Entries&, Job&);
};

/// In the order of reading: what TrainingArguments leave open ("auto") is known when the JSON of DeepSpeed is
/// read.
std::span<const Kind> kinds();
const Kind& kind_of(void (*read)(const Entries&, Job&));

struct File {
  std::string path;
  const Kind* kind = nullptr;  // null: to be recognized
  Entries entries;
  Entries environment = {};          // variables of the environment that every framework reads
  std::vector<Where> repeated = {};  // keys that are given a second time, with another value
  /// Of a script: a value that it assumes, as the default of an option, and the position of the key that has
  /// it; an empty position: it decides which statements run.
  struct Assumed {
    Where where;
    runfile::FileKey key;
  };
  std::vector<Assumed> assumed = {};
  std::string open_arguments =
      {};  // of a script: the arguments of its trainer, where only another file has them
  Where open_at = {};
};

/// Reads "FILE" or "KIND:FILE". Throws usage_error for a file that cannot be read, sets no key, or is of no
/// known kind. A Python script is several files (python_job.hpp); any other is one.
std::vector<File> read_argument(const std::string& argument);
File read_file(const std::string& argument);

}  // namespace trainhost::framework_files
