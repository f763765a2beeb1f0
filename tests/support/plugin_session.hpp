// A trainer plugin as a test sees it: opened from its file, driven through its C tables by a host that counts
// memory, keeps the log and can be told to cancel. Knows nothing of the engine behind the tables.
#pragma once
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/abi/convert_structs.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/model/tensors.hpp"
#include "trainhost/trainhost.h"

namespace trainhost::test {

/// The host's side. Memory is zero-filled, as the interface says, and counted.
struct CountingHost : th_host {
  std::map<void*, std::uint64_t> blocks;
  std::uint64_t now = 0, peak = 0, limit = UINT64_MAX;
  std::vector<std::string> lines;
  bool cancel = false;
  const th_ranks* ranks = nullptr;  // of a run on several ranks
  std::uint64_t cancel_after = UINT64_MAX, polls = 0;

  explicit CountingHost(std::uint32_t threads = 2) : th_host{} {
    struct_size = sizeof(th_host), abi_major = TH_ABI_MAJOR, abi_minor = TH_ABI_MINOR, self = this;
    th_host::name = "test", version = "0", thread_budget = threads;
    th_host::log = [](const th_host* h, std::int32_t, const char*, const char* text) {
      of(h).lines.push_back(text);
    };
    th_host::alloc = [](const th_host* h, std::uint64_t bytes, std::uint64_t align, std::uint32_t,
                        const char*) -> void* {
      CountingHost& s = of(h);
      if (s.now + bytes > s.limit) return nullptr;
      void* p = std::aligned_alloc(align, (bytes + align - 1) / align * align);
      if (!p) return nullptr;
      std::memset(p, 0, bytes);
      s.blocks[p] = bytes, s.now += bytes, s.peak = std::max(s.peak, s.now);
      return p;
    };
    th_host::release = [](const th_host* h, void* p) {
      of(h).now -= of(h).blocks.at(p);
      of(h).blocks.erase(p);
      std::free(p);
    };
    th_host::took = [](const th_host*, std::int64_t, std::uint32_t, const char*) {};
    th_host::cancelled = [](const th_host* h) -> std::int32_t {
      return of(h).cancel || ++of(h).polls > of(h).cancel_after;
    };
    th_host::progress = [](const th_host*, const char*, double) {};
    th_host::option = [](const th_host*, const char*) -> const char* { return nullptr; };
    th_host::extension = [](const th_host* h, const char* id) -> const void* {
      return std::string_view(id) == TH_RANKS_ID ? of(h).ranks : nullptr;
    };
  }
  static CountingHost& of(const th_host* h) { return *static_cast<CountingHost*>(h->self); }
};

struct StatusFailure : std::runtime_error {
  StatusFailure(th_status c, const std::string& m) : std::runtime_error(m), code(c) {}
  th_status code;
};

/// Throws StatusFailure with the plugin's own words.
inline void check(th_status s, const th_error& e) {
  if (s != TH_OK)
    throw StatusFailure(s, std::string(e.message) + (e.hint[0] ? std::string(" (") + e.hint + ")" : ""));
}
inline th_error empty_error() {
  th_error e{};
  e.struct_size = sizeof e;
  return e;
}

class Plugin {
 public:
  explicit Plugin(const std::string& file) {
    library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library_) throw std::runtime_error(dlerror());
    auto entry = reinterpret_cast<const th_plugin* (*)()>(dlsym(library_, TH_ENTRY_NAME));
    if (!entry) throw std::runtime_error(file + " has no entry");
    descriptor = entry();
    trainer = static_cast<const th_trainer*>(descriptor->get(TH_TRAINER_ID));
    generate = static_cast<const th_generate*>(descriptor->get(TH_GENERATE_ID));
  }
  /// Tables of this process.
  Plugin(const th_trainer* t, const th_generate* g) : trainer(t), generate(g) {}
  const th_plugin* descriptor = nullptr;
  const th_trainer* trainer = nullptr;
  const th_generate* generate = nullptr;

  MemoryReport plan(const CountingHost& host, const ModelSpec& m, const RunSpec& r) const {
    th_model cm = abi::to_c(m);
    th_run cr = abi::to_c(r);
    abi::Collector collector;
    th_error e = empty_error();
    check(trainer->plan(&host, &cm, &cr, collector.sink(), collector.summary(), &e), e);
    return collector.take(descriptor->id);
  }

  th_profile profile(const CountingHost& host, const ModelSpec& m, const RunSpec& r) const {
    th_model cm = abi::to_c(m);
    th_run cr = abi::to_c(r);
    th_profile p{};
    p.struct_size = sizeof p;
    th_error e = empty_error();
    check(trainer->profile(&host, &cm, &cr, &p, &e), e);
    return p;
  }

 private:
  void* library_ = nullptr;  // stays open for the life of the process, as in the host
};

/// The CPU trainer of this build.
inline const Plugin& cpu_plugin() {
  static const Plugin p(TRAINHOST_BINARY_DIR "/lib/trainhost/plugins/cpu.so");
  return p;
}

using Tensors = std::map<std::string, std::vector<float>>;

class PluginSession {
 public:
  PluginSession(const Plugin& plugin, const CountingHost& host, const ModelSpec& m, const RunSpec& r,
                std::int32_t device = 0)
      : plugin_(plugin), model_(m) {
    th_model cm = abi::to_c(model_);
    th_run cr = abi::to_c(r);
    th_error e = empty_error();
    check(plugin.trainer->create(&host, device, &cm, &cr, &instance_, &e), e);
    seq_ = r.seq_len;
  }
  ~PluginSession() { plugin_.trainer->destroy(instance_); }
  PluginSession(const PluginSession&) = delete;

