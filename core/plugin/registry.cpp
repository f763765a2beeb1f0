// See registry.hpp. Order of a candidate's life: scan (gate, manifest, duplicates), load on first use
// (library, tables), probe. Whatever stops it is written into the candidate with stage, code, reason and
// hint.
#include "core/plugin/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "core/base/text.hpp"
#include "core/plugin/adapt.hpp"
#include "core/plugin/gate.hpp"
#include "core/plugin/refused.hpp"

namespace trainhost::plugin {

namespace fs = std::filesystem;

struct Registry::Impl {
  std::vector<fs::path> directories;
  std::shared_ptr<HostContext> context = std::make_shared<HostContext>();
  std::vector<Candidate> candidates;
  std::vector<FileId> files;  // of the candidate of the same index
  std::map<std::string, std::unique_ptr<Estimator>> estimators;
  std::map<std::string, std::unique_ptr<Trainer>> trainers;
  bool scanned = false;

  void scan_directory(const fs::path& directory);
  void add(const fs::path& file);
  void refuse_duplicate(std::size_t index);
  void scan_once();
  std::size_t need(const std::string& id, const std::string& kind);
  std::shared_ptr<Library> load(std::size_t index);
  template <class Adapter>
  Adapter& provide(const std::string& id, const char* kind,
                   std::map<std::string, std::unique_ptr<Adapter>>& made,
                   std::unique_ptr<Adapter> (*adapt)(std::shared_ptr<Library>));
  [[noreturn]] void throw_rejected(const Candidate& c);
  [[noreturn]] void throw_unknown(const std::string& id, const std::string& kind);
  std::vector<std::string> ids(const std::string& kind) const;
};

namespace {

void reject(Candidate& c, const Refused& why) {
  c.status = Status::kRejected;
  c.stage = why.stage();
  c.code = why.code();
  c.reason = why.what();
  c.hint = why.hint();
}

std::vector<fs::path> libraries_in(const fs::path& directory, std::error_code& failed) {
  std::vector<fs::path> out;
  for (fs::directory_iterator it(directory, failed), end; !failed && it != end; it.increment(failed))
    if (it->path().extension() == ".so") out.push_back(it->path());
  std::sort(out.begin(), out.end());  // the same order on every file system
  return out;
}

}  // namespace

void Registry::Impl::scan_directory(const fs::path& directory) {
  std::error_code failed;
  std::vector<fs::path> found = libraries_in(directory, failed);
  if (failed) {
    bool missing = failed == std::errc::no_such_file_or_directory;
    context->log(missing ? 1 : 2, "plugins",
                 fmt::format("the plugin directory {} {}", escaped(directory.string()),
                             missing ? "does not exist" : "cannot be read: " + failed.message()));
  }
  for (const fs::path& file : found) add(file);
}

/// A file that was seen already, by whatever name, is no new candidate.
void Registry::Impl::add(const fs::path& file) {
  Candidate c;
  FileId id;
  std::error_code failed;
  c.file = fs::canonical(file, failed);
  if (failed) c.file = file;
  try {
    id = identify(c.file);
    for (const FileId& known : files)
      if (known.inode != 0 && known.same_file(id)) return;
    Passed passed = pass_gate(c.file);
    id = passed.id;
    c.manifest = std::move(passed.manifest);
  } catch (const Refused& why) {
    reject(c, why);
  }
  candidates.push_back(std::move(c));
  files.push_back(id);
  refuse_duplicate(candidates.size() - 1);
}

/// Two files with one id: the first in the search order keeps it.
void Registry::Impl::refuse_duplicate(std::size_t index) {
  Candidate& c = candidates[index];
  if (c.status == Status::kRejected) return;
  for (std::size_t i = 0; i < index; ++i) {
    const Candidate& first = candidates[i];
    if (first.status == Status::kRejected || first.manifest.id != c.manifest.id) continue;
    reject(c, Refused("registry", "duplicate_id",
                      fmt::format("the id '{}' is taken by {}, which comes first in the search order",
                                  c.manifest.id, escaped(first.file.string())),
                      "rename one, or remove one of the directories"));
    context->log(2, "plugins", fmt::format("{}: {}", escaped(c.file.string()), c.reason));
    return;
  }
}

void Registry::Impl::scan_once() {
  if (scanned) return;
  scanned = true;
  for (const fs::path& d : directories) scan_directory(d);
}

std::vector<std::string> Registry::Impl::ids(const std::string& kind) const {
  std::vector<const Manifest*> found;
  for (const Candidate& c : candidates)
    if (c.status != Status::kRejected && c.manifest.kind == kind) found.push_back(&c.manifest);
  std::sort(found.begin(), found.end(), [](const Manifest* a, const Manifest* b) {
    return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
  });
  std::vector<std::string> out;
  for (const Manifest* m : found) out.push_back(m->id);
  return out;
}

void Registry::Impl::throw_rejected(const Candidate& c) {
  Exit code = c.manifest.kind == "trainer" ? Exit::kNoBackend : Exit::kFailed;
  throw PluginError(code, "rejected",
                    fmt::format("the plugin {} cannot be used: {} ({}/{})", escaped(c.file.string()),
                                c.reason, c.stage, c.code),
                    c.hint, 0);
}

void Registry::Impl::throw_unknown(const std::string& id, const std::string& kind) {
  std::vector<std::string> known = ids(kind);
  for (const Candidate& c : candidates)
    if (c.status != Status::kRejected && c.manifest.id == id)
      throw usage_error(fmt::format("'{}' is a plugin of kind {}, not {}", id, c.manifest.kind, kind),
                        fmt::format("{}s here: {}", kind, fmt::join(known, ", ")));
  throw usage_error(
      fmt::format("no plugin file provides the {} '{}'", kind, escaped(id)) + did_you_mean(id, known),
      known.empty() ? fmt::format("no {} was found at all; see trainhost plugins list", kind)
                    : fmt::format("{}s here: {}", kind, fmt::join(known, ", ")));
}

/// The candidate that answers to `id`. A rejected file answers by its id or, when that could not be read, by
/// its name.
std::size_t Registry::Impl::need(const std::string& id, const std::string& kind) {
  scan_once();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& c = candidates[i];
    if (c.status != Status::kRejected && c.manifest.id == id && c.manifest.kind == kind) return i;
  }
  for (const Candidate& c : candidates) {
    const std::string name = c.manifest.id.empty() ? c.file.stem().string() : c.manifest.id;
    if (c.status == Status::kRejected && name == id && (c.manifest.kind.empty() || c.manifest.kind == kind))
      throw_rejected(c);
  }
  throw_unknown(id, kind);
}

