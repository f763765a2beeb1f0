// Use of this machine over time: processors from /proc/stat, GPUs from NVML where the driver has it. Bounded
// memory: when there are too many samples, every second one is removed.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/report/html_chart.hpp"
#include "core/report/html_page.hpp"

namespace trainhost::live {

class MachineUse {
 public:
  MachineUse();
  ~MachineUse();
  /// Takes one sample. Called about once a second.
  void sample();
  /// Charts over the seconds since the start; those without values are left out.
  std::vector<report::html::LineChart> charts() const;

 private:
  struct Nvml;
  void add(report::html::LineChart& chart, std::size_t line, const std::string& name, double value);
  std::chrono::steady_clock::time_point start_;
  std::uint64_t busy_ = 0, all_ = 0;  // of /proc/stat
  std::uint64_t calls_ = 0, every_ = 1;
  report::html::LineChart use_, gpu_memory_;
  std::unique_ptr<Nvml> nvml_;
};

}  // namespace trainhost::live
