// A trainer with one tensor w[2, 3]: a step adds lr to every element, and the loss is their sum. Tests every
// call of the interface; its option "do" selects a fault. ../adapt_test.cpp.
#include <string>
#include <trainhost/trainhost.hpp>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#ifdef TOY_MODES  // toy_modes.so: a trainer with modes, which rejects one of them
#define TOY_OPTIONS "options = [\"do\", \"mode\"]\n"
#else
#define TOY_OPTIONS "options = [\"do\"]\n"
#endif
TH_MANIFEST(
    "\nid = \"toy\"\nversion = \"1\"\nkind = \"trainer\"\nsummary = \"adds the learning rate\"\n" TOY_OPTIONS
    "priority = -1\n");

namespace {

std::string option(const th_host& h, const char* key = "do") {
  const char* what = h.option(&h, key);
  return what ? what : "";
}

class Toy {
 public:
  static std::uint32_t probe(const th_host& h) {
    if (option(h) == "no device") throw th::Error(TH_E_UNAVAILABLE, "no device found", "connect a device");
    if (option(h) == "probe unavailable") throw th::Error(TH_E_UNAVAILABLE, "busy");
    if (option(h) == "probe unsupported") throw th::Error(TH_E_UNSUPPORTED, "unsupported");
    if (option(h) == "probe device_oom") throw th::Error(TH_E_DEVICE_OOM, "out of memory");
    if (option(h) == "probe internal") throw th::Error(TH_E_INTERNAL, "internal error");
    if (option(h) == "probe io") throw th::Error(TH_E_IO, "disk error");
    if (option(h) == "probe argument") throw th::Error(TH_E_ARG, "invalid argument");
    return option(h) == "zero devices" ? 0 : 1;
  }
  static void profile(const th_host&, const th_model&, const th_run&, th_profile& p) {
    p.alignment = 128;
    std::strcpy(p.trainer, "toy");
  }
  static void plan(const th_host&, const th_model&, const th_run&, th::Tree& t) {
    t.exact({"w", TH_TIER_HOST, TH_MEM_WEIGHTS, 0, "2*3*4"}, sizeof w_);
    t.peak(TH_TIER_HOST, sizeof w_, TH_PH_UPDATE);
    t.digest(42);
    t.claim(TH_EXACT);
  }

  Toy(const th_host& h, std::int32_t, const th_model& m, const th_run&) : host_(h), do_(option(h)) {
    if (m.layers == 0) throw th::Error(TH_E_UNSUPPORTED, "no layers");
    if (option(h, "mode") == "streamed") throw th::Error(TH_E_UNSUPPORTED, "streamed mode is not supported");
    if (do_ == "oom") throw th::Error(TH_E_HOST_OOM, "no memory for w", "less", 24);
    block_ = h.alloc(&h, 4096, 64, TH_TIER_HOST, "arena");
  }
  ~Toy() {
    host_.release(&host_, block_);
    host_.log(&host_, TH_LOG_INFO, "destroy", "destroyed");
  }
  void load(std::uint32_t scope, const th_tensor& t) {
    if (scope != TH_SCOPE_WEIGHTS) throw th::Error(TH_E_ARG, "the optimizer has no moments");
    if (std::string(t.name) != "w" || t.dim[0] != 2 || t.dim[1] != 3)
      throw th::Error(TH_E_ARG, "unknown tensor");
    for (std::uint64_t i = 0; i < t.count; ++i) w_[t.first + i] = static_cast<const float*>(t.data)[i];
  }
  void init(std::uint64_t seed) {
    for (float& x : w_) x = static_cast<float>(seed);
  }
  void step(const th_step& s, th_step_out& o) {
#if defined(__SSE2__)
    if (do_ == "flush denormals") _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
    if (do_ == "nonfinite") throw th::Error(TH_E_NONFINITE, "loss is not finite");
    if (do_ == "cancelled" && host_.cancelled(&host_))
      throw th::Error(TH_E_CANCELLED, "cancelled at a micro-batch");
    o.loss = 0;
    for (float& x : w_) {
      if (!(s.flags & TH_STEP_EVALUATE)) x += static_cast<float>(s.lr);
      o.loss += x;
    }
    o.grad_norm = s.tokens[0] + s.targets[1];
    o.tokens_counted = std::uint64_t{s.batch} * s.seq;
    o.wall_ns = s.step_index;
  }
  void save(std::uint32_t scope, th_tensor_sink& sink) {
    th_tensor t{};
    t.struct_size = sizeof t;
    t.dtype = TH_DT_F32;
    t.rank = 2;
    t.dim[0] = 2, t.dim[1] = 3;
    t.name = scope == TH_SCOPE_WEIGHTS ? "w" : "w.moment";
    t.data = w_;
    t.count = 6;
    if (do_ == "save rank 3") t.rank = 3;
    if (do_ == "save outside") t.first = 1;
    if (do_ == "save without name") t.name = nullptr;
    if (do_ == "save type") t.dtype = 77;
    th_status s = sink.tensor(&sink, &t);
    if (do_.empty()) th::check(s, "the sink failed");  // a fault ignores the error
  }
  void counters(th_counters& c) { c.h2d_bytes = 5, c.launches = 9; }
  const char* info(const char* key) noexcept {
    return std::string(key) == "kernel_set" ? "plain loops" : nullptr;
  }
  double metric(const char* key) {
    if (std::string(key) != "peak_flops") throw th::Error(TH_E_UNSUPPORTED, "unknown metric");
    return 12.5;
  }
  static void memory(const th_host& h, std::int32_t device, std::uint64_t& free_bytes,
                     std::uint64_t& total_bytes) {
    if (option(h) == "no device") throw th::Error(TH_E_UNAVAILABLE, "no device found");
    if (option(h) == "wrong device") throw th::Error(TH_E_ARG, "there is no device 3");
    free_bytes = 1000, total_bytes = 2000 + static_cast<std::uint64_t>(device);
    if (option(h) == "more free than total") free_bytes = 3000;
  }
  static std::string device_name(const th_host&, std::int32_t) { return "Toy \x1b[31m 9000"; }
  void next(std::int32_t token, std::uint32_t position, float* logits) {
    logits[0] = static_cast<float>(token), logits[1] = static_cast<float>(position);
  }

