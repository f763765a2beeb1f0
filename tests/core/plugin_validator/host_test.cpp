// The checking host, tested with violations made by hand: correct calls break no rule, and each wrong call
// breaks exactly one. broken_plugins_test shows the same with plugins.
#include <boost/test/unit_test.hpp>
#include <functional>
#include <thread>

#include "core/plugin/instance_calls.hpp"
#include "core/plugin_validator/checking_host.hpp"
#include "core/plugin_validator/guarded_memory.hpp"
#include "core/plugin_validator/sinks.hpp"

namespace tc = trainhost::plugin_validator;
using trainhost::plugin::InstanceCalls;
using trainhost::plugin::PluginError;

namespace {

void elsewhere(const std::function<void()>& f) { std::thread(f).join(); }

struct HostFixture {
  tc::BreachRecord record;
  tc::CheckingHost host{record};
  const th_host* h = host.get();
  std::string outside() const { return record.first(tc::Rule::kCallbackOutsideCall); }
  std::string arguments() const { return record.first(tc::Rule::kCallbackArguments); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(checking_host)

BOOST_AUTO_TEST_CASE(every_callback_outside_a_call_is_detected) {
  const std::vector<std::pair<const char*, std::function<void(const th_host*)>>> callbacks = {
      {"log()", [](auto* h) { h->log(h, TH_LOG_INFO, "x", "x"); }},
      {"alloc()", [](auto* h) { h->alloc(h, 0, 1, TH_TIER_HOST, "x"); }},
      {"release()", [](auto* h) { h->release(h, nullptr); }},
      {"took()", [](auto* h) { h->took(h, 0, TH_TIER_HOST, "x"); }},
      {"cancelled()", [](auto* h) { h->cancelled(h); }},
      {"progress()", [](auto* h) { h->progress(h, "x", 0.5); }},
      {"option()", [](auto* h) { h->option(h, "x"); }},
      {"extension()", [](auto* h) { h->extension(h, "x"); }},
  };
  for (const auto& [name, make] : callbacks) {
    HostFixture inside, outside, late;
    {
      tc::CheckingHost::CallbacksAllowed call(inside.host), other(late.host);
      make(inside.h);
      elsewhere([&] { make(inside.h); });  // own threads of the plugin may call back too
    }
    BOOST_TEST((inside.outside() + inside.arguments()) == "", name);
    make(outside.h);
    BOOST_TEST(outside.outside().find(std::string("the host's ") + name) == 0u, outside.outside());
    elsewhere([&] { make(late.h); });  // a thread that runs after the call and after destroy()
    BOOST_TEST(late.outside() != "", name);
  }
}

BOOST_AUTO_TEST_CASE(every_wrong_argument_is_detected) {
  const char* const no_text = "\xff\xfe";
  const std::vector<std::pair<const char*, std::function<void(const th_host*)>>> wrong = {
      {"a level", [](auto* h) { h->log(h, 9, "x", "x"); }},
      {"a null text", [](auto* h) { h->log(h, TH_LOG_INFO, nullptr, nullptr); }},
      {"no UTF-8", [&](auto* h) { h->log(h, TH_LOG_INFO, "x", no_text); }},
      {"a tier", [](auto* h) { h->alloc(h, 1, 1, TH_TIER_DEVICE, "x"); }},
      {"an alignment", [](auto* h) { h->alloc(h, 1, 3, TH_TIER_HOST, "x"); }},
      {"a null tag", [](auto* h) { h->alloc(h, 1, 1, TH_TIER_HOST, nullptr); }},
      {"foreign memory",
       [](auto* h) {
         int mine = 0;
         h->release(h, &mine);
       }},
      {"memory twice",
       [](auto* h) {
         void* p = h->alloc(h, 8, 8, TH_TIER_HOST, "x");
         h->release(h, p), h->release(h, p);
       }},
      {"a tier of took()", [](auto* h) { h->took(h, 1, 77, "x"); }},
      {"a fraction", [](auto* h) { h->progress(h, "x", 2.0); }},
      {"a key", [](auto* h) { h->option(h, nullptr); }},
      {"an extension", [](auto* h) { h->extension(h, nullptr); }},
  };
  for (const auto& [what, make] : wrong) {
    HostFixture fixture;
    tc::CheckingHost::CallbacksAllowed call(fixture.host);
    make(fixture.h);
    BOOST_TEST(fixture.arguments() != "", what);
    BOOST_TEST(fixture.outside() == "", what);
  }
}

BOOST_AUTO_TEST_CASE(a_modified_host_table_is_detected) {
  HostFixture fixture;
  fixture.host.check_table_unchanged();
  BOOST_TEST(fixture.record.first(tc::Rule::kInputChanged) == "");
  const_cast<th_host*>(fixture.h)->log = nullptr;
  fixture.host.check_table_unchanged();
  BOOST_TEST(fixture.record.first(tc::Rule::kInputChanged) != "");
}

BOOST_AUTO_TEST_CASE(sinks_detect_late_calls_and_other_threads) {
  for (const bool late : {false, true}) {
    HostFixture fixture;
    tc::ReportSink nodes(fixture.record, std::this_thread::get_id());
    tc::TensorSink tensors(fixture.record, std::this_thread::get_id());
    th_mem m{};
    m.struct_size = sizeof m, m.name = "x";
    float value = 1;
    th_tensor t{};
    t.struct_size = sizeof t, t.dtype = TH_DT_F32, t.rank = 1, t.dim[0] = t.count = 1, t.name = "x",
    t.data = &value;
    const auto all = [&] {
      nodes.get()->node(nodes.get(), &m), nodes.get()->note(nodes.get(), "x"),
          tensors.get()->tensor(tensors.get(), &t);
    };
    all();
    BOOST_TEST((fixture.record.first(tc::Rule::kSinkThread) +
                fixture.record.first(tc::Rule::kSinkAfterReturn)) == "");
    if (late) nodes.close(), tensors.close(), all();
    if (!late) elsewhere(all);
    BOOST_TEST((fixture.record.first(tc::Rule::kSinkAfterReturn) != "") == late);
    BOOST_TEST((fixture.record.first(tc::Rule::kSinkThread) != "") == !late);
  }
}

BOOST_AUTO_TEST_CASE(guard_bytes_detect_one_changed_byte) {
  tc::Guarded<th_error> e;
  BOOST_TEST(e.margins_unchanged());
  reinterpret_cast<unsigned char*>(e.get())[sizeof(th_error)] ^= 1;
  BOOST_TEST(!e.margins_unchanged());
  tc::Guarded<th_error> before;
  reinterpret_cast<unsigned char*>(before.get())[-1] ^= 1;
  BOOST_TEST(!before.margins_unchanged());
  tc::Guarded<th_error> kept;
  kept.poison();
  BOOST_TEST(kept.poison_unchanged());
  kept->code = TH_E_IO;
  BOOST_TEST(!kept.poison_unchanged());
}

BOOST_AUTO_TEST_CASE(calls_on_an_instance_must_not_overlap) {
  InstanceCalls calls;
  const auto rejected = [&](const char* call) {
    try {
      InstanceCalls::Scope scope(calls, "acme", call);
      return std::string();
    } catch (const PluginError& e) {
      return e.status() + ": " + e.what();
    }
  };
  BOOST_TEST(rejected("step") == "");
  BOOST_TEST(rejected("save") == "");
  {
    InstanceCalls::Scope scope(calls, "acme", "step");
    BOOST_TEST(rejected("save") ==
               "state: save() was called while step() ran on the same instance of plugin acme");
    std::string other;
    elsewhere([&] { other = rejected("step"); });
    BOOST_TEST(other == "state: step() was called while step() ran on the same instance of plugin acme");
    BOOST_TEST(!calls.close());
  }
  elsewhere([&] { BOOST_TEST(rejected("step") == ""); });  // the thread may change between calls
  BOOST_TEST(calls.close());
  BOOST_TEST(rejected("counters") ==
             "state: counters() was called on an instance of plugin acme after destroy()");
  BOOST_TEST(!calls.close());
}

BOOST_AUTO_TEST_SUITE_END()
