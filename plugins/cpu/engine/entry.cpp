// The engine's table for the front: every function is a guard around Instance. Nothing thrown leaves this file.
#include "core/bridge/convert.hpp"
#include "core/bridge/guard.hpp"
#include "plugins/cpu/common/engine_abi.hpp"
#include "plugins/cpu/common/profile.hpp"
#include "plugins/cpu/engine/instance.hpp"
#include "plugins/cpu/engine/openblas.hpp"
#include "trainhost/trainhost.hpp"

namespace trainhost::cpu {
namespace {

Instance& self(th_trainer_inst* i) { return *reinterpret_cast<Instance*>(i); }

void log_kernels(const th_host* host, Instance& i) {
  if (!host->log) return;
  host->log(host, TH_LOG_DEBUG, kId, ("kernels: " + i.kernel_set()).c_str());
  if (i.bf16() && !i.bf16()->native)
    host->log(host, TH_LOG_WARN, kId, "bf16 by conversion, without AVX512_BF16 or AMX: it works, and is not faster than fp32");
  if (const std::string best = best_core_type(); !best.empty() && openblas_core() != best)
    host->log(host, TH_LOG_WARN, kId, ("OpenBLAS runs its " + openblas_core() + " kernels, this CPU could run " + best).c_str());
}

th_status create(const th_host* host, int32_t, const th_model* model, const th_run* run, th_trainer_inst** out, th_error* error) {
  return bridge::guard(error, [&] {
    openblas_single_threaded();
    auto made = std::make_unique<Instance>(host, bridge::from_c(*model), bridge::from_c(*run));
    log_kernels(host, *made);
    *out = reinterpret_cast<th_trainer_inst*>(made.release());
  });
}
th_status load(th_trainer_inst* i, uint32_t scope, const th_tensor* t, th_error* e) {
  return bridge::guard(e, [&] { self(i).load(scope, th::in(t)); });
}
th_status init(th_trainer_inst* i, uint64_t seed, th_error* e) {
  return bridge::guard(e, [&] { self(i).init(seed); });
}
th_status step(th_trainer_inst* i, const th_step* s, th_step_out* o, th_error* e) {
  th_step_out full{};
  full.struct_size = sizeof full;
  th_status status = bridge::guard(e, [&] {
    self(i).require_ready("step()");
    self(i).step(th::in(s), full);
  });
  th::out(o, full);
  return status;
}
th_status save(th_trainer_inst* i, uint32_t scope, th_tensor_sink* sink, th_error* e) {
  return bridge::guard(e, [&] {
    if (scope != TH_SCOPE_WEIGHTS && scope != TH_SCOPE_MOMENT1 && scope != TH_SCOPE_MOMENT2)
      throw bridge::StatusError(TH_E_ARG, "there is no scope " + std::to_string(scope) + " to save");
    self(i).require_ready("save()");
    self(i).save(scope, *sink);
  });
}
// One address space: nothing is ever transferred.
th_status counters(th_trainer_inst* i, th_counters* c, th_error* e) {
  return bridge::guard(e, [&] {
    th_counters full{};
    full.struct_size = sizeof full;
    full.compute_ns = self(i).compute_ns();
    th::out(c, full);
  });
}
const char* info(th_trainer_inst* i, const char* key) {
  return std::string_view(key) == "kernel_set" ? self(i).kernel_set().c_str() : nullptr;
}
th_status metric(th_trainer_inst* i, const char* key, double* value, th_error* e) {
  return bridge::guard(e, [&] {
    if (std::string_view(key) != "peak_flops")
      throw bridge::StatusError(TH_E_UNSUPPORTED, std::string("the cpu trainer has no figure named ") + key);
    *value = self(i).peak_flops();
  });
}
void destroy(th_trainer_inst* i) { delete &self(i); }
th_status next(th_trainer_inst* i, int32_t token, uint32_t position, float* logits, th_error* e) {
  return bridge::guard(e, [&] {
    self(i).require_ready("next()");
    self(i).next(token, position, logits);
  });
}

// record_bytes is the front's.
th_status start_profile(th_trainer_inst* i, void* records, uint64_t bytes, th_moments* moments, th_error* e) {
  return bridge::guard(e, [&] { self(i).start_profile(records, bytes, moments); });
}
th_status read_profile(th_trainer_inst* i, th_op_sink* sink, th_error* e) {
  return bridge::guard(e, [&] { self(i).read_profile(*sink); });
}
void stop_profile(th_trainer_inst* i) { self(i).stop_profile(); }

const th_trainer kTrainer = {sizeof(th_trainer), 0, nullptr, nullptr, nullptr, create, load, init,
                             step, save, counters, info, metric, destroy};
const th_generate kGenerate = {sizeof(th_generate), 0, next};
const th_profiler kProfiler = {sizeof(th_profiler), 0, nullptr, start_profile, read_profile, stop_profile};
const EngineTable kTable = {kEngineAbi, &kTrainer, &kGenerate, &kProfiler};

}  // namespace
}  // namespace trainhost::cpu

extern "C" __attribute__((visibility("default"))) const trainhost::cpu::EngineTable* trainhost_cpu_engine() {
  return &trainhost::cpu::kTable;
}
