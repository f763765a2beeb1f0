// Files of ms-swift: what they say beside their options, and which of its commands a script starts.
#pragma once
#include <string>

#include "core/framework_files/file_kinds.hpp"

namespace trainhost::framework_files {

/// `megatron sft`, `pt` or `rlhf`.
bool starts_megatron_of_swift(const std::string& text);
/// `swift sft`, `pt` or `rlhf`.
bool starts_swift(const std::string& text);

/// Throws for YAML with options of a command that trains nothing.
void check_swift_command(const File& f);

/// `megatron rlhf --use_ray`: tables of roles, each with its devices ("gpus"). That of the trainer is the
/// job.
void join_swift_roles(Entries& entries);

/// Devices as variables of the environment, the names of its own configurations of DeepSpeed and FSDP, which
/// are no paths, and the command that trains by preferences.
void add_swift_entries(const std::string& text, const std::string& path, bool script, Entries& entries);

}  // namespace trainhost::framework_files
