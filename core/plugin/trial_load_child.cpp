// See trial_load.hpp: the child's side. It does what the host would do with the plugin, in the same order,
// telling before each step what comes, so that the last word before a crash names the step.
#include <cstdio>
#include <cstdlib>

#include "core/plugin/adapt.hpp"
#include "core/plugin/cache_fields.hpp"
#include "core/plugin/hygiene.hpp"
#include "core/plugin/trial_load.hpp"
#include "core/process/child_side.hpp"

namespace trainhost::plugin {
namespace {

struct Task {
  std::filesystem::path file;
  FileId id;
  std::uint32_t threads = 1;
  std::map<std::string, std::string> options;
};

Task read_task() {
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

ChildRecord record;

void tell(const std::vector<std::string>& fields) { record.write(join_fields(fields) + "\n"); }

std::shared_ptr<HostContext> context_for(const Task& t, const std::string& id) {
  auto context = std::make_shared<HostContext>();
  context->threads = t.threads;
  context->options.plugin_options[id] = t.options;
  context->options.log = [](int, const std::string&, const std::string&) {};
  context->options.stage = [](const char* stage) { tell({"stage", stage}); };
  return context;
}

/// Loads, starts, asks and stops it. Throws Refused; tells itself when probe() says no.
void rehearse(const Task& t, const Manifest& m) {
  std::shared_ptr<Library> library = Library::open(t.file, t.id, m, context_for(t, m.id));
  if (library->changed_fp_mode()) tell({"warning", kFpWarning});
  tell({"stage", "abi"});
  check_interfaces(*library);
  if (m.kind == "trainer") {
    const std::unique_ptr<Trainer> trainer = adapt_trainer(std::move(library));
    tell({"stage", "probe"});
    try {
      trainer->probe();
    } catch (const PluginError& e) {
      tell({"unavailable", "probe", e.status(), e.what(), e.hint(), e.native().domain,
            std::to_string(e.native().code)});
    }
    tell({"stage", "stop"});
  } else {
    const std::unique_ptr<Estimator> estimator = adapt_estimator(std::move(library));
    tell({"stage", "stop"});
  }
}

}  // namespace

void probe_child() {
  const Task t = read_task();
  try {
    Trust trust;
    Passed passed;
    pass_gate(t.file, trust, passed);
    const ProcessState before = process_state();
    rehearse(t, passed.manifest);
    std::fflush(nullptr);  // what a plugin printed is on its way to the host's own output
    bool refused = false;
    for (const Change& c : changes(before, process_state())) {
      if (c.refuse && !refused)
        tell({"refused", "hygiene", c.code, c.what,
              "leave the process as it was found, library constructors too"});
      refused = refused || c.refuse;
      if (!c.refuse) tell({"warning", c.what});
    }
  } catch (const Refused& why) {
    tell({"refused", why.stage(), why.code(), why.what(), why.hint(), why.native().domain,
          std::to_string(why.native().code)});
  } catch (const std::exception& e) {
    tell({"refused", "load", "exception", e.what(), ""});
  }
  record.done();
}

}  // namespace trainhost::plugin
