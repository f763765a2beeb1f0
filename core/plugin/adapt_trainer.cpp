// See adapt.hpp. The adapters of trainers and their sessions. Rules for every call into a plugin: arguments
// are structs of the plugin's own minor version (fit_argument), results are zeroed before the call
// (make_result), no call is nested (InstanceCalls), and nothing that comes back is used before it was
// checked.
#include <fmt/format.h>

#include <cassert>

#include "core/abi/convert_structs.hpp"
#include "core/abi/enums.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/plugin/adapt.hpp"
#include "core/plugin/adapt_decoder.hpp"
#include "core/plugin/adapt_profiler.hpp"
#include "core/plugin/instance_calls.hpp"
#include "core/plugin/known_fields.hpp"
#include "core/plugin/save_sink.hpp"
#include "trainhost/device.h"
#include "trainhost/trainer.h"

namespace trainhost::plugin {
namespace {

constexpr std::int32_t kDevice = 0;  // one device per run; an option of the plugin may select another

/// Copies of the plugin's tables, taken once: a plugin that changes its tables later has no effect.
struct Tables {
  th_trainer trainer{};
  th_generate generate{};  // next is null if the plugin cannot generate
  th_profiler profiler{};  // start is null if the plugin cannot be profiled
  th_device device{};      // memory is null if it has no device of its own
};

/// One instance of a plugin. Thread: any, but one call at a time; InstanceCalls throws otherwise. The
/// destructor calls destroy() even after a failed call, since only destroy() frees the instance.
class SessionAdapter : public Session {
 public:
  SessionAdapter(std::shared_ptr<Library> library, const Tables& tables, th_trainer_inst* instance)
      : library_(std::move(library)), t_(tables), instance_(instance) {}
  ~SessionAdapter() override {
    // No call may start once destroy() has begun.
    calls_.close();
    try {
      t_.trainer.destroy(instance_);
    } catch (...) {  // destroy() cannot fail; an exception here has nowhere to be reported
    }
  }

  /// The data stay owned by the caller and are valid during the call only.
  void load(Scope scope, const TensorPiece& p) override {
    th_tensor c{};
    c.dtype = static_cast<std::uint32_t>(p.dtype);
    c.rank = p.rank;
    c.dim[0] = p.dim[0];
    c.dim[1] = p.rank >= 2 ? p.dim[1] : 0;
    c.name = p.name.c_str();
    c.data = const_cast<void*>(p.data);  // load() reads only
    c.first = p.first;
    c.count = p.count;
    auto argument = library_->fit_argument(c);
    call("load", [&](th_error* e) {
      return t_.trainer.load(instance_, static_cast<std::uint32_t>(scope), argument.get(), e);
    });
  }

  void init(std::uint64_t seed) override {
    call("init", [&](th_error* e) { return t_.trainer.init(instance_, seed, e); });
  }

  StepResult step(const StepInput& in) override { return run(in, 0); }
  StepResult evaluate(const StepInput& in) override { return run(in, TH_STEP_EVALUATE); }

  /// The plugin calls the sink from inside save(). An exception of the receiver must not pass through the
  /// plugin, which may be C; the sink stores it and the plugin sees a failing status.
  void save(Scope scope, const std::function<void(const TensorPiece&)>& receiver) override {
    save_tensors(static_cast<std::uint32_t>(scope), receiver);
  }
  void save_own_part(Scope scope, const std::function<void(const TensorPiece&)>& receiver) override {
    save_tensors(static_cast<std::uint32_t>(scope) | TH_SAVE_OWN_PART, receiver);
  }
  void save_tensors(std::uint32_t scope, const std::function<void(const TensorPiece&)>& receiver) {
    SaveSink sink(receiver);
    library_->view().shrink(sink.c);
    try {
      call("save", [&](th_error* e) { return t_.trainer.save(instance_, scope, sink.c.get(), e); });
    } catch (const PluginError&) {
      if (!sink.thrown && sink.problem.empty()) throw;
    }
    // Order: our own exception explains the failing status that the plugin returned because of it.
    if (sink.thrown) std::rethrow_exception(sink.thrown);
    if (!sink.problem.empty())
      throw PluginError(Exit::kFailed, "internal",
                        fmt::format("plugin {} sent {} from save()", library_->id(), sink.problem),
                        "a bug in the plugin: report it to its author", 0);
  }

