// The CUDA trainer's front: manifest, profile, probe, plan and the devices' memory, none of which needs the toolkit or
// makes a context. create() opens the engine; calls on an instance are handed on to it unchanged. See engine/ for what trains.
#include <cstdio>

#include "core/bridge/convert.hpp"
#include "core/bridge/guard.hpp"
#include "core/bridge/op_journal.hpp"
#include "core/bridge/report.hpp"
#include "core/plan/memory_plan.hpp"
#include "plugins/cuda/common/profile.hpp"
#include "plugins/cuda/front/engine_file.hpp"
#include "plugins/cuda/front/options.hpp"
#include "plugins/cuda/front/usable.hpp"
#include "trainhost/trainhost.hpp"

TH_MANIFEST(
    "id = \"cuda\"\n"
    "version = \"0.1.0\"\n"
    "kind = \"trainer\"\n"
    "summary = \"trains in f32, TF32 or bf16 on one NVIDIA GPU, on cuBLAS and own kernels\"\n"
    "families = [\"llama\", \"mistral\", \"qwen2\", \"qwen3\"]\n"
    "device = \"cuda\"\n"
    "options = [\"mode\", \"device\"]\n"
    "priority = 10\n");

// What the engine beside this file was built for; without an engine nobody asks.
#ifndef TRAINHOST_CUDA_ARCHITECTURES
#define TRAINHOST_CUDA_ARCHITECTURES ""
#define TRAINHOST_CUDA_MAJOR 0
#endif

namespace trainhost::cuda {
namespace {

constexpr EngineBuild kBuild = {TRAINHOST_CUDA_ARCHITECTURES, TRAINHOST_CUDA_MAJOR};

/// The run file's device before the one that the host would take.
int device_index(const th_host* host, std::int32_t asked) {
  const int chosen = options_of(host).device;
  return chosen >= 0 ? chosen : asked;
}

// Options first: a wrong word is the user's to mend on any machine. The engine last: loading it costs most.
th_status probe(const th_host* host, uint32_t* devices, th_error* error) {
  return bridge::guard(error, [&] {
    const int index = device_index(host, 0);
    require_engine_built();
    std::size_t count = 0;
    require_usable(device_of(index, kBuild, &count), kBuild);
    engine();
    if (devices) *devices = static_cast<std::uint32_t>(count);
  });
}

Choice choice_for(const th_host* host, const ModelSpec& m, const RunSpec& r) {
  require_supported(r);
  return choose(m, r, options_of(host).mode, host ? host->thread_budget : 0);
}

th_status profile(const th_host* host, const th_model* model, const th_run* run, th_profile* out, th_error* error) {
  return bridge::guard(error, [&] {
    bridge::require_arguments(model, run, out);
    const Profile mine = choice_for(host, bridge::from_c(*model), bridge::from_c(*run)).profile;
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
    const Choice choice = choice_for(host, m, r);
    const std::shared_ptr<const Placed> placed = placed_program(m, r, choice);
    MemoryReport report = plan::account(placed->program, placed->plan);
    report.source = kId;
    if (!choice.why.empty()) report.notes.push_back(choice.why);
    refused = bridge::emit(report, sink, summary);
  });
  return s != TH_OK ? s : refused != TH_OK ? bridge::fill(error, refused, "the host refused the report") : TH_OK;
}

th_status create(const th_host* host, int32_t device, const th_model* model, const th_run* run, th_trainer_inst** out,
                 th_error* error) {
  int index = 0;
  th_status s = bridge::guard(error, [&] {
    bridge::require_arguments(model, run, out);
    index = device_index(host, device);
    require_usable(device_of(index, kBuild), kBuild);
    engine();
  });
  return s != TH_OK ? s : loaded_engine().trainer->create(host, index, model, run, out, error);
}

th_status memory(const th_host* host, int32_t device, uint64_t* free_bytes, uint64_t* total_bytes, th_error* error) {
  return bridge::guard(error, [&] {
    require_engine_built();
    const Device d = device_of(device_index(host, device), kBuild);
    if (free_bytes) *free_bytes = free_bytes_of(d);
    if (total_bytes) *total_bytes = d.total_bytes;
  });
}

th_status name(const th_host* host, int32_t device, char* text, uint32_t text_bytes, th_error* error) {
  return bridge::guard(error, [&] {
    require_engine_built();
    const Device d = device_of(device_index(host, device), kBuild);
    if (text_bytes) std::snprintf(text, text_bytes, "%s", d.name.c_str());
  });
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
    *bytes = bridge::record_bytes(plan::build_program(m, r, choice_for(host, m, r).profile));
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
const th_device kDevice = {sizeof(th_device), 0, memory, name};

const void* get(const char* interface_id) { return th::pick(interface_id, &kTrainer, &kGenerate, &kProfiler, &kDevice); }

const th_plugin kPlugin = {sizeof(th_plugin), TH_ABI_MAJOR, TH_ABI_MINOR, kId, kVersion, nullptr, nullptr, get};

}  // namespace
}  // namespace trainhost::cuda

extern "C" const th_plugin* TH_ENTRY(void) { return &trainhost::cuda::kPlugin; }
