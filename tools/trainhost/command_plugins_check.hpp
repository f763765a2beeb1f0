// trainhost plugins check FILE|ID: holds a plugin against the promises of the interface. Words to settings
// and reports to text; the checks are core/plugin_validator.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/plugin_validator/runner.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {

class PluginsCheck {
 public:
  /// Adds `check`, and the hidden `check-worker` that children of it run.
  void add(CLI::App& plugins);
  bool parsed() const { return check_->parsed() || worker_->parsed(); }
  Exit run();

 private:
  std::filesystem::path file() const;
  Exit write_pages() const;
  void find_references(plugin_validator::Settings& s) const;
  CLI::App *check_ = nullptr, *worker_ = nullptr;
  std::string name_, only_, skip_, json_file_, junit_, explain_, pages_;
  std::vector<std::string> plugin_path_;
  bool list_ = false, quiet_ = false;
  int verbose_ = 0, level_ = 5;
  double deadline_ = 10, fuzz_ = 0;
  std::uint64_t seed_ = 1;
};

}  // namespace trainhost::cli