  /// Cumulative since create(). A plugin without the function reports zeros.
  Counters counters() override {
    if (!t_.trainer.counters) return {};
    auto result = library_->make_result<th_counters>();
    call("counters", [&](th_error* e) { return t_.trainer.counters(instance_, result.get(), e); });
    const th_counters& c = result.value;
    return {.h2d = c.h2d_count,
            .d2h = c.d2h_count,
            .h2d_bytes = c.h2d_bytes,
            .d2h_bytes = c.d2h_bytes,
            .sync = c.sync_count,
            .sync_bytes = c.sync_bytes,
            .chunks = c.chunks,
            .launches = c.launches,
            .compute_ns = c.compute_ns,
            .exposed_transfer_ns = c.exposed_transfer_ns,
            .stream = c.stream_count,
            .stream_bytes = c.stream_bytes,
            .communication_bytes = c.communication_bytes,
            .communication_wait_ns = c.communication_wait_ns};
  }

  /// The text belongs to the plugin and is copied at once, with a limit and escaped.
  std::string info(const std::string& key) override {
    if (!t_.trainer.info) return {};
    std::string text;
    call("info", [&](th_error*) {
      const char* s = t_.trainer.info(instance_, key.c_str());
      if (s) text = escaped({s, ::strnlen(s, kMaxName)}, kMaxName);
      return TH_OK;
    });
    return text;
  }

  /// Unknown metrics are normal: a trainer answers only those that it can measure.
  std::optional<double> metric(const std::string& key) override {
    if (!t_.trainer.metric) return std::nullopt;
    double value = 0;
    try {
      call("metric", [&](th_error* e) { return t_.trainer.metric(instance_, key.c_str(), &value, e); });
    } catch (const PluginError& e) {
      if (e.status() == "absent" || e.status() == "unsupported" || e.status() == "argument")
        return std::nullopt;
      throw;
    }
    return value;
  }

  bool can_generate() const override { return t_.generate.next != nullptr; }

  /// `logits`: [vocab] f32, written by the plugin. The plugin knows the size from the model.
  void next_logits(std::int32_t token, std::uint32_t position, std::span<float> logits) override {
    assert(!logits.empty());
    if (!can_generate())
      throw PluginError(Exit::kUsage, "unsupported",
                        fmt::format("plugin {} cannot generate text", library_->id()), "", 0);
    call("next", [&](th_error* e) { return t_.generate.next(instance_, token, position, logits.data(), e); });
  }

  std::unique_ptr<Profiler> start_profiler(std::span<std::byte> records,
                                           Profiler::OnBoundary reached) override {
    return adapt_profiler(library_, t_.profiler, instance_, calls_, records, std::move(reached));
  }

  /// Every call on the instance goes through here.
 private:
  template <class F>
  void call(const char* name, F&& f) {
    InstanceCalls::Scope scope(calls_, library_->id(), name);
    call_plugin(*library_, name, std::forward<F>(f));
  }