std::shared_ptr<Library> Registry::Impl::load(std::size_t index) {
  return Library::open(candidates[index].file, files[index], candidates[index].manifest, context);
}

template <class Adapter>
Adapter& Registry::Impl::provide(const std::string& id, const char* kind,
                                 std::map<std::string, std::unique_ptr<Adapter>>& made,
                                 std::unique_ptr<Adapter> (*adapt)(std::shared_ptr<Library>)) {
  if (auto it = made.find(id); it != made.end()) return *it->second;
  std::size_t index = need(id, kind);
  try {
    return *(made[id] = adapt(load(index)));
  } catch (const Refused& why) {
    made.erase(id);
    reject(candidates[index], why);
    throw_rejected(candidates[index]);
  }
}

Registry::Registry(std::vector<fs::path> directories, HostOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->directories = std::move(directories);
  std::uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  impl_->context->threads = options.thread_budget ? options.thread_budget : cores;
  impl_->context->options = std::move(options);
}

Registry::~Registry() = default;

void Registry::scan() { impl_->scan_once(); }

const std::vector<Candidate>& Registry::candidates() const { return impl_->candidates; }

std::vector<std::string> Registry::ids(const std::string& kind) const {
  impl_->scan_once();
  return impl_->ids(kind);
}

const Candidate* Registry::find(const std::string& id) const {
  impl_->scan_once();
  const Candidate* rejected = nullptr;
  for (const Candidate& c : impl_->candidates) {
    if (c.manifest.id != id) continue;
    if (c.status != Status::kRejected) return &c;
    if (!rejected) rejected = &c;
  }
  return rejected;
}

Estimator& Registry::estimator(const std::string& id) {
  return impl_->provide(id, "estimator", impl_->estimators, &adapt_estimator);
}

Trainer& Registry::trainer(const std::string& id) {
  return impl_->provide(id, "trainer", impl_->trainers, &adapt_trainer);
}

void Registry::probe_all() {
  impl_->scan_once();
  for (Candidate& c : impl_->candidates) {
    if (c.status == Status::kRejected) continue;
    try {
      if (c.manifest.kind == "estimator") {
        estimator(c.manifest.id);
      } else {
        trainer(c.manifest.id).probe();
        c.status = Status::kOk;
      }
    } catch (const PluginError& e) {
      if (c.status == Status::kRejected) continue;  // provide() wrote why
      c.status = Status::kUnavailable;
      c.stage = "probe";
      c.code = e.status();
      c.reason = e.what();
      c.hint = e.hint();
    }
  }
}

Ledger& Registry::ledger() { return impl_->context->ledger; }

}  // namespace trainhost::plugin
