// See adapt_profiler.hpp. Records are untrusted: texts are escaped, times and phases are checked.
#include "core/plugin/adapt_profiler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/plugin/adapt.hpp"
#include "core/plugin/known_fields.hpp"

namespace trainhost::plugin {
namespace {

constexpr std::size_t kMaxText = 200;

/// Receives the boundaries of a step. Called by the plugin during step(), on its thread; it must not throw,
/// because the plugin may be C code.
struct BoundaryCallback {
  abi::ZeroPadded<th_moments> c;
  Profiler::OnBoundary to;

  explicit BoundaryCallback(Profiler::OnBoundary reached) : to(std::move(reached)) {
    c->self = this;
    c->reached = [](th_moments* m, std::uint32_t boundary, std::uint32_t micro, std::uint64_t live) noexcept {
      if (boundary < TH_BEFORE_FORWARD || boundary > TH_AFTER_UPDATE) return;
      static_cast<BoundaryCallback*>(m->self)->to(static_cast<StepBoundary>(boundary), micro, live);
    };
  }
};

/// Checks each record and passes it to the receiver. Stores an exception of the receiver until the plugin has
/// returned. Records of one step must be in order and must not overlap: the table of times adds them up.
struct OpSink {
  abi::ZeroPadded<th_op_sink> c;
  const std::function<void(const OpTiming&)>* to = nullptr;
  std::exception_ptr thrown;
  const char* problem = nullptr;
  std::uint64_t end_ns = 0;  // of the record before
  std::string kind_, name_;  // of texts that had to be escaped

  explicit OpSink(const std::function<void(const OpTiming&)>& receiver) : to(&receiver) {
    c->self = this;
    c->op = &on_op;
  }

  static th_status on_op(th_op_sink* sink, const th_op_record* r) noexcept {
    auto* self = static_cast<OpSink*>(sink->self);
    try {
      OpTiming t;
      if (!self->take(r, t)) return TH_E_ARG;
      (*self->to)(t);
      return TH_OK;
    } catch (...) {
      self->thrown = std::current_exception();
      return TH_E_CANCELLED;
    }
  }

  /// Printable ASCII is returned without a copy, because there may be thousands of records per step; other
  /// text is escaped into `copy`.
  static std::string_view printable(const char* text, std::string& copy) {
    const std::string_view t(text, ::strnlen(text, kMaxText));
    if (t.size() < kMaxText && std::all_of(t.begin(), t.end(), [](char c) { return c >= ' ' && c <= '~'; }))
      return t;
    return copy = escaped(t, kMaxText);
  }

  /// False if the record violates a rule of the interface; `problem` then says which.
  bool take(const th_op_record* r, OpTiming& t) {
    auto wrong = [&](const char* why) { return problem = why, false; };
    // live_bytes is the last field of this version that every record must have.
    if (!r || !TH_HAS(r, th_op_record, live_bytes) || !r->kind || !r->name)
      return wrong("a truncated record or one without a name");
    if (r->phase != TH_PH_FORWARD && r->phase != TH_PH_BACKWARD && r->phase != TH_PH_UPDATE)
      return wrong("a record without a valid phase");
    if (r->layer < -1) return wrong("a record with a negative layer");
    if (r->duration_ns > kMaxBytes || r->start_ns > kMaxBytes) return wrong("a time beyond 63 bits");
    if (r->start_ns < end_ns) return wrong("records that overlap or are out of order");
    if (r->bytes_read > kMaxBytes || r->bytes_written > kMaxBytes || r->flops > kMaxBytes)
      return wrong("a cost beyond 63 bits");
    end_ns = r->start_ns + r->duration_ns;
    t = {printable(r->kind, kind_),
         printable(r->name, name_),
         static_cast<Phase>(r->phase),
         r->layer,
         r->micro,
         r->start_ns,
         r->duration_ns,
         r->flops,
         r->bytes_read + r->bytes_written,
         r->live_bytes};
    return true;
  }
};

/// Profiling of one session. The session owns `calls_`, so a read during a step is detected. Destroyed before
/// the session (train.cpp), because stop() needs the instance.
class ProfilerAdapter : public Profiler {
 public:
  /// Throws PluginError if the plugin refuses, for example because `records` is too small.
  ProfilerAdapter(std::shared_ptr<Library> library, const th_profiler& table, th_trainer_inst* instance,
                  InstanceCalls& calls, std::span<std::byte> records, OnBoundary reached)
      : library_(std::move(library)),
        table_(table),
        instance_(instance),
        calls_(calls),
        boundary_callback_(std::move(reached)) {
    library_->view().shrink(boundary_callback_.c);
    // start() is called in the constructor: an object exists only while profiling is on.
    InstanceCalls::Scope scope(calls_, library_->id(), "start of the profiler");
    call_plugin(*library_, "start of the profiler", [&](th_error* e) {
      return table_.start(instance_, records.data(), records.size(), boundary_callback_.c.get(), e);
    });
  }
  ~ProfilerAdapter() override {
    try {
      table_.stop(instance_);
    } catch (...) {  // stop() cannot fail; an exception here has nowhere to be reported
    }
  }

  void read(const std::function<void(const OpTiming&)>& receiver) override {
    OpSink sink(receiver);
    library_->view().shrink(sink.c);
    InstanceCalls::Scope scope(calls_, library_->id(), "read of the profiler");
    try {
      call_plugin(*library_, "read of the profiler",
                  [&](th_error* e) { return table_.read(instance_, sink.c.get(), e); });
    } catch (const PluginError&) {
      if (!sink.thrown && !sink.problem) throw;
    }
    if (sink.thrown) std::rethrow_exception(sink.thrown);
    if (sink.problem)
      throw PluginError(Exit::kFailed, "internal",
                        fmt::format("plugin {} sent {} from its profiler", library_->id(), sink.problem),
                        "a bug in the plugin: report it to its author", 0);
  }

 private:
  std::shared_ptr<Library> library_;
  th_profiler table_;
  th_trainer_inst* instance_;
  InstanceCalls& calls_;  // the session's, which outlives this
  BoundaryCallback boundary_callback_;
};

}  // namespace

/// Empty table if the plugin has no profiler; an incomplete one is a rejection.
th_profiler profiler_table(Library& library) {
  const void* raw = library.interface(TH_PROFILER_ID);
  if (!raw) return {};
  auto t = copy_known_fields<th_profiler>(raw, TH_SIZE_UP_TO(th_profiler, stop), TH_PROFILER_ID " table");
  auto need = [](auto* function, const char* slot) {
    require_slot(reinterpret_cast<const void*>(function), TH_PROFILER_ID, slot);
  };
  need(t.record_bytes, "record_bytes");
  need(t.start, "start");
  need(t.read, "read");
  need(t.stop, "stop");
  return t;
}

std::unique_ptr<Profiler> adapt_profiler(std::shared_ptr<Library> library, const th_profiler& table,
                                         th_trainer_inst* instance, InstanceCalls& calls,
                                         std::span<std::byte> records, Profiler::OnBoundary reached) {
  if (!table.start)
    throw PluginError(Exit::kUsage, "unsupported", fmt::format("plugin {} cannot be profiled", library->id()),
                      "", 0);
  return std::make_unique<ProfilerAdapter>(std::move(library), table, instance, calls, records,
                                           std::move(reached));
}

}  // namespace trainhost::plugin
