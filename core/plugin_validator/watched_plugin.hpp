// What a check works with: the file, its manifest, the library in this process, the checking host, and calls
// whose every argument is watched. One Bench lives in one child process and may serve several checks; what
// one check learned (the tour) another may use.
#pragma once
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/plugin/registry.hpp"
#include "core/plugin_validator/checking_host.hpp"
#include "core/plugin_validator/guarded_memory.hpp"
#include "core/plugin_validator/record.hpp"
#include "core/plugin_validator/samples.hpp"
#include "core/plugin_validator/sinks.hpp"
#include "core/plugin_validator/subject.hpp"
#include "core/plugin_validator/verdict.hpp"

namespace trainhost::plugin_validator {

/// How a call into the plugin ended.
struct Answer {
  th_status status = TH_OK;
  std::string message, hint;
  th_status error_code = TH_OK;  // what stands in the th_error itself
  bool ok() const { return status == TH_OK; }
  /// "TH_E_ARG (no model)": for sentences.
  std::string text() const;
};

struct ReportAnswer : Answer {
  SeenReport report;
  int calls_after_refusal = 0;
};

/// The constant's name, or the number where the interface has no such code.
std::string status_text(th_status s);
bool documented(th_status s);

/// What a call may be given instead of the ordinary arguments.
struct Twist {
  const th_profile* profile = nullptr;
  bool no_error = false;                   // a null th_error
  std::size_t refuse_from = 0;             // the sink refuses from that node on ...
  th_status refuse_with = TH_E_CANCELLED;  // ... with this code
  std::uint32_t later_minor_bytes = 0;     // structs that are this much longer than this build knows ...
  unsigned char later_minor_fill = 0;      // ... with this in every byte of it
};

/// What stands around the plugin under test, as the parent found it.
struct Surroundings {
  std::filesystem::path reference_trainer, reference_estimator;  // empty: not here
  double fuzz_seconds = 0;                                       // 0: a fixed number of cases
  std::function<void(const std::string&)> at_case;  // told before each case, so that a crash has a name
};

class Bench {
 public:
  Bench(std::filesystem::path file, std::uint64_t seed);
  ~Bench();

  const std::filesystem::path& file() const { return file_; }
  /// As the host reads it from the file. Throws Broken.
  const plugin::Manifest& manifest();
  std::uint64_t seed() const { return seed_; }
  Surroundings& around() { return around_; }
  /// A figure of a check that passes, for the report.
  void figure(std::string text) { figure_ = std::move(text); }
  std::string take_figure() { return std::exchange(figure_, {}); }

  /// The library, mapped at the first use. Throws Broken.
  Subject& subject();
  /// Maps it so that close_subject() unmaps it; false when it cannot be loaded. For a process that is about
  /// that.
  bool subject_until_closed() { return subject_.map(file_, Mapping::kUntilClosed).empty(); }
  void close_subject() { subject_.unmap(); }
  CheckingHost& host() { return host_; }
  Record& record() { return record_; }
  Sample sample() { return small_sample(manifest().families); }

  /// Runs f(th_error*) as one call into the plugin: callbacks are legal, the error is guarded and poisoned
  /// afterwards.
  Answer call(const std::function<th_status(th_error*)>& f, bool no_error = false);

  Answer start();
  void stop();

  // Estimators. The plugin must have been started (Started).
  int match(const Sample& s);
  ReportAnswer estimate(const Sample& s, const Twist& t = {});
  // Trainers.
  Answer probe(std::uint32_t* devices);
  Answer profile(const Sample& s, th_profile& out);
  ReportAnswer plan(const Sample& s, const Twist& t = {});
  /// estimate() or plan(), whichever the plugin's kind has.
  ReportAnswer report(const Sample& s, const Twist& t = {});
  bool is_trainer() { return manifest().kind == "trainer"; }
  /// Throws NotHere with the plugin's own words where probe() finds no device.
  void need_device();

  /// A whole life of the plugin under the eyes of the checking host, once a process: what it saw is in
  /// record().
  void tour();
  /// Looks again at everything that calls were given: writes that came late.
  void look_back();

  using ReportCall =
      std::function<th_status(const th_model*, const th_run*, th_mem_sink*, th_mem_summary*, th_error*)>;
  ReportAnswer report_call(const Sample& s, const Twist& t, const char* name, const ReportCall& f);
  /// A sink for tensors that lives as long as this.
  TensorSink& tensor_sink();

 private:
  void look_at_error(Guarded<th_error>& e, Answer& a);
  void look_at_late(const Guarded<th_error>& e);
  std::filesystem::path file_;
  std::uint64_t seed_;
  Record record_;
  CheckingHost host_;
  Subject subject_;
  std::optional<plugin::Manifest> manifest_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<Guarded<th_error>>>
      errors_;  // of the last calls: late writes are seen by their poison
  std::deque<ReportSink> report_sinks_;
  std::deque<TensorSink> tensor_sinks_;
  bool toured_ = false;
  Surroundings around_;
  std::string figure_;
};

/// start() now, stop() at the end. Throws Broken, or NotHere where the plugin says that it cannot run here.
class Started {
 public:
  explicit Started(Bench& b);
  ~Started() { bench_.stop(); }
  Started(const Started&) = delete;

 private:
  Bench& bench_;
};

}  // namespace trainhost::plugin_validator
