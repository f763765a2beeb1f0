// The folder of a run: which one is used, what an earlier run left in it, and the record of how the run was
// started. The folder contains run.toml, environment.json, status.json, metrics.jsonl, tb/, checkpoints/,
// model/ and summary.json. Nothing of an earlier run is replaced without --overwrite.
#pragma once
#include <filesystem>
#include <string>

#include "core/runfile/run_config.hpp"

namespace trainhost::training {

enum class Resume {
  kNo,
  kYes,
  kAuto,  // resume if there is a checkpoint, else start; nothing if the run is finished
};

struct RunFolderOptions {
  bool default_name = false;  // output.dir was not given
  Resume resume = Resume::kNo;
  bool overwrite = false;   // --overwrite: an earlier run in the folder is removed
  std::uint64_t steps = 0;  // train.steps
};

struct RunFolder {
  std::filesystem::path dir;
  bool resume = false;    // the run continues from a checkpoint
  bool finished = false;  // for Resume::kAuto: all steps are done and the model is written
};

/// The folder that the run uses. A name that the user chose (output.dir) is used as it is. The default name
/// gets a number if it has a finished run: runs/NAME, runs/NAME-2, runs/NAME-3; --resume takes the highest of
/// them, and --overwrite replaces the highest. Throws usage_error if a chosen folder has a finished run, or
/// any folder a run that --resume would continue, and neither --resume nor --overwrite is given; and, whatever
/// is given, if a run would replace a file in a folder that has no record of a run.
RunFolder select_run_folder(const runfile::OutputConfig& output, const RunFolderOptions& options);

/// Removes what an earlier run left in the locked folder (checkpoints, model, summary.json, metrics.jsonl, tb;
/// the token cache stays) unless the run resumes, and temporary files of killed runs in any case. Throws
/// run_error if a directory has the name of a file that the run writes when it saves or ends.
void clear_run_folder(const std::filesystem::path& dir, bool resume);

/// Writes run.toml (`run_file`: every key with its value) and environment.json: command line, time, version,
/// host name, kernel, CPU, working directory, and the environment variables that change how a run computes.
void record_start(const std::filesystem::path& dir, const std::string& run_file,
                  const std::string& command_line);

}  // namespace trainhost::training
