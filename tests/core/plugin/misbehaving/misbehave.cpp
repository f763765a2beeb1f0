// An estimator that loads correctly; its option "do" selects a fault. ../adapt_test.cpp.
#include <stdexcept>
#include <string>
#include <trainhost/trainhost.hpp>

TH_MANIFEST(R"(
id = "misbehave"
version = "1"
kind = "estimator"
options = ["do"]
priority = 5
)");

namespace {

th_mem node_with_id(std::uint32_t id) {
  th_mem m{};
  m.struct_size = sizeof m;
  m.id = id;
  m.tier = TH_TIER_HOST;
  m.component = TH_MEM_WEIGHTS;
  m.claim = TH_EXACT;
  m.bytes = m.lo = m.hi = 10;
  return m;
}

th_status estimate_without_sdk(const std::string& what, th_mem_sink* sink, th_mem_summary* summary,
                               th_error* e) {
  if (what == "throw raw") throw std::runtime_error("thrown by the plugin");
  if (what == "throw 42 raw") throw 42;
  if (what == "code 7") return 7;
  if (what == "code -99") return -99;
  if (what == "no message") return TH_E_IO;
  if (what == "unterminated") {
    std::memset(e->message, 'm', sizeof e->message);
    std::memset(e->hint, 'h', sizeof e->hint);
    return TH_E_UNSUPPORTED;
  }
  if (what == "escape") return th::fill(e, TH_E_IO, "red \x1b[31m");
  if (what == "out of device memory") return th::fill(e, TH_E_DEVICE_OOM, "too big", "use less", 12345);
  if (what == "number without message" || what == "unprintable domain") {
    const bool unprintable = what == "unprintable domain";
    e->native_code = unprintable ? 5 : -719;
    if (unprintable)
      std::memcpy(e->native_domain, "\x1b[31mmmmmmmmmmmm", 16), e->message[0] = 'x';  // no terminating zero
    return unprintable ? TH_E_IO : TH_E_DEVICE_LOST;
  }
  if (what == "bad node") {
    th_mem m = node_with_id(3);
    sink->node(sink, &m);  // ignores the error
    return TH_OK;
  }
  if (what == "bad node returned") {
    th_mem m = node_with_id(3);
    return sink->node(sink, &m);
  }
  if (what == "bad sum") {
    th_mem m = node_with_id(1);
    m.flags = TH_MEM_HAS_AT_PEAK;
    m.bytes_at_peak = 10;
    summary->tier_peak[TH_TIER_HOST] = 11;
    return sink->node(sink, &m);
  }
  return 1;
}

struct Misbehave {
  static int match(const th_model&, const th_run&) noexcept { return 100000; }
  static void estimate(const th_host& h, const th_model& m, const th_run&, const th_profile*,
                       th::Tree& tree) {
    const char* what = h.option(&h, "do");
    std::string w = what ? what : "";
    if (w == "throw") throw std::runtime_error("thrown by the plugin");
    if (w == "throw 42") throw 42;
    if (w == "with number") throw th::Error(TH_E_IO, "the disk is full").of("errno", 28);
    if (w == "throw Error") throw th::Error(TH_E_UNAVAILABLE, "no licence", "buy one", 5);
    if (w == "alloc") {
      void* p = h.alloc(&h, 1000, 64, TH_TIER_HOST, "scratch");
      tree.exact({"zeros"}, static_cast<std::uint64_t>(static_cast<char*>(p)[999]) + 1000);
      h.release(&h, p);
      if (h.alloc(&h, 1, 64, TH_TIER_DEVICE, "x") || h.alloc(&h, 1, 3, TH_TIER_HOST, "x"))
        throw th::Error(TH_E_INTERNAL, "alloc() accepted invalid arguments");
      h.took(&h, 77, TH_TIER_DEVICE, "cuda");
      return;
    }
    if (w == "progress") {
      for (int i = 0; i < 20; ++i) h.progress(&h, "counting", i / 1000.0);
      h.progress(&h, "waiting", -1);
      return;
    }
    if (w == "config") {
      th::Config c(h, m);
      tree.exact({"experts"}, static_cast<std::uint64_t>(c.integer("num_experts", 1)));
      tree.exact({"kinds"}, c.count("layer_types", 9));
      tree.note(c.text("rope_scaling.type", "none"));
      tree.note(std::to_string(c.number("rope_scaling.factor", 1)));
      return;
    }
    if (w == "cancelled") {
      if (h.cancelled(&h)) throw th::Error(TH_E_CANCELLED, "stopped");
    }
    tree.approximation({"guess", TH_TIER_DEVICE, TH_MEM_ACTIVATIONS, TH_PH_FORWARD, "a guess"}, 100, 50, 200);
    tree.upper_bound({"state"}, h.thread_budget);
    tree.note("host " + std::string(h.name));
  }
};

const th_estimator* table() {
  static const th_estimator t{sizeof(th_estimator), 0, th::estimator<Misbehave>()->match,
                              [](const th_host* h, const th_model* m, const th_run* r, const th_profile* p,
                                 th_mem_sink* sink, th_mem_summary* summary, th_error* e) -> th_status {
                                const char* what = h->option(h, "do");
                                if (th_status s = estimate_without_sdk(what ? what : "", sink, summary, e);
                                    s != 1)
                                  return s;
                                return th::estimator<Misbehave>()->estimate(h, m, r, p, sink, summary, e);
                              }};
  return &t;
}

}  // namespace

TH_PLUGIN("misbehave", "1", table())
