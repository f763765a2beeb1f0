// A machine with a fake driver, a fake NVML and fake engines, and the front end on it.
#pragma once
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <map>
#include <memory>

#include "tests/support/files.hpp"
#include "tests/support/plugin_session.hpp"
#include "trainhost/device.h"

namespace trainhost::test::front_end {

inline const std::string kStage = CUDA_STAGE;

/// Environment variables of a test case; the destructor removes them.
class Machine {
 public:
  explicit Machine(std::initializer_list<std::pair<const std::string, std::string>> more = {}) {
    set("TRAINHOST_CUDA_DRIVER", kStage + "/libfakedriver.so");
    set("TRAINHOST_CUDA_NVML", kStage + "/libfakenvml.so");
    for (const auto& [k, v] : more) set(k, v);
  }
  ~Machine() {
    for (const std::string& k : names_) unsetenv(k.c_str());
  }
  void set(const std::string& k, const std::string& v) {
    setenv(k.c_str(), v.c_str(), 1);
    names_.push_back(k);
  }

 private:
  std::vector<std::string> names_;
};

/// A host whose run file has a table [plugin.cuda].
struct Host : CountingHost {
  std::map<std::string, std::string> table;
  Host(std::initializer_list<std::pair<const std::string, std::string>> options = {})
      : Host(std::map<std::string, std::string>(options)) {}
  explicit Host(std::map<std::string, std::string> options) : table(std::move(options)) {
    th_host::option = [](const th_host* h, const char* key) -> const char* {
      const auto& t = static_cast<const Host&>(CountingHost::of(h)).table;
      auto it = t.find(key);
      return it == t.end() ? nullptr : it->second.c_str();
    };
  }
};

inline Plugin& front(const std::string& which = "good") {
  static std::map<std::string, std::unique_ptr<Plugin>> all;
  auto& p = all[which];
  if (!p) p = std::make_unique<Plugin>(kStage + "/" + which + "/plugins/cuda.so");
  return *p;
}

/// A front end in a folder of its own, with copies of these files of STAGE/engine_files as its engines; ""
/// for none. It stays loaded, so the folder is only removed when the process ends.
inline Plugin& front_with(const std::string& engine_13, const std::string& engine_12) {
  namespace fs = std::filesystem;
  static TemporaryDirectory all;
  static std::vector<std::unique_ptr<Plugin>> opened;
  const fs::path folder = all.path() / std::to_string(opened.size());
  fs::create_directories(folder / "plugins"), fs::create_directories(folder / "engines");
  fs::copy_file(kStage + "/good/plugins/cuda.so", folder / "plugins/cuda.so");
  const auto copy = [&](const std::string& name, const std::string& to) {
    if (name == "good-13") return fs::copy_file(kStage + "/good/engines/cuda-cublas-13.so", folder / to);
    return name.empty() || fs::copy_file(kStage + "/engine_files/" + name + ".so", folder / to);
  };
  copy(engine_13, "engines/cuda-cublas-13.so"), copy(engine_12, "engines/cuda-cublas-12.so");
  opened.push_back(std::make_unique<Plugin>((folder / "plugins/cuda.so").string()));
  return *opened.back();
}

struct Answer {
  th_status status;
  std::string message, hint, native;
  std::vector<std::string> lines;  // that it logged
  std::uint32_t devices = 0;
  std::uint64_t missing = 0;
};
inline Answer probe(const Plugin& plugin, std::map<std::string, std::string> options = {}) {
  Host host(std::move(options));
  th_error e = empty_error();
  Answer a{};
  a.status = plugin.trainer->probe(&host, &a.devices, &e);
  a.message = e.message, a.hint = e.hint, a.missing = e.bytes_needed;
  a.lines = host.lines;
  a.native = std::string(e.native_domain) + " " + std::to_string(e.native_code);
  return a;
}
inline Answer probe(const std::string& which = "good", std::map<std::string, std::string> options = {}) {
  return probe(front(which), std::move(options));
}

inline const th_device& device_table() {
  return *static_cast<const th_device*>(front().descriptor->get(TH_DEVICE_ID));
}

struct Memory {
  std::uint64_t free = 0, total = 0;
};
inline Memory memory(std::map<std::string, std::string> options = {}, std::int32_t device = 0) {
  Host host(std::move(options));
  th_error e = empty_error();
  Memory m;
  check(device_table().memory(&host, device, &m.free, &m.total, &e), e);
  return m;
}

inline int calls(const char* name) {
  void* lib = dlopen((kStage + "/libfakedriver.so").c_str(), RTLD_NOW | RTLD_NOLOAD);
  return lib ? reinterpret_cast<int (*)(const char*)>(dlsym(lib, "fake_cuda_calls"))(name) : 0;
}

inline void check_unavailable(const Answer& a, const std::string& message, const std::string& hint = "") {
  BOOST_TEST(a.status == TH_E_UNAVAILABLE, a.message);
  BOOST_TEST(a.message == message);
  BOOST_TEST(a.hint.find(hint) != std::string::npos, a.hint);
}

inline RunSpec small_run() {
  RunSpec r;
  r.micro_batch = 2, r.seq_len = 16;
  return r;
}
inline ModelSpec small_model() {
  ModelSpec m;
  m.vocab = 50, m.hidden = 32, m.layers = 2, m.heads = 4, m.kv_heads = 2, m.head_dim = 8, m.intermediate = 48;
  return m;
}

}  // namespace trainhost::test::front_end
