// The CPU trainer's front: manifest, profile, probe and plan, none of which needs OpenBLAS. create() opens the engine;
// calls on an instance are handed on to it unchanged. See engine/ for what trains.
#include "core/bridge/convert.hpp"
#include "core/bridge/guard.hpp"
#include "core/bridge/op_journal.hpp"
#include "core/bridge/report.hpp"
#include "core/plan/memory_plan.hpp"
#include "plugins/cpu/common/profile.hpp"
#include "plugins/cpu/front/engine_file.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(
    "id = \"cpu\"\n"
    "version = \"0.1.0\"\n"
    "kind = \"trainer\"\n"
    "summary = \"trains in f32 on all cores, on OpenBLAS\"\n"
    "families = [\"llama\", \"mistral\", \"qwen2\", \"qwen3\"]\n"
    "device = \"cpu\"\n"
    "options = []\n"
    "priority = 0\n");

namespace trainhost::cpu {
namespace {

th_status probe(const th_host* host, uint32_t* devices, th_error* error) {
  return bridge::guard(error, [&] {
    engine(host);
    if (devices) *devices = 1;
  });
}

Profile profile_for(const th_host* host, const ModelSpec& m, const RunSpec& r) {
  return profile_of(m, r, host ? host->thread_budget : 0);
}

th_status profile(const th_host* host, const th_model* model, const th_run* run, th_profile* out, th_error* error) {
  return bridge::guard(error, [&] {
    bridge::require_arguments(model, run, out);
    const RunSpec r = bridge::from_c(*run);
    require_supported(r);
    const Profile mine = profile_for(host, bridge::from_c(*model), r);
    const th_profile p = bridge::to_c(mine);
    th::out(out, p);
  });
}

th_status plan_run(const th_host* host, const th_model* model, const th_run* run, th_mem_sink* sink,
                   th_mem_summary* summary, th_error* error) {
  th_status refused = TH_OK;
  th_status s = bridge::guard(error, [&] {
    bridge::require_arguments(model, run, sink);
    const ModelSpec m = bridge::from_c(*model);
    const RunSpec r = bridge::from_c(*run);
    require_supported(r);
    const plan::Program program = plan::build_program(m, r, profile_for(host, m, r));
    MemoryReport report = plan::account(program, plan::place(program));
    report.source = kId;
    refused = bridge::emit(report, sink, summary);
  });
  return s != TH_OK ? s : refused != TH_OK ? bridge::fill(error, refused, "the host refused the report") : TH_OK;
}

th_status create(const th_host* host, int32_t device, const th_model* model, const th_run* run, th_trainer_inst** out,
                 th_error* error) {
  th_status s = bridge::guard(error, [&] {
    bridge::require_arguments(model, run, out);
    if (device != 0) throw bridge::StatusError(TH_E_ARG, "there is no device " + std::to_string(device) + ": the cpu trainer has device 0 alone");
    engine(host);
  });
  return s != TH_OK ? s : loaded_engine().trainer->create(host, device, model, run, out, error);
}

th_status load(th_trainer_inst* i, uint32_t scope, const th_tensor* t, th_error* e) { return loaded_engine().trainer->load(i, scope, t, e); }
th_status init(th_trainer_inst* i, uint64_t seed, th_error* e) { return loaded_engine().trainer->init(i, seed, e); }
th_status step(th_trainer_inst* i, const th_step* s, th_step_out* o, th_error* e) { return loaded_engine().trainer->step(i, s, o, e); }
th_status save(th_trainer_inst* i, uint32_t scope, th_tensor_sink* s, th_error* e) { return loaded_engine().trainer->save(i, scope, s, e); }
th_status counters(th_trainer_inst* i, th_counters* c, th_error* e) { return loaded_engine().trainer->counters(i, c, e); }
const char* info(th_trainer_inst* i, const char* key) { return loaded_engine().trainer->info(i, key); }
th_status metric(th_trainer_inst* i, const char* key, double* v, th_error* e) { return loaded_engine().trainer->metric(i, key, v, e); }
void destroy(th_trainer_inst* i) { loaded_engine().trainer->destroy(i); }
th_status next(th_trainer_inst* i, int32_t token, uint32_t position, float* logits, th_error* e) {
  return loaded_engine().generate->next(i, token, position, logits, e);
}

th_status record_bytes_of(const th_host* host, const th_model* model, const th_run* run, uint64_t* bytes, th_error* error) {
  return bridge::guard(error, [&] {
    const ModelSpec m = bridge::from_c(*model);
    const RunSpec r = bridge::from_c(*run);
    require_supported(r);
    *bytes = bridge::record_bytes(plan::build_program(m, r, profile_for(host, m, r)));
  });
}
th_status start_profile(th_trainer_inst* i, void* records, uint64_t bytes, th_moments* m, th_error* e) {
  return loaded_engine().profiler->start(i, records, bytes, m, e);
}
th_status read_profile(th_trainer_inst* i, th_op_sink* s, th_error* e) { return loaded_engine().profiler->read(i, s, e); }
void stop_profile(th_trainer_inst* i) { loaded_engine().profiler->stop(i); }

const th_trainer kTrainer = {sizeof(th_trainer), 0, probe, profile, plan_run, create, load, init,
                             step, save, counters, info, metric, destroy};
const th_generate kGenerate = {sizeof(th_generate), 0, next};
const th_profiler kProfiler = {sizeof(th_profiler), 0, record_bytes_of, start_profile, read_profile, stop_profile};

bool same(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}
const void* get(const char* interface_id) {
  if (same(interface_id, TH_TRAINER_ID)) return &kTrainer;
  if (same(interface_id, TH_GENERATE_ID)) return &kGenerate;
  if (same(interface_id, TH_PROFILER_ID)) return &kProfiler;
  return nullptr;
}

const th_plugin kPlugin = {sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, kId, kVersion, nullptr, nullptr, get};

}  // namespace
}  // namespace trainhost::cpu

extern "C" const th_plugin* TH_ENTRY(void) { return &trainhost::cpu::kPlugin; }
