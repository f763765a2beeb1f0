// See watched_plugin.hpp. Each call of the plugin follows the same steps: allow callbacks, pass guarded
// structs, call, close the sinks, compare the structs, read the error, and poison it. The arguments are kept
// for a while, because a plugin that writes to them later must find memory that can be compared.
#include "core/plugin_validator/watched_plugin.hpp"

#include <cstring>

#include "core/base/text.hpp"
#include "core/plugin/file_validation.hpp"
#include "core/plugin/rejection.hpp"

namespace trainhost::plugin_validator {
namespace {

// A th_error of an older call is checked and freed when it leaves the queue.
constexpr std::size_t kErrorsKept = 256;  // each holds three pages

// Index: the negated code.
constexpr const char* kCodes[] = {
    "TH_OK",         "TH_E_ARG",       "TH_E_UNSUPPORTED", "TH_E_UNAVAILABLE", "TH_E_DEVICE_OOM",
    "TH_E_HOST_OOM", "TH_E_CANCELLED", "TH_E_STATE",       "TH_E_NONFINITE",   "TH_E_DEVICE_LOST",
    "TH_E_IO",       "TH_E_INTERNAL",  "TH_E_ABSENT"};

/// A copy of `of` followed by 4 KiB of zeros, as a host passes structs. struct_size is larger by `more`
/// bytes, as in a host of a later minor; these bytes have the value `fill`.
/// The zeros behind the struct: a plugin that reads past struct_size finds no random bytes, and one that
/// tests a pointer there finds null.
template <class T>
struct PassedStruct {
  static constexpr std::size_t kZeros = 4096;
  PassedStruct(const T& of, std::uint32_t more, unsigned char fill) : bytes(sizeof(T) + more + kZeros, 0) {
    std::memcpy(bytes.data(), &of, sizeof(T));
    std::memset(bytes.data() + sizeof(T), fill, more);
    const auto size = static_cast<std::uint32_t>(sizeof(T) + more);
    std::memcpy(bytes.data(), &size, sizeof size);
  }
  const T* get() const { return reinterpret_cast<const T*>(bytes.data()); }
  // Without struct_size, which differs by `more`.
  bool same(const T& of) const {
    return std::memcmp(bytes.data() + 4, reinterpret_cast<const char*>(&of) + 4, sizeof(T) - 4) == 0;
  }
  std::vector<unsigned char> bytes;
};

}  // namespace

bool documented(th_status s) { return s <= TH_OK && s >= TH_E_ABSENT; }
// kCodes has one entry per documented code (documented()).
std::string status_text(th_status s) { return documented(s) ? kCodes[-s] : fmt::format("the code {}", s); }
std::string CallResult::text() const {
  return message.empty() ? status_text(status)
                         : fmt::format("{} ({})", status_text(status), escaped(message, 120));
}

WatchedPlugin::WatchedPlugin(std::filesystem::path file, std::uint64_t seed)
    : file_(std::move(file)), seed_(seed), host_(record_) {}
WatchedPlugin::~WatchedPlugin() = default;

// Once per process: the file does not change during the checks.
const plugin::Manifest& WatchedPlugin::manifest() try {
  if (!manifest_) {
    plugin::Trust trust;
    plugin::ValidatedFile passed;
    plugin::validate_file(file_, trust, passed);
    manifest_ = std::move(passed.manifest);
  }
  return *manifest_;
} catch (const plugin::Rejection& r) {
  throw CheckFailed(std::string("the host rejects the file: ") + r.what());
}

// The library stays mapped until the process ends, as in the host (LoadedLibrary).
LoadedLibrary& WatchedPlugin::library() {
  if (!library_.mapped())
    if (const std::string why = library_.map(file_); !why.empty())
      throw CheckFailed("it cannot be loaded: " + why);
  return library_;
}

void WatchedPlugin::read_error(Guarded<th_error>& e, CallResult& a) {
  if (!e.margins_unchanged())
    record_.breach(Rule::kErrorPastSize, "bytes around the caller's th_error were changed");
  // The content of the error is undefined after TH_OK.
  if (a.status != TH_OK) {
    a.error_code = e->code;
    // Fixed fields of the struct: a missing terminator is a breach, and must not be read past.
    const auto text_of = [&](const char* text, std::size_t capacity, const char* what) {
      const std::size_t n = ::strnlen(text, capacity);
      if (n == capacity)
        record_.breach(Rule::kErrorText, fmt::format("the error's {} is not terminated", what));
      if (!valid_utf8({text, n}))
        record_.breach(Rule::kErrorText, fmt::format("the error's {} is not UTF-8", what));
      return std::string(text, n);
    };
    a.message = text_of(e->message, sizeof e->message, "message");
    a.hint = text_of(e->hint, sizeof e->hint, "hint");
    text_of(e->native_domain, sizeof e->native_domain, "native_domain");
  }
  // From now on the error belongs to the plugin no more; a changed byte is a late write.
  e.poison();
}

void WatchedPlugin::check_late_write(const Guarded<th_error>& e) {
  if (!e.poison_unchanged())
    record_.breach(Rule::kErrorWrittenLate,
                   "a th_error of an earlier call was written to after that call had returned");
}

CallResult WatchedPlugin::call(const std::function<th_status(th_error*)>& f, bool no_error) {
  // In pages of its own, not on this stack: it is compared long after the call.
  std::unique_ptr<Guarded<th_error>> fresh = std::make_unique<Guarded<th_error>>();
  Guarded<th_error>* e = fresh.get();
  CallResult a;
  // While no such object exists, a callback is a breach.
  CheckingHost::CallbacksAllowed allowed(host_);
  a.status = f(no_error ? nullptr : e->get());
  read_error(*e, a);
  // Checks call from several threads.
  std::lock_guard lock(mutex_);
  errors_.push_back(std::move(fresh));
  if (errors_.size() > kErrorsKept) {
    check_late_write(*errors_.front());
    errors_.pop_front();
  }
  return a;
}

CallResult WatchedPlugin::start() {
  const th_plugin t = library().table();
  return call([&](th_error* e) { return t.start ? t.start(host_.get(), e) : TH_OK; });
}

void WatchedPlugin::stop() {
  const th_plugin t = library().table();
  CheckingHost::CallbacksAllowed allowed(host_);
  if (t.stop) t.stop();
}

// TH_E_UNAVAILABLE is the answer of a correct plugin on a machine without its device.
Started::Started(WatchedPlugin& plugin) : plugin_(plugin) {
  const CallResult a = plugin.start();
  if (a.status == TH_E_UNAVAILABLE) throw CheckSkipped("its start() returned TH_E_UNAVAILABLE: " + a.message);
  expect(a.ok(), "its start() returned {}", a.text());
}

int WatchedPlugin::match(const Sample& s) {
  const th_estimator t = library().estimator();
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  CheckingHost::CallbacksAllowed allowed(host_);
  return t.match(&m, &r);
}

th_status WatchedPlugin::call_report_function(const ReportArguments& a) {
  if (is_trainer()) return library().trainer().plan(host_.get(), a.model, a.run, a.sink, a.summary, a.error);
  return library().estimator().estimate(host_.get(), a.model, a.run, a.profile, a.sink, a.summary, a.error);
}

ReportResult WatchedPlugin::report_call(const Sample& s, const CallVariation& v,
                                        const std::function<th_status(ReportArguments)>& f) {
  ReportSink* sink = nullptr;
  {
    std::lock_guard lock(mutex_);
    // A deque, so that addresses stay valid; sinks live until the process ends, for late calls.
    sink = &report_sinks_.emplace_back(record_, std::this_thread::get_id());
  }
  sink->fail_from(v.fail_from, v.fail_with);
  sink->call_meanwhile(v.meanwhile);
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  // Copies: a plugin that changes them changes these, not the sample.
  const PassedStruct<th_model> model(m, v.later_minor_bytes, v.later_minor_fill);
  const PassedStruct<th_run> run(r, v.later_minor_bytes, v.later_minor_fill);
  Guarded<th_mem_summary> summary;
  ReportResult a;
  static_cast<CallResult&>(a) = call(
      [&](th_error* e) {
        return f({model.get(), run.get(), v.profile, sink->get(), summary.get(), e});
      },
      v.no_error);
  // From here on each call of the sink is a breach.
  sink->close();
  if (!model.same(m) || !run.same(r))
    record_.breach(Rule::kInputChanged, fmt::format("{} wrote into the model or the run", report_function()));
  if (!summary.margins_unchanged())
    record_.breach(Rule::kOutPastSize,
                   fmt::format("{} wrote outside the summary's struct_size", report_function()));
  host_.check_table_unchanged();
  a.report = std::move(sink->report());
  // Copied when the call has ended; the guarded struct is freed on return.
  a.report.summary = *summary;
  a.calls_after_failure = sink->calls_after_failure();
  return a;
}

ReportResult WatchedPlugin::report(const Sample& s, const CallVariation& v) {
  return report_call(s, v, [&](const ReportArguments& a) { return call_report_function(a); });
}

th_status WatchedPlugin::report_and_discard(const Sample& s) {
  // One static sink without state: nothing is allocated per call.
  static th_mem_sink sink{sizeof sink, 0, nullptr,
                          [](th_mem_sink*, const th_mem*) { return th_status{TH_OK}; },
                          [](th_mem_sink*, const char*) { return th_status{TH_OK}; }};
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  Guarded<th_mem_summary> summary;
  Guarded<th_error> error;
  CheckingHost::CallbacksAllowed allowed(host_);
  return call_report_function({&m, &r, nullptr, &sink, summary.get(), error.get()});
}

CallResult WatchedPlugin::probe(std::uint32_t* devices) {
  const th_trainer t = library().trainer();
  return call([&](th_error* e) { return t.probe(host_.get(), devices, e); });
}

CallResult WatchedPlugin::profile(const Sample& s, th_profile& out) {
  const th_trainer t = library().trainer();
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  Guarded<th_profile> p;
  CallResult a = call([&](th_error* e) { return t.profile(host_.get(), &m, &r, p.get(), e); });
  if (!p.margins_unchanged())
    record_.breach(Rule::kOutPastSize, "profile() wrote outside the profile's struct_size");
  out = *p;
  return a;
}

// C and E checks never get here.
void WatchedPlugin::require_device() {
  std::uint32_t devices = 0;
  const CallResult a = probe(&devices);
  if (a.status == TH_E_UNAVAILABLE) throw CheckSkipped("its probe() returned TH_E_UNAVAILABLE: " + a.message);
  if (!a.ok()) throw CheckSkipped("its probe() returned " + a.text());
  if (devices == 0) throw CheckSkipped("its probe() found no device");
}

TensorSink& WatchedPlugin::tensor_sink() {
  std::lock_guard lock(mutex_);
  return tensor_sinks_.emplace_back(record_, std::this_thread::get_id());
}

// Called by use_normally() after a pause, so that threads of the plugin had time to write.
void WatchedPlugin::check_late_writes() {
  host_.check_table_unchanged();
  std::lock_guard lock(mutex_);
  for (const auto& e : errors_) check_late_write(*e);
}

}  // namespace trainhost::plugin_validator
