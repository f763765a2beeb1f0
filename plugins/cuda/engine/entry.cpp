// The engine's table for the front: every function is a guard around Instance. Nothing thrown leaves this file.
#include <memory>

#include "core/bridge/convert.hpp"
#include "core/bridge/guard.hpp"
#include "plugins/cuda/common/engine_abi.hpp"
#include "plugins/cuda/common/profile.hpp"
#include "plugins/cuda/engine/instance.hpp"
#include "trainhost/trainhost.hpp"

namespace trainhost::cuda {
namespace {

Instance& self(th_trainer_inst* i) { return *reinterpret_cast<Instance*>(i); }

th_status create(const th_host* host, int32_t device, const th_model* model, const th_run* run, th_trainer_inst** out, th_error* error) {
  return bridge::guard(error, [&] {
    const ModelSpec m = bridge::from_c(*model);
    const RunSpec r = bridge::from_c(*run);
    require_supported(r);
    const char* mode = host->option ? host->option(host, "mode") : nullptr;
    const Choice choice = choose(m, r, mode ? mode : "auto", host->thread_budget);
    if (!choice.why.empty() && host->log) host->log(host, TH_LOG_INFO, kId, choice.why.c_str());
    auto made = std::make_unique<Instance>(host, device, m, r, choice.profile);
    if (host->log) host->log(host, TH_LOG_DEBUG, kId, (std::string("kernels: ") + made->info("kernel_set")).c_str());
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
  const th_status status = bridge::guard(e, [&] { self(i).step(th::in(s), full); });
  th::out(o, full);
  return status;
}
th_status save(th_trainer_inst* i, uint32_t scope, th_tensor_sink* sink, th_error* e) {
  return bridge::guard(e, [&] { self(i).save(scope, *sink); });
}
th_status counters(th_trainer_inst* i, th_counters* c, th_error* e) {
  return bridge::guard(e, [&] {
    th_counters full{};
    full.struct_size = sizeof full;
    self(i).counters(full);
    th::out(c, full);
  });
}
const char* info(th_trainer_inst* i, const char* key) { return self(i).info(key); }
th_status metric(th_trainer_inst* i, const char* key, double* value, th_error* e) {
  return bridge::guard(e, [&] { *value = self(i).metric(key); });
}
void destroy(th_trainer_inst* i) { delete &self(i); }
th_status next(th_trainer_inst* i, int32_t token, uint32_t position, float* logits, th_error* e) {
  return bridge::guard(e, [&] { self(i).next(token, position, logits); });
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
}  // namespace trainhost::cuda

extern "C" __attribute__((visibility("default"))) const trainhost::cuda::EngineTable* trainhost_cuda_engine() {
  return &trainhost::cuda::kTable;
}