  /// Shapes: tokens and targets are [batch, seq] int32, row-major. Checked here, as the plugin only gets
  /// pointers.
  StepResult run(const StepInput& in, std::uint32_t flags) {
    std::uint64_t ids = checked_mul(in.batch, in.seq);
    assert(in.starts.empty() || in.starts.size() == ids);
    if (in.tokens.size() != ids || in.targets.size() != ids)
      throw PluginError(Exit::kFailed, "argument",
                        fmt::format("a step of {} x {} tokens got {} tokens and {} targets", in.batch, in.seq,
                                    in.tokens.size(), in.targets.size()),
                        "", 0);
    th_step c{};
    c.struct_size = sizeof c;
    c.flags = flags;
    c.batch = in.batch;
    c.seq = in.seq;
    c.tokens = in.tokens.data();
    c.targets = in.targets.data();
    c.lr = in.lr;
    c.step_index = in.step_index;
    c.starts = in.starts.empty() ? nullptr : in.starts.data();
    auto argument = library_->fit_argument(c);
    auto result = library_->make_result<th_step_out>();
    call(flags ? "evaluate" : "step",
         [&](th_error* e) { return t_.trainer.step(instance_, argument.get(), result.get(), e); });
    const th_step_out& out = result.value;
    return {out.loss, out.grad_norm, out.tokens_counted, out.wall_ns, out.device_ns};
  }

  std::shared_ptr<Library> library_;  // outlives the instance, and with it the host table
  Tables t_;
  th_trainer_inst* instance_;
  InstanceCalls calls_;
};

/// Functions of a trainer that need no instance. They may be called before and beside sessions.
class TrainerAdapter : public Trainer {
 public:
  TrainerAdapter(std::shared_ptr<Library> library, const Tables& tables)
      : library_(std::move(library)), t_(tables) {}

  const std::string& id() const override { return library_->id(); }

  /// The first call that may touch a device or a vendor library.
  void probe() override {
    std::uint32_t devices = 0;
    call_plugin(*library_, "probe",
                [&](th_error* e) { return t_.trainer.probe(library_->host(), &devices, e); });
    if (devices == 0)
      throw PluginError(Exit::kNoBackend, "unavailable", fmt::format("plugin {} found no device", id()), "",
                        0);
  }

  /// th_profile is filled by the plugin in its own size; the fields that it does not know stay zero.
  TrainerTraits traits(const ModelSpec& m, const RunSpec& r) override {
    CallArguments arguments(*library_, m, r);
    auto p = library_->make_result<th_profile>();
    call_plugin(*library_, "profile", [&](th_error* e) {
      return t_.trainer.profile(library_->host(), arguments.model.get(), arguments.run.get(), p.get(), e);
    });
    p->struct_size = sizeof(th_profile);
    return abi::from_c(p.value);
  }

  /// A refused node makes the plugin return a failure; the collector's sentence about the node is then the
  /// better message.
  MemoryReport plan(const ModelSpec& m, const RunSpec& r) override {
    CallArguments arguments(*library_, m, r);
    ReportReceiver receiver(*library_);
    abi::Collector& collector = receiver.collector;
    try {
      call_plugin(*library_, "plan", [&](th_error* e) {
        return t_.trainer.plan(library_->host(), arguments.model.get(), arguments.run.get(), collector.sink(),
                               collector.summary(), e);
      });
    } catch (const PluginError&) {
      if (collector.problem().empty() && !collector.out_of_memory()) throw;
    }
    return take_report(id(), "plan", collector);
  }

  std::optional<std::uint64_t> profile_bytes(const ModelSpec& m, const RunSpec& r) override {
    if (!t_.profiler.record_bytes) return std::nullopt;
    CallArguments arguments(*library_, m, r);
    std::uint64_t bytes = 0;
    call_plugin(*library_, "record_bytes", [&](th_error* e) {
      return t_.profiler.record_bytes(library_->host(), arguments.model.get(), arguments.run.get(), &bytes,
                                      e);
    });
    return bytes;
  }

