// A shell script as words, for arguments_read.cpp: the part of the syntax that start scripts use. Nothing is
// run.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost::framework_files {

/// A word as a shell separates them.
struct Word {
  std::string text;
  Where where;
  bool begins_command = false;  // first word after a line end or a separator
  bool after_and = false;       // that separator is &&
  bool after_pipe = false;      // that separator is |
  bool after_or = false;        // that separator is ||
};

inline bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Words of `text` without quotes and comments. `$(...)` and `$((...))` are parts of a word, with their
/// spaces. The assignments of `export`, `declare`, `local` and `readonly` begin commands of their own.
/// `name`: of the file.
std::vector<Word> shell_words(const std::string& text, const std::string& name);

/// The position behind the bracket that closes the one at `open`; npos if none does.
std::size_t end_of_brackets(std::string_view text, std::size_t open);

using Variables = std::map<std::string, std::string>;

/// "--num-layers 32 --hidden-size 4096" of MODEL_ARGS="...": such variables only collect options.
bool holds_options(const std::string& value);

/// A variable that contains itself would expand without end.
inline constexpr int kMaxExpansions = 8;

/// `text` with the variables of the script and `$((...))` replaced; others stay as they are written.
/// Variables that hold options become nothing, because the options are read where they are assigned.
std::string expanded(const std::string& text, const Variables& variables, int depth = 0);

/// The value of an arithmetic expression; "" where it is not known.
std::string evaluated(const std::string& expression, const Variables& variables, int depth);

/// The assignment NAME=VALUE, NAME+=VALUE or NAME=(WORD...), if words[i] begins one.
void assign(const std::vector<Word>& words, std::size_t i, Variables& variables);
Variables assignments(const std::vector<Word>& words);

/// The words without those of branches whose condition is false: if, elif, else, and `[ ... ] && command`. A
/// branch whose condition is not known without running the script (a file, the environment) stays.
std::vector<Word> executed(std::vector<Word> words);

}  // namespace trainhost::framework_files
