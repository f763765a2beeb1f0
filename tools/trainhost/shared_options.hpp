// Options that several commands have, for the files that declare commands. Options that override a key of the
// run file are texts: the reader of the run file checks them, so both give the same errors.
#pragma once
#include "tools/trainhost/command_options.hpp"

namespace trainhost::cli {

/// Bits of add_common(): which of the shared options a command has.
enum Shared : unsigned { kRunFile = 1, kModel = 2, kBackend = 4, kPlugins = 8, kFrom = 16 };

/// `shown` of add_text() for arguments whose name is all that is shown. CLI11 prints TEXT for "".
inline constexpr const char* kNoType = " ";

/// An option with a value. `shown`: what stands for the value in the help.
CLI::Option* add_text(CLI::App& app, const char* name, std::string& value, const char* shown,
                      const char* help);
/// An option that may be given several times, with a value each time.
void add_repeatable(CLI::App& app, const char* name, std::vector<std::string>& values, const char* shown,
                    const char* help);
void add_plugin_path(CLI::App& app, std::vector<std::string>& folders);
void add_from(CLI::App& app, std::vector<std::string>& files, const char* help);
void add_set(CLI::App& app, std::vector<std::string>& settings);
/// The options named in `shared`, then --json, -q and -v.
void add_common(CLI::App& app, CommonArguments& a, unsigned shared);
void add_host_budget(CLI::App& app, std::string& host_budget);
void add_framework(CLI::App& app, std::string& framework);  // --for
/// Device, budgets and framework of a plan.
void add_target(CLI::App& app, TargetArguments& a);
/// --lora and --qlora: settings that precede those of --set.
void add_adapters(CLI::App& app, CommonArguments& a);
/// --svg and --png.
void add_picture(CLI::App& app, PictureArguments& a);
void add_estimators(CLI::App& app, std::string& estimators);

/// For CLI::Option::check(): "" where a text is a whole number from `least` to `most`, else the complaint.
/// The same for any number; not a number (nan) and infinity are none.
std::function<std::string(const std::string&)> number_from(double least, double most);
std::function<std::string(const std::string&)> whole_number(std::uint64_t least, std::uint64_t most);

/// Declare commands, each group in a file of its own.
void add_generate(Parser& p);
void add_chat(Parser& p);
void add_eval(Parser& p);
void add_merge(Parser& p);
void add_data(Parser& p);
void add_plugins(Parser& p);

}  // namespace trainhost::cli
