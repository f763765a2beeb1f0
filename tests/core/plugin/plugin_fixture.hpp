// Fixtures of the plugin tests: a temporary directory that holds test plugins, and a registry over it.
#pragma once
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/plugin/registry.hpp"
#include "tests/support/files.hpp"

namespace plugin_fixture {

namespace fs = std::filesystem;
namespace tp = trainhost::plugin;

inline fs::path plugin_file(const std::string& name) { return fs::path(TEST_PLUGINS_DIR) / (name + ".so"); }

using trainhost::test::read_file;

/// A temporary directory for plugin files. Others may read it: validation looks at who may write.
class Directory : public trainhost::test::TemporaryDirectory {
 public:
  Directory() { fs::permissions(path(), fs::perms(0755)); }
  fs::path copy(const std::string& name, const std::string& as = {}) const {
    fs::path to = path() / ((as.empty() ? name : as) + ".so");
    fs::copy_file(plugin_file(name), to);
    return to;
  }
};

struct LogLine {
  int level;
  std::string where, text;
};

/// A registry over one directory, with its log kept.
struct Host {
  explicit Host(const std::vector<fs::path>& directories, tp::HostOptions options = {}) {
    options.log = [log = log](int level, const std::string& where, const std::string& text) {
      log->push_back({level, where, text});
    };
    registry = std::make_unique<tp::Registry>(directories, std::move(options));
    registry->scan();
  }
  explicit Host(const Directory& d, tp::HostOptions options = {})
      : Host(std::vector{d.path()}, std::move(options)) {}
  tp::Registry* operator->() { return registry.get(); }
  bool logged(const std::string& part) const {
    for (const LogLine& l : *log)
      if (l.text.find(part) != std::string::npos) return true;
    return false;
  }
  std::shared_ptr<std::vector<LogLine>> log = std::make_shared<std::vector<LogLine>>();
  std::unique_ptr<tp::Registry> registry;
};

/// "stage/code: reason" of the only candidate.
inline std::string verdict(const tp::Registry& r) {
  if (r.candidates().size() != 1) return std::to_string(r.candidates().size()) + " candidates";
  const tp::Candidate& c = r.candidates()[0];
  if (c.status == tp::Status::kOk) return "ok";
  return c.stage + "/" + c.code + ": " + c.reason;
}

inline tp::HostOptions with_do_option(const std::string& plugin, const std::string& what) {
  tp::HostOptions o;
  o.plugin_options[plugin]["do"] = what;
  return o;
}

/// Options of a host that trial-loads every unknown plugin, with `seconds` for each.
inline tp::HostOptions with_trial_loads(double seconds = 20, const fs::path& cache = {}) {
  tp::HostOptions o;
  o.trial_load_program = TRIAL_LOADER;
  o.trial_load_seconds = seconds;
  o.cache_file = cache;
  return o;
}

inline trainhost::ModelSpec small_model() {
  trainhost::ModelSpec m;
  m.vocab = 11, m.hidden = 8, m.layers = 3, m.heads = 2, m.kv_heads = 1, m.head_dim = 4, m.intermediate = 16;
  return m;
}

}  // namespace plugin_fixture
