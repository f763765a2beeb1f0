// A fake engine for tests: create() fails with a message that contains the engine's version of CUDA, and the
// device and the budgets that it received. With FAKE_ENGINE_CREATES set it creates an instance that only
// knows its kernel set.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plugins/common/engine_table.hpp"
#include "trainhost/trainhost.hpp"

#ifndef FAKE_ENGINE_ABI
#define FAKE_ENGINE_ABI trainhost::plugins::kEngineAbi
#endif

namespace {

th_status create(const th_host*, int32_t device, const th_model*, const th_run* run, th_trainer_inst** out,
                 th_error* error) {
  if (std::getenv("FAKE_ENGINE_CREATES")) {
    *out = reinterpret_cast<th_trainer_inst*>(new int);
    return TH_OK;
  }
  char text[128];
  std::snprintf(text, sizeof text, "device %d, device budget %llu, host budget %llu, engine %d", device,
                static_cast<unsigned long long>(run->device_budget),
                static_cast<unsigned long long>(run->host_budget), FAKE_ENGINE_MAJOR);
  return th::fill(error, TH_E_UNSUPPORTED, text);
}

const char* info(th_trainer_inst*, const char* key) {
  return key && std::strcmp(key, "kernel_set") == 0 ? "fake" : nullptr;
}

void destroy(th_trainer_inst* i) { delete reinterpret_cast<int*>(i); }

th_trainer trainer_table() {
  th_trainer t{};
  t.struct_size = sizeof t;
  t.create = create, t.info = info, t.destroy = destroy;
  return t;
}
const th_trainer kTrainer = trainer_table();
const th_generate kGenerate = {sizeof(th_generate), 0, nullptr};
const th_profiler kProfiler = {sizeof(th_profiler), 0, nullptr, nullptr, nullptr, nullptr};
const trainhost::plugins::EngineTable kTable = {FAKE_ENGINE_ABI, &kTrainer, &kGenerate, &kProfiler,
                                                "86-real,90-real", nullptr};

}  // namespace

extern "C" __attribute__((visibility("default"))) const trainhost::plugins::EngineTable*
trainhost_cuda_engine() {
  return &kTable;
}
