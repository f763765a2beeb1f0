// See adapt_profiler.hpp. Records come from outside: texts are escaped, times and phases must make sense.
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

struct Moments {
  abi::Room<th_moments> c;
  Profiler::Reached to;

  explicit Moments(Profiler::Reached reached) : to(std::move(reached)) {
    c->self = this;
    c->reached = [](th_moments* m, std::uint32_t moment, std::uint32_t micro, std::uint64_t live) noexcept {
      if (moment < TH_BEFORE_FORWARD || moment > TH_AFTER_UPDATE) return;
      static_cast<Moments*>(m->self)->to(static_cast<StepMoment>(moment), micro, live);
    };
  }
};

/// Checks each record, hands it on, and keeps what the receiver threw until the plugin has returned.
struct OpSink {
  abi::Room<th_op_sink> c;
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

  /// Plain text as it is, since thousands of records may come between two steps; anything else escaped in
  /// `copy`.
  static std::string_view printable(const char* text, std::string& copy) {
    const std::string_view t(text, ::strnlen(text, kMaxText));
    if (t.size() < kMaxText && std::all_of(t.begin(), t.end(), [](char c) { return c >= ' ' && c <= '~'; }))
      return t;
    return copy = escaped(t, kMaxText);
  }

  bool take(const th_op_record* r, OpTiming& t) {
    auto wrong = [&](const char* why) { return problem = why, false; };
    if (!r || !TH_HAS(r, th_op_record, live_bytes) || !r->kind || !r->name)
      return wrong("a record without a name or cut short");
    if (r->phase != TH_PH_FORWARD && r->phase != TH_PH_BACKWARD && r->phase != TH_PH_UPDATE)
      return wrong("a record of no phase of a step");
    if (r->layer < -1) return wrong("a record of a negative layer");
    if (r->duration_ns > kMaxBytes || r->start_ns > kMaxBytes) return wrong("a time that leaves 63 bits");
    if (r->start_ns < end_ns) return wrong("records that overlap or are out of order");
    if (r->bytes_read > kMaxBytes || r->bytes_written > kMaxBytes || r->flops > kMaxBytes)
      return wrong("a cost that leaves 63 bits");
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

class ProfilerAdapter : public Profiler {
 public:
  ProfilerAdapter(std::shared_ptr<Library> library, const th_profiler& table, th_trainer_inst* instance,
                  Turns& turns, std::span<std::byte> records, Reached reached)
      : library_(std::move(library)),
        table_(table),
        instance_(instance),
        turns_(turns),
        moments_(std::move(reached)) {
    library_->view().fit(moments_.c);
    Turns::Turn turn(turns_, library_->id(), "start of the profiler");
    call_plugin(*library_, "start of the profiler", [&](th_error* e) {
      return table_.start(instance_, records.data(), records.size(), moments_.c.get(), e);
    });
  }
  ~ProfilerAdapter() override {
    try {
      table_.stop(instance_);
    } catch (...) {  // stop() always succeeds; a plugin that throws here has already lost
    }
  }

  void read(const std::function<void(const OpTiming&)>& receiver) override {
    OpSink sink(receiver);
    library_->view().fit(sink.c);
    Turns::Turn turn(turns_, library_->id(), "read of the profiler");
    try {
      call_plugin(*library_, "read of the profiler",
                  [&](th_error* e) { return table_.read(instance_, sink.c.get(), e); });
    } catch (const PluginError&) {
      if (!sink.thrown && !sink.problem) throw;
    }
    if (sink.thrown) std::rethrow_exception(sink.thrown);
    if (sink.problem)
      throw PluginError(Exit::kFailed, "internal",
                        fmt::format("plugin {} gave {} from its profiler", library_->id(), sink.problem),
                        "a bug of the plugin", 0);
  }

 private:
  std::shared_ptr<Library> library_;
  th_profiler table_;
  th_trainer_inst* instance_;
  Turns& turns_;  // the session's, which outlives this
  Moments moments_;
};

}  // namespace

th_profiler profiler_table(Library& library) {
  const void* raw = library.interface(TH_PROFILER_ID);
  if (!raw) return {};
  auto t = known_part<th_profiler>(raw, TH_UP_TO(th_profiler, stop), TH_PROFILER_ID " table");
  auto need = [](auto* function, const char* slot) {
    need_slot(reinterpret_cast<const void*>(function), TH_PROFILER_ID, slot);
  };
  need(t.record_bytes, "record_bytes");
  need(t.start, "start");
  need(t.read, "read");
  need(t.stop, "stop");
  return t;
}

std::unique_ptr<Profiler> adapt_profiler(std::shared_ptr<Library> library, const th_profiler& table,
                                         th_trainer_inst* instance, Turns& turns,
                                         std::span<std::byte> records, Profiler::Reached reached) {
  if (!table.start)
    throw PluginError(Exit::kUsage, "unsupported", fmt::format("plugin {} cannot be profiled", library->id()),
                      "", 0);
  return std::make_unique<ProfilerAdapter>(std::move(library), table, instance, turns, records,
                                           std::move(reached));
}

}  // namespace trainhost::plugin
