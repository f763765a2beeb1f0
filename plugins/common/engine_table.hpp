// The function table that an engine exports to its front end, and front-end functions that forward to it. The
// two files are built together, so this is not a public interface; kEngineAbi detects files of different
// builds. The engine builds its table with engine_table(); the front end forwards with ForwardCalls.
#pragma once
#include <cstdint>

#include "core/abi/decode_table.hpp"
#include "core/executor/calls.hpp"

namespace trainhost::plugins {

/// Incremented whenever EngineTable or the meaning of a call between the two files changes.
inline constexpr std::uint32_t kEngineAbi = 5;

struct EngineTable {
  std::uint32_t abi;          // kEngineAbi of the engine's build; must stay the first member
  const th_trainer* trainer;  // create and calls on an instance; probe, traits and plan are null
  const th_generate* generate;
  const th_profiler* profiler;  // record_bytes is null
  const char* architectures;    // device code in the engine ("80-real,90-virtual"); null: the engine has none
  const abi::DecodeTable* decode;  // null: the engine has no decoder
};
using EngineEntry = const EngineTable* (*)();

/// Builds the table of an engine. Calls provides the functions of an instance (executor::InstanceCalls).
template <class Calls>
constexpr EngineTable engine_table(const char* architectures = nullptr,
                                   const abi::DecodeTable* decode = nullptr) {
  using executor::NullFrontEnd;
  return {kEngineAbi,
          &executor::kTrainerTable<NullFrontEnd, Calls>,
          &executor::kGenerateTable<Calls>,
          &executor::kProfilerTable<NullFrontEnd, Calls>,
          architectures, decode};
}

/// Instance functions of a front end: each forwards to the engine. E::open(host, device) loads the engine,
/// checks the device and returns the device index for create(); it may throw what executor::guard translates.
/// E::loaded() returns the table after a successful open().
template <class E>
struct ForwardCalls {
  static th_status create(const th_host* host, std::int32_t device, const th_model* model, const th_run* run,
                          th_trainer_inst** out, th_error* error) {
    std::int32_t index = device;
    if (out) *out = nullptr;
    const th_status s = executor::guard(error, [&] {
      executor::require(host, "host");
      abi::require_arguments(model, run, out);
      index = E::open(host, device);
    });
    return s != TH_OK ? s : trainer().create(host, index, model, run, out, error);
  }
  // A non-null instance was returned by create(), so the engine is loaded. A null instance is rejected here,
  // because the engine may not be loaded yet.
  static th_status load(th_trainer_inst* i, std::uint32_t scope, const th_tensor* t, th_error* e) {
    return i ? trainer().load(i, scope, t, e) : null(e);
  }
  static th_status init(th_trainer_inst* i, std::uint64_t seed, th_error* e) {
    return i ? trainer().init(i, seed, e) : null(e);
  }
  static th_status step(th_trainer_inst* i, const th_step* s, th_step_out* o, th_error* e) {
    return i ? trainer().step(i, s, o, e) : null(e);
  }
  static th_status save(th_trainer_inst* i, std::uint32_t scope, th_tensor_sink* s, th_error* e) {
    return i ? trainer().save(i, scope, s, e) : null(e);
  }
  static th_status counters(th_trainer_inst* i, th_counters* c, th_error* e) {
    return i ? trainer().counters(i, c, e) : null(e);
  }
  static const char* info(th_trainer_inst* i, const char* key) {
    return i ? trainer().info(i, key) : nullptr;
  }
  static th_status metric(th_trainer_inst* i, const char* key, double* v, th_error* e) {
    return i ? trainer().metric(i, key, v, e) : null(e);
  }
  static void destroy(th_trainer_inst* i) {
    if (i) trainer().destroy(i);
  }
  static th_status next(th_trainer_inst* i, std::int32_t token, std::uint32_t position, float* logits,
                        th_error* e) {
    return i ? E::loaded().generate->next(i, token, position, logits, e) : null(e);
  }
  static th_status start_profile(th_trainer_inst* i, void* records, std::uint64_t bytes, th_moments* m,
                                 th_error* e) {
    return i ? E::loaded().profiler->start(i, records, bytes, m, e) : null(e);
  }
  static th_status read_profile(th_trainer_inst* i, th_op_sink* s, th_error* e) {
    return i ? E::loaded().profiler->read(i, s, e) : null(e);
  }
  static void stop_profile(th_trainer_inst* i) {
    if (i) E::loaded().profiler->stop(i);
  }

 private:
  static const th_trainer& trainer() { return *E::loaded().trainer; }
  static th_status null(th_error* e) { return abi::write_error(e, TH_E_ARG, "the instance is null"); }
};

}  // namespace trainhost::plugins
