// `trainhost plan --from FILE...`: configuration files of other frameworks as settings of a run file. Several
// files describe one job: TrainingArguments and the JSON of DeepSpeed. The files are read, never executed.
#pragma once
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/runfile/run_config.hpp"

namespace trainhost::framework_files {

/// The kinds of files, as in `--from KIND:FILE`: "transformers", "deepspeed", ...
std::vector<std::string> file_kinds();

/// What the files say. Every key of every file is in `keys` exactly once.
struct FileSettings {
  // Of the run file, with the position of each value; without those of the command line.
  std::vector<runfile::Override> settings;
  std::vector<runfile::FileKey> keys;  // in the order of the files
};

struct File;
class Job;

/// The files of one job, read once: planners ask for the same job with many options.
class JobFiles {
 public:
  /// Reads `files`, each "FILE" or "KIND:FILE"; without a kind it is recognized by the keys in the file.
  /// Throws usage_error with file and line for text that cannot be read.
  explicit JobFiles(const std::vector<std::string>& files);
  ~JobFiles();
  JobFiles(const JobFiles&) = delete;
  JobFiles& operator=(const JobFiles&) = delete;
  /// `options`: what the command line gives ("model.preset": --model); it replaces what the files say and
  /// need not be in them. Throws usage_error with file and line for values that are not understood, files
  /// that contradict each other, and for what decides memory and is in no file: the model, the sequence
  /// length, and the number of devices of a sharded run.
  FileSettings settings(const std::vector<runfile::Override>& options) const;

 private:
  /// The job of the files where options for these keys are given. Its own options may be others, if the rules
  /// do not depend on the difference.
  std::shared_ptr<const Job> read_with_options(const std::set<std::string>& options) const;

  std::vector<File> files_;
  mutable std::mutex lock_;
  mutable std::vector<std::shared_ptr<const Job>> read_;
};

/// JobFiles(files).settings(options).
FileSettings read_files(const std::vector<std::string>& files, const std::vector<runfile::Override>& options);

}  // namespace trainhost::framework_files
