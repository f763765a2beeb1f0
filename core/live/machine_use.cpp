// See machine_use.hpp. NVML's functions are declared here as its header does, which only the driver's
// development package has.
#include "core/live/machine_use.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>

namespace trainhost::live {
namespace {

constexpr std::size_t kMostSamples = 600, kMostGpus = 8;

}  // namespace

struct MachineUse::Nvml {
  struct Utilization {
    unsigned gpu, memory;  // percent
  };
  struct Memory {
    unsigned long long total, free, used;  // bytes
  };
  void* library = nullptr;
  int (*shutdown)() = nullptr;
  int (*utilization)(void*, Utilization*) = nullptr;
  int (*memory)(void*, Memory*) = nullptr;
  std::vector<void*> devices;

  Nvml() {
    library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    const auto load = [&](const char* name, auto& f) {
      f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(::dlsym(library, name));
      return f != nullptr;
    };
    int (*init)() = nullptr, (*count)(unsigned*) = nullptr, (*handle)(unsigned, void**) = nullptr;
    unsigned n = 0;
    if (!load("nvmlInit_v2", init) || !load("nvmlShutdown", shutdown) ||
        !load("nvmlDeviceGetCount_v2", count) || !load("nvmlDeviceGetHandleByIndex_v2", handle) ||
        !load("nvmlDeviceGetUtilizationRates", utilization) || !load("nvmlDeviceGetMemoryInfo", memory) ||
        init() != 0) {
      shutdown = nullptr;
      return;
    }
    if (count(&n) != 0) return;
    for (unsigned i = 0; i < n && i < kMostGpus; ++i) {
      void* device = nullptr;
      if (handle(i, &device) == 0) devices.push_back(device);
    }
  }
  ~Nvml() {
    if (shutdown) shutdown();
    if (library) ::dlclose(library);
  }
};

MachineUse::MachineUse() : start_(std::chrono::steady_clock::now()), nvml_(std::make_unique<Nvml>()) {
  use_ = {"use", "Use of this machine, percent", "seconds", "", true, false, false, {}, {}};
  gpu_memory_ = {"gpu_memory", "GPU memory in use", "seconds", "bytes", true, false, false, {}, {}};
}
MachineUse::~MachineUse() = default;

void MachineUse::add(report::html::LineChart& chart, std::size_t line, const std::string& name,
                     double value) {
  while (chart.lines.size() <= line)
    chart.lines.push_back({report::html::colour(chart.lines.size() * 3), name, {}, {}, {}, {}});
  report::html::Line& l = chart.lines[line];
  if (l.x.size() >= kMostSamples) {
    for (std::size_t i = 0; i < l.x.size() / 2; ++i) l.x[i] = l.x[2 * i + 1], l.y[i] = l.y[2 * i + 1];
    l.x.resize(l.x.size() / 2), l.y.resize(l.x.size());
    if (&chart == &use_ && line == 0) every_ *= 2;
  }
  l.x.push_back(static_cast<double>(
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start_).count()));
  l.y.push_back(value);
}

void MachineUse::sample() {
  if (calls_++ % every_) return;
  if (std::FILE* const f = std::fopen("/proc/stat", "re")) {
    unsigned long long user, nice, system, idle, wait, irq, soft, steal;
    if (std::fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait,
                    &irq, &soft, &steal) == 8) {
      const std::uint64_t busy = user + nice + system + irq + soft + steal, all = busy + idle + wait;
      if (all_ && all > all_)
        add(use_, 0, "processors", 100 * static_cast<double>(busy - busy_) / static_cast<double>(all - all_));
      busy_ = busy, all_ = all;
    }
    std::fclose(f);
  }
  for (std::size_t i = 0; i < nvml_->devices.size(); ++i) {
    Nvml::Utilization u{};
    Nvml::Memory m{};
    if (!use_.lines.empty() && nvml_->utilization(nvml_->devices[i], &u) == 0)
      add(use_, i + 1, fmt::format("GPU {}", i), u.gpu);
    if (nvml_->memory(nvml_->devices[i], &m) == 0)
      add(gpu_memory_, i, fmt::format("GPU {}", i), static_cast<double>(m.used));
  }
}

std::vector<report::html::LineChart> MachineUse::charts() const {
  std::vector<report::html::LineChart> out;
  for (const auto* c : {&use_, &gpu_memory_})
    if (!c->lines.empty()) out.push_back(*c);
  return out;
}

}  // namespace trainhost::live
