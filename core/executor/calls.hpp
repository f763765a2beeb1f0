// The C functions of a trainer, written once: FrontCalls answer what needs no instance, InstanceCalls hand calls on to the
// object of a run. Nothing thrown leaves them. A trainer in one file joins both (trainer.hpp); one whose front opens an
// engine beside it puts the first into the front and the second into the engine (plugins/common).
#pragma once
#include <memory>
#include <string>

#include "core/bridge/convert.hpp"
#include "core/bridge/guard.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/plan/memory_plan.hpp"
#include "trainhost/trainhost.hpp"

namespace trainhost::executor {

/// A program in its place.
struct Placed {
  plan::Program program;
  plan::MemoryPlan plan;
};

/// What a trainer chose for a run.
struct Choice {
  Profile profile;
  std::string why;  // one sentence for the user where something had to be decided; else ""
  std::shared_ptr<const Placed> placed = nullptr;  // where choosing took a placement of this profile
};

/// The program of the choice: the placement that decided, or one made now.
std::shared_ptr<const Placed> placed_program(const ModelSpec& model, const RunSpec& run, const Choice& choice);

/// bridge::guard that knows the SDK's own exception as well.
template <class F>
th_status guard(th_error* error, F&& f) noexcept {
  return bridge::guard(error, [&] {
    try {
      f();
    } catch (const th::Error& e) {
      throw bridge::StatusError(e.code, e.text, e.hint, e.bytes_needed);
    }
  });
}

/// plan() and record_bytes() of a trainer that runs the program of (model, run, choice.profile).
th_status send_plan(const Choice& choice, const ModelSpec& model, const RunSpec& run, th_mem_sink* sink,
                    th_mem_summary* summary);
std::uint64_t profiler_bytes(const Choice& choice, const ModelSpec& model, const RunSpec& run);

/// F has two static functions, which throw bridge::StatusError, th::Error or trainhost::Error:
///   std::uint32_t probe(const th_host*);                                        how many devices
///   Choice choose(const th_host*, const ModelSpec&, const RunSpec&);            refuses what the trainer does not do
template <class F>
struct FrontCalls {
  static th_status probe(const th_host* host, std::uint32_t* devices, th_error* error) {
    return guard(error, [&] {
      const std::uint32_t found = F::probe(host);
      if (devices) *devices = found;
    });
  }
  static th_status profile(const th_host* host, const th_model* model, const th_run* run, th_profile* out, th_error* error) {
    return guard(error, [&] {
      bridge::require_arguments(model, run, out);
      const Choice choice = F::choose(host, bridge::from_c(*model), bridge::from_c(*run));
      th::out(out, bridge::to_c(choice.profile));
    });
  }
  static th_status plan(const th_host* host, const th_model* model, const th_run* run, th_mem_sink* sink,
                        th_mem_summary* summary, th_error* error) {
    th_status refused = TH_OK;
    const th_status s = guard(error, [&] {
      bridge::require_arguments(model, run, sink);
      const ModelSpec m = bridge::from_c(*model);
      const RunSpec r = bridge::from_c(*run);
      refused = send_plan(F::choose(host, m, r), m, r, sink, summary);
    });
    return s != TH_OK ? s : refused != TH_OK ? bridge::fill(error, refused, "the host refused the report") : TH_OK;
  }
  static th_status record_bytes(const th_host* host, const th_model* model, const th_run* run, std::uint64_t* bytes,
                                th_error* error) {
    return guard(error, [&] {
      bridge::require_arguments(model, run, bytes);
      const ModelSpec m = bridge::from_c(*model);
      const RunSpec r = bridge::from_c(*run);
      *bytes = profiler_bytes(F::choose(host, m, r), m, r);
    });
  }
};

/// T is the object of a run: executor::Run, or a class with its public functions. M has one static function:
///   std::unique_ptr<T> create(const th_host*, std::int32_t device, const ModelSpec&, const RunSpec&);
/// The order of calls is kept here (status.h, life cycle): T is never asked before its parameters are there.
template <class T, class M>
struct InstanceCalls {
  static th_status create(const th_host* host, std::int32_t device, const th_model* model, const th_run* run,
                          th_trainer_inst** out, th_error* error) {
    if (out) *out = nullptr;
    return guard(error, [&] {
      bridge::require_arguments(model, run, out);
      auto made = std::make_unique<Held>(M::create(host, device, bridge::from_c(*model), bridge::from_c(*run)));
      *out = reinterpret_cast<th_trainer_inst*>(made.release());
    });
  }
  static th_status load(th_trainer_inst* i, std::uint32_t scope, const th_tensor* t, th_error* e) {
    return guard(e, [&] {
      require(t, "tensor");
      run_of(i).load(scope, th::in(t));
    });
  }
  static th_status init(th_trainer_inst* i, std::uint64_t seed, th_error* e) {
    return guard(e, [&] {
      if (held(i).ready) throw bridge::StatusError(TH_E_STATE, "init() a second time");
      run_of(i).init(seed);
      held(i).ready = true;
    });
  }
  /// What is known of the step is written even where it failed: the loss that was not finite, for one.
  static th_status step(th_trainer_inst* i, const th_step* s, th_step_out* o, th_error* e) {
    th_step_out full{};
    full.struct_size = sizeof full;
    const th_status status = guard(e, [&] {
      require(s, "step");
      require(o, "result");
      ready(i, "step()").step(th::in(s), full);
    });
    if (o) th::out(o, full);
    return status;
  }
  static th_status save(th_trainer_inst* i, std::uint32_t scope, th_tensor_sink* sink, th_error* e) {
    return guard(e, [&] {
      require(sink, "sink");
      if (scope != TH_SCOPE_WEIGHTS && scope != TH_SCOPE_MOMENT1 && scope != TH_SCOPE_MOMENT2)
        throw bridge::StatusError(TH_E_ARG, "there is no scope " + std::to_string(scope) + " to save");
      ready(i, "save()").save(scope, *sink);
    });
  }
  static th_status counters(th_trainer_inst* i, th_counters* c, th_error* e) {
    return guard(e, [&] {
      require(c, "counters");
      th_counters full{};
      full.struct_size = sizeof full;
      run_of(i).counters(full);
      th::out(c, full);
    });
  }
  static const char* info(th_trainer_inst* i, const char* key) { return key ? run_of(i).info(key) : nullptr; }
  static th_status metric(th_trainer_inst* i, const char* key, double* value, th_error* e) {
    return guard(e, [&] {
      require(key, "key");
      require(value, "value");
      *value = run_of(i).metric(key);
    });
  }
  static void destroy(th_trainer_inst* i) { delete reinterpret_cast<Held*>(i); }

