// See trial_load.hpp: the child. It does what the host would do with the plugin, in the same order, and
// reports each stage before it begins, so that after a crash the last line names the stage.
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "core/plugin/adapt.hpp"
#include "core/plugin/field_lines.hpp"
#include "core/plugin/hygiene.hpp"
#include "core/plugin/trial_load.hpp"
#include "core/process/child_side.hpp"

namespace trainhost::plugin {
namespace {

/// The parent's request. Trusted: it comes from the parent through a pipe of its own.
struct Task {
  std::filesystem::path file;
  FileId id;
  std::uint32_t threads = 1;
  std::map<std::string, std::string> options;
};

Task read_request() {
  Task t;
  const std::string text = read_child_input();
  for (std::string_view line : lines_of(text)) {
    std::vector<std::string> f = split_fields(line);
    f.resize(7);
    const auto number = [&f](std::size_t i) { return std::strtoull(f[i].c_str(), nullptr, 10); };
    if (f[0] == "file") {
      t.file = f[1];
      t.id = {number(2), number(3), number(4), std::strtoll(f[5].c_str(), nullptr, 10),
              std::strtoll(f[6].c_str(), nullptr, 10)};
    }
    if (f[0] == "threads") t.threads = static_cast<std::uint32_t>(number(1));
    if (f[0] == "option") t.options[f[1]] = f[2];
  }
  return t;
}

// One record per process; the descriptor is inherited from the parent.
ChildRecord record;

/// What the plugin logs in probe(), from any of its threads. Kept while `open`, so that only one thread
/// writes the record.
struct Notes {
  std::mutex mutex;
  bool open = false;
  std::vector<std::string> lines;
};
Notes notes;

void keep_notes(bool open) {
  std::lock_guard lock(notes.mutex);
  notes.open = open;
}

void report(const std::vector<std::string>& fields) { record.write(join_fields(fields) + "\n"); }

/// The host table that the plugin gets in the child. What it logs in probe() is reported; other output of a
/// trial load is not the user's.
std::shared_ptr<HostContext> context_for(const Task& t, const std::string& id) {
  auto context = std::make_shared<HostContext>();
  context->threads = t.threads;
  context->options.plugin_options[id] = t.options;
  context->options.log = [](int, const std::string&, const std::string& text) {
    std::lock_guard lock(notes.mutex);
    if (notes.open && notes.lines.size() < kMaxNotes) notes.lines.push_back(text);
  };
  context->options.stage = [](const char* stage) { report({"stage", stage}); };
  return context;
}

/// Loads, starts, probes and stops the plugin. Throws Rejection; reports a failing probe() itself.
void trial_load(const Task& t, const Manifest& m) {
  std::shared_ptr<Library> library = Library::open(t.file, t.id, m, context_for(t, m.id));
  if (library->changed_fp_mode()) report({"warning", kFpWarning});
  report({"stage", "abi"});
  validate_interfaces(*library);
  if (m.kind != "estimator") {
    const std::unique_ptr<Trainer> trainer = m.kind == "trainer" ? adapt_trainer(library) : nullptr;
    const std::unique_ptr<CommunicatorPlugin> communicator = trainer ? nullptr : adapt_communicator(library);
    library.reset();
    report({"stage", "probe"});
    keep_notes(true);
    try {
      if (trainer) trainer->probe();
      if (communicator) communicator->probe();
    } catch (const PluginError& e) {
      report({"unavailable", "probe", e.status(), e.what(), e.hint(), e.native().domain,
              std::to_string(e.native().code)});
    }
    keep_notes(false);
    for (const std::string& line : notes.lines) report({"note", line});
    report({"stage", "stop"});
  } else {
    const std::unique_ptr<Estimator> estimator = adapt_estimator(std::move(library));
    report({"stage", "stop"});
  }
}

}  // namespace

void serve_trial_load() {
  const Task t = read_request();
  try {
    // Validated again in the child: the parent may have taken the manifest from the cache.
    Trust trust;
    ValidatedFile passed;
    validate_file(t.file, trust, passed);
    const ProcessState before = process_state();
    trial_load(t, passed.manifest);
    std::fflush(nullptr);  // flush the plugin's output, so that the parent counts it
    bool rejected = false;
    for (const Change& c : compare_states(before, process_state())) {
      if (c.reject && !rejected)
        report(
            {"rejected", "hygiene", c.code, c.what,
             "restore the state of the process in stop(); library constructors must not change it either"});
      rejected = rejected || c.reject;
      if (!c.reject) report({"warning", c.what});
    }
  } catch (const Rejection& why) {
    // Every outcome is a line of the record. An exception that leaves this function would look like a crash.
    report({"rejected", why.stage(), why.code(), why.what(), why.hint(), why.native().domain,
            std::to_string(why.native().code)});
  } catch (const std::bad_alloc&) {
    report(
        {"rejected", "load", "host_oom", "out of host memory", "free some memory and run the command again"});
  } catch (const std::exception& e) {
    report({"rejected", "load", "exception", e.what(), ""});
  }
  // Without this line the parent knows that the process ended before it was finished, for example by exit()
  // inside a plugin.
  record.done();
}

}  // namespace trainhost::plugin
