// Files that other files name: the configuration of accelerate and of FSDP, and the JSON of DeepSpeed.
#pragma once
#include <vector>

#include "core/framework_files/file_kinds.hpp"

namespace trainhost::framework_files {

/// Appends the files that `files` name, and tables of DeepSpeed inside them as files of their own, unless a
/// file of that kind is among them. Throws usage_error for one that cannot be read.
void add_named_files(std::vector<File>& files);

}  // namespace trainhost::framework_files
