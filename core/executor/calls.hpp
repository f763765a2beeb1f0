// The C functions of a trainer. FrontCalls: those without an instance; InstanceCalls: those that forward to
// the object of a run. No exception leaves them. A trainer in one file uses both (trainer.hpp); a trainer
// with a front end and an engine uses the first in the front end and the second in the engine
// (plugins/common).
#pragma once
#include <memory>
#include <string>

#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/executor/run_state.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/placement/placed_run.hpp"
#include "trainhost/trainhost.hpp"

namespace trainhost::executor {

using Placed = placement::PlacedRun;

/// The traits that a trainer chose for a run.
struct Choice {
  TrainerTraits traits;
  std::string why;  // explanation for the user if the trainer had to choose; else ""
  std::shared_ptr<const Placed> placed = nullptr;  // where the choice needed a placement for these traits
};

/// The program and plan of the choice: choice.placed, or computed now.
std::shared_ptr<const Placed> placed_program(const ModelSpec& model, const RunSpec& run,
                                             const Choice& choice);

/// abi::guard() that also translates th::Error, the SDK's exception.
template <class F>
th_status guard(th_error* error, F&& f) noexcept {
  return abi::guard(error, [&] {
    try {
      f();
    } catch (const th::Error& e) {
      throw abi::StatusError(e.code, e.text, e.hint, e.bytes_needed).of(e.native_domain, e.native_code);
    }
  });
}

/// plan() and record_bytes() of a trainer that runs the program of (model, run, choice.traits).
void send_plan(const Choice& choice, const ModelSpec& model, const RunSpec& run, th_mem_sink* sink,
               th_mem_summary* summary);
std::uint64_t profiler_bytes(const Choice& choice, const ModelSpec& model, const RunSpec& run);

/// Throws StatusError (TH_E_ARG) that names a null argument.
inline void require(const void* argument, const char* what) {
  if (!argument) throw abi::StatusError(TH_E_ARG, std::string(what) + " is null");
}

/// F has two static functions, which throw abi::StatusError, th::Error or trainhost::Error:
///   std::uint32_t probe(const th_host*);                               number of devices
///   Choice choose(const th_host*, const ModelSpec&, const RunSpec&);   throws for unsupported runs
template <class F>
struct FrontCalls {
  static th_status probe(const th_host* host, std::uint32_t* devices, th_error* error) {
    return guard(error, [&] {
      require(host, "host");
      require(devices, "number of devices");
      *devices = F::probe(host);
    });
  }
  static th_status profile(const th_host* host, const th_model* model, const th_run* run, th_profile* out,
                           th_error* error) {
    return guard(error, [&] {
      abi::require_arguments(model, run, out);
      const Choice choice = F::choose(host, abi::from_c(*model), abi::from_c(*run));
      th::out(out, abi::to_c(choice.traits));
    });
  }
  static th_status plan(const th_host* host, const th_model* model, const th_run* run, th_mem_sink* sink,
                        th_mem_summary* summary, th_error* error) {
    return guard(error, [&] {
      abi::require_arguments(model, run, sink);
      const ModelSpec m = abi::from_c(*model);
      const RunSpec r = abi::from_c(*run);
      send_plan(F::choose(host, m, r), m, r, sink, summary);
    });
  }
  static th_status record_bytes(const th_host* host, const th_model* model, const th_run* run,
                                std::uint64_t* bytes, th_error* error) {
    return guard(error, [&] {
      abi::require_arguments(model, run, bytes);
      const ModelSpec m = abi::from_c(*model);
      const RunSpec r = abi::from_c(*run);
      *bytes = profiler_bytes(F::choose(host, m, r), m, r);
    });
  }
};

/// T is the object of a run: executor::Run, or a class with its public functions. M has one static function:
///   std::unique_ptr<T> create(const th_host*, std::int32_t device, const ModelSpec&, const RunSpec&);
/// The order of calls is checked here (run_state.hpp): T is not called before its parameters are loaded or
/// initialised, nor after it was lost.
template <class T, class M>
struct InstanceCalls {
  static th_status create(const th_host* host, std::int32_t device, const th_model* model, const th_run* run,
                          th_trainer_inst** out, th_error* error) {
    if (out) *out = nullptr;
    return guard(error, [&] {
      require(host, "host");
      abi::require_arguments(model, run, out);
      auto made =
          std::make_unique<TrackedRun>(M::create(host, device, abi::from_c(*model), abi::from_c(*run)));
      *out = reinterpret_cast<th_trainer_inst*>(made.release());
    });
  }
  static th_status load(th_trainer_inst* i, std::uint32_t scope, const th_tensor* t, th_error* e) {
    return call(i, e, "load()", InstanceState::kCreatedOn, [&](TrackedRun& h) {
      require(t, "tensor");
      h.run->load(scope, th::in(t));
    });
  }
  static th_status init(th_trainer_inst* i, std::uint64_t seed, th_error* e) {
    return call(i, e, "init()", InstanceState::kCreated, [&](TrackedRun& h) {
      h.run->init(seed);
      h.state.reached(InstanceState::kReady);
    });
  }
  /// The result is written even if the step failed: for example a loss that is not finite.
  static th_status step(th_trainer_inst* i, const th_step* s, th_step_out* o, th_error* e) {
    th_step_out full{};
    full.struct_size = sizeof full;
    const th_status status = call(i, e, "step()", InstanceState::kReadyOn, [&](TrackedRun& h) {
      require(s, "step");
      require(o, "result");
      const th_step asked = th::in(s);
      h.run->step(asked, full);
      if (!(asked.flags & TH_STEP_EVALUATE)) h.state.reached(InstanceState::kStepped);
    });
    if (o) th::out(o, full);
    return status;
  }
  static th_status save(th_trainer_inst* i, std::uint32_t scope, th_tensor_sink* sink, th_error* e) {
    return call(i, e, "save()", InstanceState::kReadyOn, [&](TrackedRun& h) {
      require(sink, "sink");
      if (const std::uint32_t set = scope & ~TH_SAVE_OWN_PART;
          set < TH_SCOPE_WEIGHTS || set > TH_SCOPE_MOMENT2)
        throw abi::StatusError(TH_E_ARG, "there is no scope " + std::to_string(scope) + " to save");
      h.run->save(scope, *sink);
    });
  }
  static th_status counters(th_trainer_inst* i, th_counters* c, th_error* e) {
    return call(i, e, "counters()", InstanceState::kCreatedOn, [&](TrackedRun& h) {
      require(c, "counters");
      th_counters full{};
      full.struct_size = sizeof full;
      h.run->counters(full);
      th::out(c, full);
    });
  }
  /// Has no status code: returns null on every error.
  static const char* info(th_trainer_inst* i, const char* key) {
    const char* text = nullptr;
    call(i, nullptr, "info()", InstanceState::kCreatedOn, [&](TrackedRun& h) {
      require(key, "key");
      text = h.run->info(key);
    });
    return text;
  }
  static th_status metric(th_trainer_inst* i, const char* key, double* value, th_error* e) {
    return call(i, e, "metric()", InstanceState::kCreatedOn, [&](TrackedRun& h) {
      require(key, "key");
      require(value, "value");
      *value = h.run->metric(key);
    });
  }
  static void destroy(th_trainer_inst* i) { delete reinterpret_cast<TrackedRun*>(i); }