  static th_status next(th_trainer_inst* i, std::int32_t token, std::uint32_t position, float* logits, th_error* e) {
    return guard(e, [&] {
      require(logits, "logits");
      ready(i, "next()").next(token, position, logits);
    });
  }

  static th_status start_profile(th_trainer_inst* i, void* records, std::uint64_t bytes, th_moments* moments, th_error* e) {
    return guard(e, [&] { run_of(i).start_profile(records, bytes, moments); });
  }
  static th_status read_profile(th_trainer_inst* i, th_op_sink* sink, th_error* e) {
    return guard(e, [&] {
      require(sink, "sink");
      run_of(i).read_profile(*sink);
    });
  }
  static void stop_profile(th_trainer_inst* i) { run_of(i).stop_profile(); }

 private:
  struct Held {
    explicit Held(std::unique_ptr<T> r) : run(std::move(r)) {}
    std::unique_ptr<T> run;
    bool ready = false;  // init() was called
  };
  static Held& held(th_trainer_inst* i) {
    if (!i) throw bridge::StatusError(TH_E_ARG, "the instance is null");
    return *reinterpret_cast<Held*>(i);
  }
  static T& run_of(th_trainer_inst* i) { return *held(i).run; }
  static T& ready(th_trainer_inst* i, const char* call) {
    if (!held(i).ready) throw bridge::StatusError(TH_E_STATE, std::string(call) + " before init()");
    return run_of(i);
  }
  static void require(const void* argument, const char* what) {
    if (!argument) throw bridge::StatusError(TH_E_ARG, std::string("the ") + what + " is null");
  }
};

/// The tables of front F over the instance functions of I: InstanceCalls, or functions that hand on to another library.
template <class F, class I>
inline constexpr th_trainer kTrainerTable = {sizeof(th_trainer), 0, F::probe, F::profile, F::plan, I::create, I::load, I::init,
                                             I::step, I::save, I::counters, I::info, I::metric, I::destroy};
template <class I>
inline constexpr th_generate kGenerateTable = {sizeof(th_generate), 0, I::next};
template <class F, class I>
inline constexpr th_profiler kProfilerTable = {sizeof(th_profiler), 0, F::record_bytes, I::start_profile, I::read_profile,
                                               I::stop_profile};

/// An engine's side: what the front answers is absent.
struct NoFront {
  static constexpr decltype(th_trainer::probe) probe = nullptr;
  static constexpr decltype(th_trainer::profile) profile = nullptr;
  static constexpr decltype(th_trainer::plan) plan = nullptr;
  static constexpr decltype(th_profiler::record_bytes) record_bytes = nullptr;
};

}  // namespace trainhost::executor
