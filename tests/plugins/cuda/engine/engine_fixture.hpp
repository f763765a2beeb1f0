// Fixture for tests of the CUDA engine on the emulation: a host that counts memory and has options, the
// engine's tables, and comparison of training states bit for bit.
#pragma once
#include "core/model/tensors.hpp"
#include "core/placement/memory_plan.hpp"
#include "core/step/program.hpp"
#include "emu.hpp"
#include "plugins/common/engine_table.hpp"
#include "plugins/cuda/common/cuda_traits.hpp"
#include "tests/support/golden_run.hpp"
#include "tests/support/plugin_session.hpp"
#include "tests/support/small_models.hpp"

extern "C" const trainhost::plugins::EngineTable* trainhost_cuda_engine();

namespace trainhost::test {

/// A host with the options mode, products (no file unless set) and attention ("": not set) of plugin.cuda.
/// Counts the device and page-locked bytes that the engine reports with took().
struct CudaHost : CountingHost {
  std::string mode, products, attention;
  std::int64_t device = 0, pinned = 0, device_peak = 0, pinned_peak = 0;
  explicit CudaHost(std::string m, std::uint32_t threads = 2) : CountingHost(threads), mode(std::move(m)) {
    th_host::option = [](const th_host* h, const char* key) -> const char* {
      if (std::string_view(key) == "products") return me(h).products.c_str();
      if (std::string_view(key) == "attention" && !me(h).attention.empty()) return me(h).attention.c_str();
      return std::string_view(key) == "mode" ? me(h).mode.c_str() : nullptr;
    };
    th_host::took = [](const th_host* h, std::int64_t bytes, std::uint32_t tier, const char*) {
      CudaHost& s = me(h);
      (tier == TH_TIER_DEVICE ? s.device : s.pinned) += bytes;
      s.device_peak = std::max(s.device_peak, s.device), s.pinned_peak = std::max(s.pinned_peak, s.pinned);
    };
  }
  static CudaHost& me(const th_host* h) { return static_cast<CudaHost&>(of(h)); }
  bool all_freed() const { return now == 0 && device == 0 && pinned == 0; }
};

inline const Plugin& cuda_engine() {
  static const Plugin p(trainhost_cuda_engine()->trainer, trainhost_cuda_engine()->generate);
  return p;
}

inline RunSpec in_precision(RunSpec r, const std::string& precision) {
  if (precision == "tf32") r.compute = DType::kTF32;
  if (precision == "bf16") r.compute = r.weight = DType::kBF16, r.master = DType::kF32;
  return r;
}

/// Weights and both moments, by tensor.
using TrainState = std::vector<Tensors>;
inline TrainState state_of(PluginSession& s) {
  return {s.save(), s.save(TH_SCOPE_MOMENT1), s.save(TH_SCOPE_MOMENT2)};
}
inline void load_state(PluginSession& s, const TrainState& from) {
  const std::uint32_t scopes[] = {TH_SCOPE_WEIGHTS, TH_SCOPE_MOMENT1, TH_SCOPE_MOMENT2};
  for (std::size_t i = 0; i < 3; ++i)
    if (!from[i].empty()) s.load_all(from[i], scopes[i]);
}
/// Equal bit for bit, also if values are NaN.
inline bool same_bits(const TrainState& a, const TrainState& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    for (const auto& [name, v] : a[i]) {
      const auto other = b[i].find(name);
      if (other == b[i].end() || other->second.size() != v.size()) return false;
      if (!v.empty() && std::memcmp(v.data(), other->second.data(), v.size() * sizeof(float)) != 0)
        return false;
    }
  }
  return true;
}
inline Tensors as_floats(const reference::Weights& w) {
  Tensors out;
  for (const auto& [name, v] : w) out[name].assign(v.begin(), v.end());
  return out;
}
inline constexpr const char* kModes[] = {"resident", "hybrid", "streamed"};

inline th_counters counters(PluginSession& s) {
  th_counters c{};
  c.struct_size = sizeof c;
  th_error e = empty_error();
  check(trainhost_cuda_engine()->trainer->counters(s.handle(), &c, &e), e);
  return c;
}

}  // namespace trainhost::test