  /// Brings one tensor, in pieces of at most `piece` elements.
  void load(const TensorInfo& t, const std::vector<float>& values, std::uint32_t scope = TH_SCOPE_WEIGHTS,
            std::uint64_t piece = 1000) {
    for (std::uint64_t first = 0; first < values.size(); first += piece) {
      th_tensor c = describe(t);
      c.data = const_cast<float*>(values.data()) + first;
      c.first = first, c.count = std::min<std::uint64_t>(piece, values.size() - first);
      th_error e = empty_error();
      check(plugin_.trainer->load(instance_, scope, &c, &e), e);
    }
  }
  void load_all(const Tensors& w, std::uint32_t scope = TH_SCOPE_WEIGHTS) {
    for (const TensorInfo& t : tensors(model_)) load(t, w.at(t.name), scope);
  }
  void init(std::uint64_t seed) {
    th_error e = empty_error();
    check(plugin_.trainer->init(instance_, seed, &e), e);
  }
  th_step_out step(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& targets, double lr,
                   std::uint64_t index, std::uint32_t flags = 0,
                   const std::vector<std::int32_t>& starts = {}) {
    th_step s{};
    s.struct_size = sizeof s, s.flags = flags, s.seq = seq_,
    s.batch = static_cast<std::uint32_t>(ids.size() / seq_);
    s.tokens = ids.data(), s.targets = targets.data(), s.lr = lr, s.step_index = index;
    s.starts = starts.empty() ? nullptr : starts.data();
    th_step_out out{};
    out.struct_size = sizeof out;
    th_error e = empty_error();
    check(plugin_.trainer->step(instance_, &s, &out, &e), e);
    return out;
  }
  th_step_out evaluate(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& targets) {
    return step(ids, targets, 0, 0, TH_STEP_EVALUATE);
  }

  Tensors save(std::uint32_t scope = TH_SCOPE_WEIGHTS) {
    Tensors all;
    th_tensor_sink sink{};
    sink.struct_size = sizeof sink, sink.self = &all;
    sink.tensor = [](th_tensor_sink* s, const th_tensor* t) -> th_status {
      auto& v = (*static_cast<Tensors*>(s->self))[t->name];
      if (v.size() != t->first) return TH_E_ARG;
      const float* from = static_cast<const float*>(t->data);
      v.insert(v.end(), from, from + t->count);
      return TH_OK;
    };
    th_error e = empty_error();
    check(plugin_.trainer->save(instance_, scope, &sink, &e), e);
    return all;
  }
  /// A piece of what this rank has to write: elements of its part of a tensor.
  struct OwnPiece {
    std::string name;
    std::uint64_t rows, cols;  // of the part
    std::uint64_t first;
    std::vector<float> values;
  };
  std::vector<OwnPiece> save_own_part(std::uint32_t scope) {
    std::vector<OwnPiece> all;
    th_tensor_sink sink{};
    sink.struct_size = sizeof sink, sink.self = &all;
    sink.tensor = [](th_tensor_sink* s, const th_tensor* t) -> th_status {
      const float* from = static_cast<const float*>(t->data);
      static_cast<std::vector<OwnPiece>*>(s->self)->push_back(
          {t->name, t->dim[0], t->rank == 2 ? t->dim[1] : 1, t->first, {from, from + t->count}});
      return TH_OK;
    };
    th_error e = empty_error();
    check(plugin_.trainer->save(instance_, scope | TH_SAVE_OWN_PART, &sink, &e), e);
    return all;
  }
  std::vector<float> next(std::int32_t token, std::uint32_t position) {
    std::vector<float> logits(model_.vocab);
    th_error e = empty_error();
    check(plugin_.generate->next(instance_, token, position, logits.data(), &e), e);
    return logits;
  }
  std::string info(const char* key) {
    const char* v = plugin_.trainer->info(instance_, key);
    return v ? v : "";
  }
  double metric(const char* key) {
    double v = 0;
    th_error e = empty_error();
    check(plugin_.trainer->metric(instance_, key, &v, &e), e);
    return v;
  }
  th_trainer_inst* handle() { return instance_; }

 private:
  static th_tensor describe(const TensorInfo& t) {
    th_tensor c{};
    c.struct_size = sizeof c, c.dtype = TH_DT_F32, c.rank = t.rank, c.name = t.name.c_str();
    c.dim[0] = t.dim[0], c.dim[1] = t.rank == 2 ? t.dim[1] : 0;
    return c;
  }
  const Plugin& plugin_;
  ModelSpec model_;
  th_trainer_inst* instance_ = nullptr;
  std::uint32_t seq_ = 0;
};

/// Code and message of an error; TH_OK if there was none.
template <class F>
std::pair<th_status, std::string> refusal(F&& f) {
  try {
    f();
    return {TH_OK, ""};
  } catch (const StatusFailure& e) {
    return {e.code, e.what()};
  }
}

}  // namespace trainhost::test

/// `expression` fails with `status` and a message that contains `words`. For Boost.Test.
#define CHECK_REFUSED(expression, status, words)                             \
  do {                                                                       \
    const auto [code, text] = trainhost::test::refusal([&] { expression; }); \
    BOOST_TEST(code == status);                                              \
    BOOST_TEST(text.find(words) != std::string::npos,                        \
               "\"" << text << "\" does not say \"" << words << "\"");       \
  } while (0)
