// From the shared arguments of a command to the run configuration and the plugin registry that they describe.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/planning/replan.hpp"
#include "core/plugin/registry.hpp"
#include "core/runfile/run_config.hpp"
#include "tools/trainhost/arguments.hpp"

namespace trainhost::cli {

/// The overrides of --set and --backend; --backend is last and wins. A --set without '=' throws usage_error.
std::vector<runfile::Override> overrides(const CommonArguments& a);

/// parallel.data of the run of `common` on that many devices, which its tensor-, pipeline- and
/// context-parallel ranks share. Throws usage_error if they cannot.
runfile::Override ranks_of_devices(const CommonArguments& common, const std::vector<runfile::Override>& more,
                                   std::uint32_t devices);
/// The overrides of the options that are given. With --devices the run of `common` is loaded: parallel.data
/// is what its tensor, pipeline and context parallelism leave of the devices; throws usage_error if they
/// leave a fraction.
std::vector<runfile::Override> target_overrides(const CommonArguments& common, const TargetArguments& a);

/// The settings of the options --lora and --qlora: adapters of rank 16 on every matrix of the layers; with
/// `quantized` on weights in 4 bits.
std::vector<runfile::Override> adapter_settings(const char* option, bool quantized);

/// The run configuration: run file or --model, then overrides(a), then `more`; the last value of a key wins.
/// The built-in model has the vocabulary of data.tokenizer. `open`: see runfile::load_run.
/// Throws runfile::RunFileErrors where the run has several errors.
runfile::RunConfig load_config(const CommonArguments& a, const std::vector<runfile::Override>& more = {},
                               const std::set<std::string>& open = {});

/// A scanned registry for that run. `c` may be null (a command without a run).
std::unique_ptr<plugin::Registry> make_registry(const CommonArguments& a, const runfile::RunConfig* c,
                                                std::uint32_t threads = 0);

/// Loads the run with varied settings: overrides(a), then `more`, then the variation; the last value wins.
planning::RunSource source_of(const CommonArguments& a, const std::vector<runfile::Override>& more);

/// The arguments of this process, quoted for a shell where needed; printed in HTML pages.
std::string command_line();
void remember_command_line(int argc, char** argv);  // called once, by main

/// "a,b" as {"a", "b"}; empty parts are left out.
std::vector<std::string> split_commas(const std::string& text);

}  // namespace trainhost::cli
