// See registry.hpp. A candidate passes through: scan (scan.cpp), trial load in a child if it is not cached
// (trial_load.hpp), load on first use (plugin_library.cpp), probe. A failure is written into the candidate
// with stage, code, reason and hint. Used by one thread. Invariant after scan_once(): found and candidates
// have equal size, and at most one candidate per id is not rejected.
#include "core/plugin/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <thread>

#include "core/base/text.hpp"
#include "core/plugin/adapt.hpp"
#include "core/plugin/scan.hpp"
#include "core/plugin/trial_load.hpp"

namespace trainhost::plugin {

namespace fs = std::filesystem;

struct Registry::Impl {
  std::vector<fs::path> directories;
  std::shared_ptr<HostContext> context = std::make_shared<HostContext>();
  std::shared_ptr<Cache> cache;
  std::vector<ScannedFile> found;  // parallel to `candidates`
  std::vector<Candidate> candidates;
  std::map<std::string, std::unique_ptr<Estimator>> estimators;
  std::map<std::string, std::unique_ptr<Trainer>> trainers;
  std::map<std::string, std::unique_ptr<CommunicatorPlugin>> communicators;
  bool scanned = false;

  void scan_once();
  void pass_framework_options();
  std::size_t need(const std::string& id, const std::string& kind);
  void trial_load(std::size_t index);
  void release_id(std::size_t index);
  void trial_load_for_list(std::size_t index);
  std::shared_ptr<Library> load(std::size_t index);
  template <class Adapter>
  Adapter& provide(const std::string& id, const char* kind,
                   std::map<std::string, std::unique_ptr<Adapter>>& made,
                   std::unique_ptr<Adapter> (*adapt)(std::shared_ptr<Library>));
  [[noreturn]] void throw_rejected(const Candidate& c);
  [[noreturn]] void throw_unknown(const std::string& id, const std::string& kind);
  std::vector<std::string> ids(const std::string& kind) const;
  Estimator* own_estimator(const std::string& id) const;
};

/// Runs once: candidates keep their index for the life of the registry, which trial loads rely on.
void Registry::Impl::scan_once() {
  if (scanned) return;
  scanned = true;
  cache = std::make_shared<Cache>(context->options.cache_file, host_identity());
  Scan scan(*context, *cache);
  for (const fs::path& d : directories) scan.add_directory(d);
  found = scan.take_files();
  assert(candidates.empty());
  for (ScannedFile& f : found) candidates.push_back(std::move(f.candidate));
  assert(candidates.size() == found.size());
  cache->save();
  pass_framework_options();
}

/// Settings of a framework become options of the estimators that describe it, as far as their manifests list
/// them; an option in the plugin's own table wins.
void Registry::Impl::pass_framework_options() {
  auto& options = context->options.plugin_options;
  const auto given = options.find(kFrameworkOptions);
  if (given == options.end()) return;
  const std::map<std::string, std::string> settings = given->second;
  const auto name = settings.find("framework");
  assert(name != settings.end());
  for (const Candidate& c : candidates)
    if (std::ranges::find(c.manifest.frameworks, name->second) != c.manifest.frameworks.end())
      for (const auto& setting : settings)
        if (std::ranges::find(c.manifest.options, setting.first) != c.manifest.options.end())
          options[c.manifest.id].insert(setting);
}

/// A fixed order, so that the choice between equal matches does not depend on the search path.
std::vector<std::string> Registry::Impl::ids(const std::string& kind) const {
  std::vector<const Manifest*> all;
  for (const Candidate& c : candidates)
    if (c.status != Status::kRejected && c.manifest.kind == kind) all.push_back(&c.manifest);
  std::sort(all.begin(), all.end(), [](const Manifest* a, const Manifest* b) {
    return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
  });
  std::vector<std::string> out;
  for (const Manifest* m : all) out.push_back(m->id);
  if (kind != "estimator") return out;
  for (const auto& own : context->options.estimators)
    if (std::ranges::find(out, own->id()) == out.end()) out.push_back(own->id());
  return out;
}

/// The estimator of the calling process with that id; nullptr if there is none.
Estimator* Registry::Impl::own_estimator(const std::string& id) const {
  for (const auto& own : context->options.estimators)
    if (own->id() == id) return own.get();
  return nullptr;
}

/// A rejected trainer means that the backend is not available, which `auto` treats like a missing one.
void Registry::Impl::throw_rejected(const Candidate& c) {
  Exit code = c.manifest.kind == "trainer" ? Exit::kNoBackend : Exit::kFailed;
  throw PluginError(code, "rejected",
                    fmt::format("the plugin {} was rejected: {} ({}/{})", escaped(c.file.string()), c.reason,
                                c.stage, c.code),
                    c.hint, 0);
}

/// The id exists as another kind, or not at all; both messages list what is available.
void Registry::Impl::throw_unknown(const std::string& id, const std::string& kind) {
  std::vector<std::string> known = ids(kind);
  for (const Candidate& c : candidates)
    if (c.status != Status::kRejected && c.manifest.id == id)
      throw usage_error(fmt::format("'{}' is of kind {}, not {}", id, c.manifest.kind, kind),
                        fmt::format("available {}s: {}", kind, fmt::join(known, ", ")));
  throw usage_error(fmt::format("no {} '{}'", kind, escaped(id)) + did_you_mean(id, known),
                    known.empty() ? fmt::format("no {} was found; run trainhost plugins list", kind)
                                  : fmt::format("available {}s: {}", kind, fmt::join(known, ", ")));
}

/// The candidate with that id. A rejected file is found by its id or, if that could not be read, by its
/// file name.
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

/// Loads an unknown file in a child and caches the result, unless it depends on options or on a device,
/// which may differ next time.
void Registry::Impl::trial_load(std::size_t index) {
  assert(index < candidates.size() && index < found.size());
  const HostOptions& o = context->options;
  Candidate& c = candidates[index];
  ScannedFile& f = found[index];
  if (o.trial_load_program.empty() || c.status == Status::kRejected) return;
  const auto options = o.plugin_options.find(c.manifest.id);
  const bool plain = options == o.plugin_options.end() || options->second.empty();
  TrialLoadRequest request{o.trial_load_program, o.trial_load_seconds, c.file, f.id, context->threads, {}};
  if (!plain) request.options = options->second;
  const TrialLoadResult v = run_trial_load(request);
  f.trial_loaded = true;
  c.warnings = v.warnings;
  c.notes = v.notes;
  c.from_cache = false;
  if (v.rejected) {
    reject(c, *v.rejected);
    release_id(index);
  } else if (v.unavailable) {
    reject(c, *v.unavailable);
    c.status = Status::kUnavailable;
  } else {
    c.status = Status::kOk;
    c.stage.clear(), c.code.clear(), c.reason.clear(), c.hint.clear(), c.native = {};
  }
  // Options and devices can change the result, so only a rejection that follows from the file is kept.
  if (v.rejected && (!plain || !depends_only_on_file(*v.rejected))) return;
  CacheEntry r{f.id, f.sidecar, f.hash, 0, 0, c.manifest, true, v.rejected, v.warnings};
  cache->put(c.file, std::move(r));
  cache->save();
}

/// A rejected file frees its id: the next file in the search order that was rejected only as its duplicate
/// becomes a candidate, as it will when the rejection comes from the cache.
void Registry::Impl::release_id(std::size_t index) {
  const Candidate* next = nullptr;
  for (std::size_t i = index + 1; i < candidates.size(); ++i) {
    Candidate& c = candidates[i];
    if (c.manifest.id != candidates[index].manifest.id || c.code != "duplicate_id") continue;
    if (next) {
      reject(c, duplicate_rejection(*next));
      continue;
    }
    next = &c;
    c.status = Status::kOk;
    c.stage.clear(), c.code.clear(), c.reason.clear(), c.hint.clear(), c.native = {};
    context->log(2, "plugins",
                 fmt::format("{} is used instead of {}, which was rejected: {}", escaped(c.file.string()),
                             escaped(candidates[index].file.string()), candidates[index].reason));
  }
}

/// For `plugins list`: plugins that need a device are probed again, because devices may have changed.
void Registry::Impl::trial_load_for_list(std::size_t index) {
  const Manifest& m = candidates[index].manifest;
  const bool needs_device = m.kind == "trainer" && m.device != "cpu";
  if (!found[index].trial_loaded || needs_device) trial_load(index);
}

/// Warnings of the trial load are logged when the plugin is really used, not for every listed file.
std::shared_ptr<Library> Registry::Impl::load(std::size_t index) {
  std::shared_ptr<Library> library =
      Library::open(candidates[index].file, found[index].id, candidates[index].manifest, context);
  validate_interfaces(*library);
  for (const std::string& w : candidates[index].warnings)
    if (w != kFpWarning || !library->changed_fp_mode())  // the library itself has just logged it
      context->log(2, candidates[index].manifest.id, w);
  return library;
}

template <class Adapter>
Adapter& Registry::Impl::provide(const std::string& id, const char* kind,
                                 std::map<std::string, std::unique_ptr<Adapter>>& made,
                                 std::unique_ptr<Adapter> (*adapt)(std::shared_ptr<Library>)) {
  // An adapter is created once per id; sessions refer to its library.
  if (auto it = made.find(id); it != made.end()) return *it->second;
  std::size_t index = need(id, kind);
  while (!context->options.trial_load_program.empty() && !found[index].trial_loaded) {
    trial_load(index);
    index = need(id, kind);  // another file with that id if this one was rejected; throws if there is none
  }
  try {
    assert(candidates[index].status != Status::kRejected);
    return *(made[id] = adapt(load(index)));
  } catch (const Rejection& why) {
    made.erase(id);
    reject(candidates[index], why);
    throw_rejected(candidates[index]);
  }
}

/// Nothing is read or run here; scan_once() does that at the first question.
Registry::Registry(std::vector<fs::path> directories, HostOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->directories = std::move(directories);
  std::uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  impl_->context->threads = options.thread_budget ? options.thread_budget : cores;
  impl_->context->options = std::move(options);
}

Registry::~Registry() = default;

void Registry::scan() { impl_->scan_once(); }

std::unique_ptr<Registry> Registry::with_plugin_options(decltype(HostOptions::plugin_options) options) {
  impl_->scan_once();
  HostOptions host = impl_->context->options;
  host.plugin_options = std::move(options);
  auto other = std::make_unique<Registry>(impl_->directories, std::move(host));
  other->impl_->cache = impl_->cache;
  other->impl_->found = impl_->found;
  other->impl_->candidates = impl_->candidates;
  other->impl_->scanned = true;
  other->impl_->pass_framework_options();
  return other;
}

const std::vector<Candidate>& Registry::candidates() const { return impl_->candidates; }

std::vector<std::string> Registry::ids(const std::string& kind) const {
  impl_->scan_once();
  return impl_->ids(kind);
}

/// A candidate that can be used is preferred to a rejected one of the same id.
const Candidate* Registry::find(const std::string& id) const {
  if (impl_->own_estimator(id)) return nullptr;
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
  if (Estimator* own = impl_->own_estimator(id)) return *own;
  return impl_->provide(id, "estimator", impl_->estimators, &adapt_estimator);
}

Trainer& Registry::trainer(const std::string& id) {
  return impl_->provide(id, "trainer", impl_->trainers, &adapt_trainer);
}

CommunicatorPlugin& Registry::communicator(const std::string& id) {
  return impl_->provide(id, "communicator", impl_->communicators, &adapt_communicator);
}

/// Loads trainers in this process only if no trial-load program is set (tests, embedded hosts).
void Registry::probe_all() {
  impl_->scan_once();
  for (std::size_t i = 0; i < impl_->candidates.size(); ++i) {
    Candidate& c = impl_->candidates[i];
    if (c.status == Status::kRejected) continue;
    if (!impl_->context->options.trial_load_program.empty()) {
      impl_->trial_load_for_list(i);
      continue;
    }
    try {
      if (c.manifest.kind == "estimator") {
        estimator(c.manifest.id);
      } else if (c.manifest.kind == "communicator") {
        communicator(c.manifest.id).probe();
        c.status = Status::kOk;
      } else {
        trainer(c.manifest.id).probe();
        c.status = Status::kOk;
      }
    } catch (const PluginError& e) {
      if (c.status == Status::kRejected) continue;  // provide() recorded the reason
      c.status = Status::kUnavailable;
      c.stage = "probe";
      c.code = e.status();
      c.reason = e.what();
      c.hint = e.hint();
      c.native = e.native();
    }
  }
}

void Registry::set_ranks(Communicator* ranks, std::uint64_t timeout_ms) {
  impl_->context->ranks = ranks, impl_->context->ranks_timeout_ms = timeout_ms;
}
Ledger& Registry::ledger() { return impl_->context->ledger; }
void Registry::set_interest(const Interest& interest) {
  impl_->context->only_if_it_fits = interest.only_if_it_fits;
  impl_->context->verdict_only = interest.only_if_it_fits && interest.verdict_only;
  impl_->context->without_upper_bounds = !interest.upper_bounds;
}

}  // namespace trainhost::plugin
