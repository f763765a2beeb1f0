// The rules of each kind of file. One function per kind: reads the entries of one file into the job.
#pragma once
#include <vector>

#include "core/framework_files/job.hpp"

namespace trainhost::framework_files {

using Entries = std::vector<runfile::Entry>;

void read_training_arguments(const Entries& entries, Job& job);  // transformers, TRL
void read_accelerate(const Entries& entries, Job& job);
void read_deepspeed(const Entries& entries, Job& job);
void read_axolotl(const Entries& entries, Job& job);
void read_llama_factory(const Entries& entries, Job& job);
void read_torchtune(const Entries& entries, Job& job);
void read_torchtitan(const Entries& entries, Job& job);
void read_megatron(const Entries& entries, Job& job);
void read_litgpt(const Entries& entries, Job& job);

}  // namespace trainhost::framework_files
