// See watched_plugin.hpp.
#include "core/plugin_validator/watched_plugin.hpp"

#include <cstring>

#include "core/base/text.hpp"
#include "core/plugin/file_validation.hpp"
#include "core/plugin/rejection.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr std::size_t kErrorsKept = 256;  // each holds three pages

constexpr const char* kCodes[] = {
    "TH_OK",         "TH_E_ARG",       "TH_E_UNSUPPORTED", "TH_E_UNAVAILABLE", "TH_E_DEVICE_OOM",
    "TH_E_HOST_OOM", "TH_E_CANCELLED", "TH_E_STATE",       "TH_E_NONFINITE",   "TH_E_DEVICE_LOST",
    "TH_E_IO",       "TH_E_INTERNAL",  "TH_E_ABSENT"};

/// A copy of `of` before 4 KiB of zeros, as hosts hand structs in; `more` bytes of them count as the struct's
/// own, as in a host of a later minor.
template <class T>
struct HandedIn {
  static constexpr std::size_t kZeros = 4096;
  HandedIn(const T& of, std::uint32_t more, unsigned char fill) : bytes(sizeof(T) + more + kZeros, 0) {
    std::memcpy(bytes.data(), &of, sizeof(T));
    std::memset(bytes.data() + sizeof(T), fill, more);
    const auto size = static_cast<std::uint32_t>(sizeof(T) + more);
    std::memcpy(bytes.data(), &size, sizeof size);
  }
  const T* get() const { return reinterpret_cast<const T*>(bytes.data()); }
  bool same(const T& of) const {
    return std::memcmp(bytes.data() + 4, reinterpret_cast<const char*>(&of) + 4, sizeof(T) - 4) == 0;
  }
  std::vector<unsigned char> bytes;
};

}  // namespace

bool documented(th_status s) { return s <= TH_OK && s >= TH_E_ABSENT; }
std::string status_text(th_status s) { return documented(s) ? kCodes[-s] : fmt::format("the code {}", s); }
std::string Answer::text() const {
  return message.empty() ? status_text(status)
                         : fmt::format("{} ({})", status_text(status), escaped(message, 120));
}

Bench::Bench(std::filesystem::path file, std::uint64_t seed)
    : file_(std::move(file)), seed_(seed), host_(record_) {}
Bench::~Bench() = default;

const plugin::Manifest& Bench::manifest() try {
  if (!manifest_) {
    plugin::Trust trust;
    plugin::Passed passed;
    plugin::pass_gate(file_, trust, passed);
    manifest_ = std::move(passed.manifest);
  }
  return *manifest_;
} catch (const plugin::Refused& r) {
  throw Broken(std::string("refused at the gate: ") + r.what());
}

Subject& Bench::subject() {
  if (!subject_.mapped())
    if (const std::string why = subject_.map(file_); !why.empty())
      throw Broken("it cannot be loaded: " + why);
  return subject_;
}

void Bench::look_at_error(Guarded<th_error>& e, Answer& a) {
  if (!e.margins_kept())
    record_.breach(Rule::kErrorPastSize, "bytes around the caller's th_error were changed");
  if (a.status != TH_OK) {
    a.error_code = e->code;
    const auto take = [&](const char* text, std::size_t room, const char* what) {
      const std::size_t n = ::strnlen(text, room);
      if (n == room) record_.breach(Rule::kErrorText, fmt::format("the error's {} is not terminated", what));
      if (!valid_utf8({text, n}))
        record_.breach(Rule::kErrorText, fmt::format("the error's {} is not UTF-8", what));
      return std::string(text, n);
    };
    a.message = take(e->message, sizeof e->message, "message");
    a.hint = take(e->hint, sizeof e->hint, "hint");
    take(e->native_domain, sizeof e->native_domain, "native_domain");
  }
  e.poison();
}

void Bench::look_at_late(const Guarded<th_error>& e) {
  if (!e.poison_kept())
    record_.breach(Rule::kErrorKept,
                   "a th_error of an earlier call was written to after that call had returned");
}

Answer Bench::call(const std::function<th_status(th_error*)>& f, bool no_error) {
  std::unique_ptr<Guarded<th_error>> fresh = std::make_unique<Guarded<th_error>>();
  Guarded<th_error>* e = fresh.get();
  Answer a;
  CheckingHost::Legal legal(host_);
  a.status = f(no_error ? nullptr : e->get());
  look_at_error(*e, a);
  std::lock_guard lock(mutex_);
  errors_.push_back(std::move(fresh));
  if (errors_.size() > kErrorsKept) {
    look_at_late(*errors_.front());
    errors_.pop_front();
  }
  return a;
}