  static th_status next(th_trainer_inst* i, std::int32_t token, std::uint32_t position, float* logits,
                        th_error* e) {
    return call(i, e, "next()", InstanceState::kReadyOn, [&](TrackedRun& h) {
      require(logits, "logits");
      h.run->next(token, position, logits);
    });
  }

  static th_status start_profile(th_trainer_inst* i, void* records, std::uint64_t bytes, th_moments* moments,
                                 th_error* e) {
    return call(i, e, "start() of the profiler", InstanceState::kCreatedOn,
                [&](TrackedRun& h) { h.run->start_profile(records, bytes, moments); });
  }
  static th_status read_profile(th_trainer_inst* i, th_op_sink* sink, th_error* e) {
    return call(i, e, "read() of the profiler", InstanceState::kStepped, [&](TrackedRun& h) {
      require(sink, "sink");
      h.run->read_profile(*sink);
    });
  }
  static void stop_profile(th_trainer_inst* i) {
    if (i) reinterpret_cast<TrackedRun*>(i)->run->stop_profile();
  }

 private:
  struct TrackedRun {
    explicit TrackedRun(std::unique_ptr<T> r) : run(std::move(r)) {}
    std::unique_ptr<T> run;
    InstanceState state;
  };
  template <class F>
  static th_status call(th_trainer_inst* i, th_error* e, const char* name, InstanceState::States allowed,
                        F&& f) noexcept {
    if (!i) return abi::write_error(e, TH_E_ARG, "the instance is null");
    TrackedRun& tracked = *reinterpret_cast<TrackedRun*>(i);
    const th_status s = guard(e, [&] {
      tracked.state.require(allowed, name);
      f(tracked);
    });
    return tracked.state.ended(name, s);
  }
};

/// The tables with front end F and instance functions I: InstanceCalls, or functions that forward to another
/// library.
template <class F, class I>
inline constexpr th_trainer kTrainerTable = {sizeof(th_trainer), 0,       F::probe,  F::profile, F::plan,
                                             I::create,          I::load, I::init,   I::step,    I::save,
                                             I::counters,        I::info, I::metric, I::destroy};
template <class I>
inline constexpr th_generate kGenerateTable = {sizeof(th_generate), 0, I::next};
template <class F, class I>
inline constexpr th_profiler kProfilerTable = {
    sizeof(th_profiler), 0, F::record_bytes, I::start_profile, I::read_profile, I::stop_profile};

/// Null pointers for the four functions that a trainer must answer before its engine library is loaded. They
/// are implemented in the plugin that loads the engine, so the engine's own function table leaves them empty.
struct NullFrontEnd {
  static constexpr decltype(th_trainer::probe) probe = nullptr;
  static constexpr decltype(th_trainer::profile) profile = nullptr;
  static constexpr decltype(th_trainer::plan) plan = nullptr;
  static constexpr decltype(th_profiler::record_bytes) record_bytes = nullptr;
};

}  // namespace trainhost::executor