 private:
  const th_host& host_;
  std::string do_;
  void* block_ = nullptr;
  float w_[6] = {};
};

}  // namespace

// Built several times: toy.so has no th_device and no profiler; toy_profiled.so has a profiler, whose faults
// "do" selects.
#ifdef TOY_PROFILED
namespace {

th_moments* moments = nullptr;
bool profiling = false;
std::string fault;

th_status record_bytes(const th_host* h, const th_model*, const th_run*, std::uint64_t* bytes, th_error*) {
  fault = option(*h);
  *bytes = 96;
  return TH_OK;
}
th_status start(th_trainer_inst*, void* records, std::uint64_t bytes, th_moments* m, th_error* e) {
  if (fault == "no start" || !records || bytes != 96)
    return th::fill(e, TH_E_STATE, "the profiler cannot start");
  profiling = true, moments = m;
  for (std::uint32_t moment : {0u, TH_BEFORE_FORWARD, TH_AFTER_UPDATE, 5u}) m->reached(m, moment, 7, 70);
  return TH_OK;
}
th_status read(th_trainer_inst*, th_op_sink* sink, th_error*) {
  for (std::uint64_t i = 0; i < 3; ++i) {
    th_op_record r{};
    r.struct_size = sizeof r;
    r.phase = TH_PH_UPDATE, r.layer = -1, r.micro = 2;
    r.kind = "add", r.name = i == 1 ? "add \x1b[31m" : "add w";
    r.start_ns = 100 + 10 * i, r.duration_ns = 10;
    r.flops = 6, r.bytes_read = 24, r.bytes_written = 25, r.live_bytes = 24;
    if (fault == "overlap") r.duration_ns = 11;
    if (fault == "no name") r.name = nullptr;
    if (fault == "phase") r.phase = TH_PH_FORWARD | TH_PH_UPDATE;
    if (fault == "layer") r.layer = -2;
    if (fault == "time") r.duration_ns = UINT64_MAX;
    if (fault == "cost") r.flops = UINT64_MAX;
    if (fault == "short") r.struct_size = 16;
    th_status s = sink->op(sink, &r);
    if (s != TH_OK) return s;
  }
  return TH_OK;
}
void stop(th_trainer_inst*) { profiling = false; }

const th_profiler kProfiler = {sizeof(th_profiler), 0, record_bytes, start, read, stop};

}  // namespace
TH_PLUGIN("toy", "1", th::trainer<Toy>(), th::generate<Toy>(), &kProfiler)
#elif defined(TOY_ORDERED)  // toy_ordered.so: logs stop(); every session logs destroy()
namespace {
const th_host* started = nullptr;
th_status start(const th_host* h, th_error*) { return started = h, TH_OK; }
void stop() { started->log(started, TH_LOG_INFO, "stop", "stopped"); }
}  // namespace
extern "C" TH_EXPORT const th_plugin* TH_ENTRY(void) {
  static const th_plugin plugin{
      sizeof plugin, TH_ABI_MAJOR,
      TH_ABI_MINOR,  "toy",
      "1",           start,
      stop,          [](const char* id) -> const void* { return th::pick(id, th::trainer<Toy>()); }};
  return &plugin;
}
#elif defined(TOY_DEVICE)
TH_PLUGIN("toy", "1", th::trainer<Toy>(), th::generate<Toy>(), th::device<Toy>())
#elif defined(TOY_DEVICE_NAMELESS)
static const th_device kNameless = {sizeof(th_device), 0, th::device<Toy>()->memory, nullptr};
TH_PLUGIN("toy", "1", th::trainer<Toy>(), &kNameless)
#else
TH_PLUGIN("toy", "1", th::trainer<Toy>(), th::generate<Toy>())
#endif