  /// nullopt also if the device is there but busy or lost: planning then has no budget and says so.
  std::optional<DeviceMemory> device_memory() override {
    if (!t_.device.memory) return std::nullopt;
    DeviceMemory d;
    char text[256] = "";
    try {
      call_plugin(*library_, "memory of the device", [&](th_error* e) {
        return t_.device.memory(library_->host(), kDevice, &d.free_bytes, &d.total_bytes, e);
      });
      call_plugin(*library_, "name of the device", [&](th_error* e) {
        return t_.device.name(library_->host(), kDevice, text, sizeof text, e);
      });
    } catch (const PluginError& e) {
      if (e.status() == "unavailable") return std::nullopt;
      throw;
    }
    if (d.free_bytes > d.total_bytes || d.total_bytes > kMaxBytes)
      throw PluginError(Exit::kFailed, "internal",
                        fmt::format("plugin {} reported {} free bytes on a device of {} bytes", id(),
                                    d.free_bytes, d.total_bytes),
                        "a bug in the plugin: report it to its author", 0);
    d.name = escaped({text, ::strnlen(text, sizeof text)}, kMaxName);
    return d;
  }

  /// The session holds the library, so the code stays mapped until the instance is destroyed.
  std::unique_ptr<Session> create(const ModelSpec& m, const RunSpec& r) override {
    CallArguments arguments(*library_, m, r);
    th_trainer_inst* instance = nullptr;
    call_plugin(*library_, "create", [&](th_error* e) {
      return t_.trainer.create(library_->host(), kDevice, arguments.model.get(), arguments.run.get(),
                               &instance, e);
    });
    if (!instance)
      throw PluginError(Exit::kFailed, "internal",
                        fmt::format("plugin {} returned no instance from create()", id()),
                        "a bug in the plugin: report it to its author", 0);
    return std::make_unique<SessionAdapter>(library_, t_, instance);
  }

  std::optional<DecodeMemory> decode_memory(const ModelSpec& m, const DecodeSpec& spec) override {
    return decoder_memory(*library_, m, spec);
  }
  std::unique_ptr<Decoder> create_decoder(const ModelSpec& m, const DecodeSpec& spec) override {
    return adapt_decoder(library_, m, spec);
  }

 private:
  std::shared_ptr<Library> library_;
  Tables t_;
};

}  // namespace

/// Optional interfaces are optional as a whole: if a table is provided, its mandatory functions must be set.
std::unique_ptr<Trainer> adapt_trainer(std::shared_ptr<Library> library) {
  const void* raw = library->interface(TH_TRAINER_ID);
  if (!raw)
    throw Rejection("abi", "no_interface",
                    fmt::format("it is of kind trainer but does not provide {}", TH_TRAINER_ID),
                    "return its table from get(), or change the kind in the manifest");
  Tables t;
  t.trainer = copy_known_fields<th_trainer>(raw, TH_SIZE_UP_TO(th_trainer, destroy), TH_TRAINER_ID " table");
  auto need = [](auto* function, const char* slot) {
    require_slot(reinterpret_cast<const void*>(function), TH_TRAINER_ID, slot);
  };
  need(t.trainer.probe, "probe");
  need(t.trainer.profile, "profile");
  need(t.trainer.plan, "plan");
  need(t.trainer.create, "create");
  need(t.trainer.load, "load");
  need(t.trainer.init, "init");
  need(t.trainer.step, "step");
  need(t.trainer.save, "save");
  need(t.trainer.destroy, "destroy");
  if (const void* g = library->interface(TH_GENERATE_ID))
    t.generate = copy_known_fields<th_generate>(g, TH_SIZE_UP_TO(th_generate, next), TH_GENERATE_ID " table");
  t.profiler = profiler_table(*library);
  if (const void* d = library->interface(TH_DEVICE_ID)) {
    t.device = copy_known_fields<th_device>(d, TH_SIZE_UP_TO(th_device, name), TH_DEVICE_ID " table");
    require_slot(reinterpret_cast<const void*>(t.device.memory), TH_DEVICE_ID, "memory");
    require_slot(reinterpret_cast<const void*>(t.device.name), TH_DEVICE_ID, "name");
  }
  return std::make_unique<TrainerAdapter>(std::move(library), t);
}

}  // namespace trainhost::plugin
