// Words that shell completion offers as values of options, arguments and keys of the run file. Does not know
// the commands: complete.cpp finds out what is completed.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::cli {

/// A word and, for shells that show one, its meaning in one line. No space follows a word that ends in '='
/// or ':'.
struct CompletionWord {
  std::string word, meaning;
};

struct CompletionValues {
  enum class Paths { kNone, kFolders, kFiles };
  std::vector<CompletionWord> words;
  Paths paths = Paths::kNone;
  std::string prefix;  // of the text that is completed: what comes before the value or the path
};

/// The words of `key` of the run file: choices, true and false, presets, devices, plugins, or paths. A list
/// separated by commas is completed at its last value. `plugin_path`: folders of --plugin-path.
CompletionValues values_of_key(std::string_view key, const std::string& typed,
                               const std::vector<std::string>& plugin_path);

/// KEY=VALUE of --set: the keys, then the values of one.
CompletionValues values_of_setting(const std::string& typed, const std::vector<std::string>& plugin_path);

/// The values of an option of `command` ("plugins check", "--only") or of an argument ("plugins info",
/// "NAME"), where `shown` is what --help shows for its value: alternatives separated by '|', in which FILE,
/// DIR and PRESET have their meaning and words in lower case are values themselves.
CompletionValues values_of_argument(std::string_view command, std::string_view name, std::string_view shown,
                                    const std::string& typed, const std::vector<std::string>& plugin_path);

/// The script that defines completion in bash, zsh or fish. Throws usage_error for another shell.
std::string completion_script(const std::string& shell);

}  // namespace trainhost::cli
