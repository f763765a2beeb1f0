// A fake engine for tests: create() fails with a message that contains the device and the budgets that it
// received.
#include <cstdio>

#include "plugins/common/engine_table.hpp"
#include "trainhost/trainhost.hpp"

#ifndef FAKE_ENGINE_ABI
#define FAKE_ENGINE_ABI trainhost::plugins::kEngineAbi
#endif

namespace {

th_status create(const th_host*, int32_t device, const th_model*, const th_run* run, th_trainer_inst**,
                 th_error* error) {
  char text[128];
  std::snprintf(text, sizeof text, "device %d, device budget %llu, host budget %llu", device,
                static_cast<unsigned long long>(run->device_budget),
                static_cast<unsigned long long>(run->host_budget));
  return th::fill(error, TH_E_UNSUPPORTED, text);
}

const th_trainer kTrainer = {sizeof(th_trainer),
                             0,
                             nullptr,
                             nullptr,
                             nullptr,
                             create,
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr,
                             nullptr};
const th_generate kGenerate = {sizeof(th_generate), 0, nullptr};
const th_profiler kProfiler = {sizeof(th_profiler), 0, nullptr, nullptr, nullptr, nullptr};
const trainhost::plugins::EngineTable kTable = {FAKE_ENGINE_ABI, &kTrainer, &kGenerate, &kProfiler};

}  // namespace

extern "C" __attribute__((visibility("default"))) const trainhost::plugins::EngineTable*
trainhost_cuda_engine() {
  return &kTable;
}
