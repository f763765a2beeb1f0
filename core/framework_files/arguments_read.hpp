// Reads command-line arguments from a file or a shell script that contains them, as Megatron-LM is started.
// It knows no framework and runs nothing; rules_megatron.cpp gives the arguments a meaning.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/runfile/value.hpp"

namespace trainhost::framework_files {

/// Every `--name VALUE...` as an entry: true without a value, a text with one, a list with several; a
/// value ends before a word that ends in ".py", the program that is started. The keys
/// have no dashes in front. The script is not executed: variables that the script itself assigns (NAME=value,
/// NAME=(...), $NAME, ${NAME}, ${NAME[@]}, ${NAME:-default}) are replaced, comments and branches
/// whose condition is false are skipped (shell_words.hpp); a value that
/// contains any other expansion is an error with its position where a key needs the value.
std::vector<runfile::Entry> read_arguments(const std::string& text, const std::string& name);

/// The last assignment of each of these variables, as an entry with its name: "NPROC_PER_NODE=4 swift sft",
/// "export NNODES=2". A value that the script does not say, as of NNODES=$COUNT, is a text.
std::vector<runfile::Entry> read_variables(const std::string& text, const std::string& name,
                                           std::initializer_list<std::string_view> variables);

}  // namespace trainhost::framework_files
