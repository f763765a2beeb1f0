// A shell script as words, for arguments_read.cpp: the part of the syntax that start scripts use. Nothing is
// run.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost::framework_files {

/// A word as a shell separates them.
struct Word {
  std::string text;
  Where where;
  bool begins_command = false;  // first word after a line end or a separator
  bool after_and = false;       // that separator is &&
};

/// Words of `text` without quotes and comments. `name`: of the file.
std::vector<Word> shell_words(const std::string& text, const std::string& name);

using Variables = std::map<std::string, std::string>;

/// "--num-layers 32 --hidden-size 4096" of MODEL_ARGS="...": such variables only collect options.
bool holds_options(const std::string& value);

/// `text` with the variables of the script replaced; others stay as they are written. Variables that hold
/// options become nothing, because the options are read where they are assigned.
std::string expanded(const std::string& text, const Variables& variables, int depth = 0);

/// The assignment NAME=VALUE, NAME+=VALUE or NAME=(WORD...), if words[i] begins one.
void assign(const std::vector<Word>& words, std::size_t i, Variables& variables);
Variables assignments(const std::vector<Word>& words);

/// The words without those of branches whose condition is false: if, elif, else, and `[ ... ] && command`. A
/// branch whose condition is not known without running the script (a file, the environment) stays.
std::vector<Word> executed(std::vector<Word> words);

}  // namespace trainhost::framework_files