Answer Bench::start() {
  const th_plugin t = subject().table();
  return call([&](th_error* e) { return t.start ? t.start(host_.get(), e) : TH_OK; });
}

void Bench::stop() {
  const th_plugin t = subject().table();
  CheckingHost::Legal legal(host_);
  if (t.stop) t.stop();
}

Started::Started(Bench& b) : bench_(b) {
  const Answer a = b.start();
  if (a.status == TH_E_UNAVAILABLE)
    throw NotHere("its start() says that it cannot be used here: " + a.message);
  expect(a.ok(), "its start() returned {}", a.text());
}

int Bench::match(const Sample& s) {
  const th_estimator t = subject().estimator();
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  CheckingHost::Legal legal(host_);
  return t.match(&m, &r);
}

ReportAnswer Bench::report_call(const Sample& s, const Twist& t, const char* name, const ReportCall& f) {
  ReportSink* sink = nullptr;
  {
    std::lock_guard lock(mutex_);
    sink = &report_sinks_.emplace_back(record_, std::this_thread::get_id());
  }
  sink->refuse_from(t.refuse_from, t.refuse_with);
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  const HandedIn<th_model> model(m, t.later_minor_bytes, t.later_minor_fill);
  const HandedIn<th_run> run(r, t.later_minor_bytes, t.later_minor_fill);
  Guarded<th_mem_summary> summary;
  ReportAnswer a;
  static_cast<Answer&>(a) =
      call([&](th_error* e) { return f(model.get(), run.get(), sink->get(), summary.get(), e); }, t.no_error);
  sink->close();
  if (!model.same(m) || !run.same(r))
    record_.breach(Rule::kInputChanged, fmt::format("{} wrote into the model or the run", name));
  if (!summary.margins_kept())
    record_.breach(Rule::kOutPastSize, fmt::format("{} wrote outside the summary's struct_size", name));
  host_.look_at_table();
  a.report = std::move(sink->report());
  a.report.summary = *summary;
  a.calls_after_refusal = sink->calls_after_refusal();
  return a;
}

ReportAnswer Bench::estimate(const Sample& s, const Twist& t) {
  const th_estimator e = subject().estimator();
  return report_call(s, t, "estimate()", [&](auto* m, auto* r, auto* sink, auto* sum, auto* error) {
    return e.estimate(host_.get(), m, r, t.profile, sink, sum, error);
  });
}

ReportAnswer Bench::plan(const Sample& s, const Twist& t) {
  const th_trainer e = subject().trainer();
  return report_call(s, t, "plan()", [&](auto* m, auto* r, auto* sink, auto* sum, auto* error) {
    return e.plan(host_.get(), m, r, sink, sum, error);
  });
}

ReportAnswer Bench::report(const Sample& s, const Twist& t) {
  return is_trainer() ? plan(s, t) : estimate(s, t);
}

Answer Bench::probe(std::uint32_t* devices) {
  const th_trainer t = subject().trainer();
  return call([&](th_error* e) { return t.probe(host_.get(), devices, e); });
}

Answer Bench::profile(const Sample& s, th_profile& out) {
  const th_trainer t = subject().trainer();
  const th_model m = s.c_model();
  const th_run r = s.c_run();
  Guarded<th_profile> p;
  Answer a = call([&](th_error* e) { return t.profile(host_.get(), &m, &r, p.get(), e); });
  if (!p.margins_kept())
    record_.breach(Rule::kOutPastSize, "profile() wrote outside the profile's struct_size");
  out = *p;
  return a;
}

void Bench::need_device() {
  std::uint32_t devices = 0;
  const Answer a = probe(&devices);
  if (a.status == TH_E_UNAVAILABLE)
    throw NotHere("its probe() says that it cannot be used here: " + a.message);
  if (!a.ok()) throw NotHere("its probe() returned " + a.text());
  if (devices == 0) throw NotHere("its probe() finds no device here");
}

TensorSink& Bench::tensor_sink() {
  std::lock_guard lock(mutex_);
  return tensor_sinks_.emplace_back(record_, std::this_thread::get_id());
}

void Bench::look_back() {
  host_.look_at_table();
  std::lock_guard lock(mutex_);
  for (const auto& e : errors_) look_at_late(*e);
}

}  // namespace trainhost::plugin_validator
