// The plugins of the planner, linked into it, in place of files: implements scan.hpp, plugin_library.hpp and
// the functions of core/plugin that ask the file system. registry.cpp, the adapters and the C tables are
// those of the program.
#include "core/abi/error_guard.hpp"
#include "core/plugin/adapt.hpp"
#include "core/plugin/plugin_library.hpp"
#include "core/plugin/scan.hpp"
#include "core/plugin/trial_load.hpp"

#define TH_STATIC_PLUGINS(X) X(llama) X(transformer) X(pytorch) X(cuda)
#define DECLARE(id)                                       \
  extern "C" const th_plugin* trainhost_plugin_v1_##id(); \
  extern "C" const char* th_manifest_of_##id();
TH_STATIC_PLUGINS(DECLARE)
#undef DECLARE

namespace trainhost::plugin {
namespace {

struct StaticPlugin {
  const char* file;
  const th_plugin* (*entry)();
  const char* (*manifest)();
};
constexpr StaticPlugin kPlugins[] = {
#define ROW(id) {#id ".so", &trainhost_plugin_v1_##id, &th_manifest_of_##id},
    TH_STATIC_PLUGINS(ROW)
#undef ROW
};

}  // namespace

const std::filesystem::path& program_file() {
  static const std::filesystem::path none;
  return none;
}
std::filesystem::path default_cache_file() { return {}; }
std::filesystem::path program_folder() { return "/plugins"; }
std::vector<std::filesystem::path> search_path(const std::vector<std::filesystem::path>&,
                                               const std::vector<std::filesystem::path>&) {
  return {program_folder()};
}

void Scan::add_directory(const std::filesystem::path& directory) {
  for (const StaticPlugin& p : kPlugins) {
    ScannedFile f;
    f.candidate.file = directory / p.file;
    f.candidate.manifest = parse_manifest(p.manifest());
    f.trial_loaded = true;
    found_.push_back(std::move(f));
  }
}
Rejection duplicate_rejection(const Candidate&) { return Rejection("scan", "duplicate_id", "", ""); }
void reject(Candidate& c, const Rejection& why) {
  c.status = Status::kRejected;
  c.stage = why.stage(), c.code = why.code(), c.reason = why.what(), c.hint = why.hint();
}

Cache::Cache(std::filesystem::path file, std::string host) : file_(std::move(file)), host_(std::move(host)) {}
void Cache::put(const std::filesystem::path&, CacheEntry) {}
void Cache::save() {}
std::string host_identity() { return {}; }
bool depends_only_on_file(const Rejection&) { return true; }
TrialLoadResult run_trial_load(const TrialLoadRequest&) { return {}; }

FpMode::FpMode() : before_(0) {}
bool FpMode::restore() { return false; }

Library::Library(Manifest manifest, std::shared_ptr<HostContext> context)
    : manifest_(std::move(manifest)), host_(std::move(context), manifest_.id) {}
Library::~Library() = default;

std::shared_ptr<Library> Library::open(const std::filesystem::path& file, const FileId&,
                                       const Manifest& manifest, std::shared_ptr<HostContext> context) {
  std::shared_ptr<Library> l(new Library(manifest, std::move(context)));
  for (const StaticPlugin& p : kPlugins)
    if (file.filename() == p.file) l->table_ = *p.entry();
  l->start();
  return l;
}
void Library::start() {
  started_ = true;
  if (!table_.start) return;
  auto result = make_result<th_error>();
  if (table_.start(host_.get(), result.get()) != TH_OK)
    throw Rejection("start", "failed", abi::read_error(result.value).message, "");
}
void Library::throw_unseen_field(const std::string& field) const {
  throw PluginError(Exit::kUsage, "unsupported", "plugin " + id() + " does not have " + field, "", 0);
}
const void* Library::interface(const char* interface_id) const { return table_.get(interface_id); }
void Library::restore_fp_mode(FpMode&, const char*) const {}
void Library::warn_once(const std::string&) const {}
void validate_interfaces(const Library&) {}

/// Sizes of structs are those of this build: host and plugins are compiled together.
std::string AbiView::shrink_bytes(std::byte* at, const char*, std::uint32_t whole) const {
  std::memcpy(at, &whole, sizeof whole);
  return {};
}

}  // namespace trainhost::plugin
