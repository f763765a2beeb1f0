// The calls of a script that describe its training job, as files of the kinds that rules read: LoraConfig of
// PEFT, TrainingArguments and SFTConfig with the model that the script loads, and the calls of Unsloth.
#pragma once
#include <string>
#include <vector>

#include "core/framework_files/file_kinds.hpp"

namespace trainhost::framework_files {

/// Reads a script or a notebook in Python. `named`: the kind that the command line gives; null: by its calls.
/// Throws usage_error with file and line for text that is no Python, and for a script without such calls.
std::vector<File> read_python(const std::string& path, std::string text, const Kind* named);

/// Moves what a script says beside TrainingArguments of another file ("--from train.py config.yaml") into
/// that file. Throws usage_error for a script whose arguments are in no file.
void join_python(std::vector<File>& files);

}  // namespace trainhost::framework_files
