// The profiler of the CPU trainer through its C table: records of an update, calls that are not recorded, and
// rejected calls.
#include <boost/test/unit_test.hpp>

#include <map>

#include "core/placement/live_bytes.hpp"
#include "core/step/op_cost.hpp"
#include "tests/support/plugin_session.hpp"
#include "tests/support/small_models.hpp"
#include "trainhost/profiler.h"

namespace trainhost {
namespace {

using namespace test;
using Tokens = std::vector<std::int32_t>;

struct Record {
  std::string kind, name;
  std::uint32_t phase, micro;
  std::int32_t layer;
  std::uint64_t start, ns, flops, bytes, live;
};
struct Moment {
  std::uint32_t moment, micro;
  std::uint64_t live;
};

const th_profiler& profiler() {
  const auto* t = static_cast<const th_profiler*>(cpu_plugin().descriptor->get(TH_PROFILER_ID));
  BOOST_REQUIRE(t);
  return *t;
}

/// A session with its records; three micro-batches per update.
struct Profiled {
  ModelSpec m = small_model("llama", 37, 24, 2, 3, 1, 8, 40);
  RunSpec r;
  CountingHost host;
  std::vector<std::uint64_t> memory;
  std::vector<Moment> moments;
  th_moments sink{};
  std::unique_ptr<PluginSession> session;

  Profiled() {
    r.seq_len = 16, r.micro_batch = 2, r.accumulate = 3;
    session = std::make_unique<PluginSession>(cpu_plugin(), host, m, r);
    session->init(1);
    sink.struct_size = sizeof sink, sink.self = &moments;
    sink.reached = [](th_moments* s, std::uint32_t moment, std::uint32_t micro, std::uint64_t live) {
      static_cast<std::vector<Moment>*>(s->self)->push_back({moment, micro, live});
    };
  }
  std::uint64_t bytes() {
    th_model cm = abi::to_c(m);
    th_run cr = abi::to_c(r);
    th_error e = empty_error();
    std::uint64_t n = 0;
    check(profiler().record_bytes(&host, &cm, &cr, &n, &e), e);
    return n;
  }
  void start() {
    memory.assign((bytes() + 7) / 8 + 8, 0xABABABABABABABAB);
    th_error e = empty_error();
    check(profiler().start(session->handle(), memory.data(), bytes(), &sink, &e), e);
  }
  th_step_out step(std::uint64_t index) {
    const Tokens ids = random_tokens(96, 37, 1), targets = random_tokens(96, 37, 2);
    return session->step(ids, targets, 1e-2, index);
  }
  std::vector<Record> read() {
    std::vector<Record> out;
    th_op_sink s{};
    s.struct_size = sizeof s, s.self = &out;
    s.op = [](th_op_sink* to, const th_op_record* o) -> th_status {
      static_cast<std::vector<Record>*>(to->self)->push_back(
          {o->kind, o->name, o->phase, o->micro, o->layer, o->start_ns, o->duration_ns, o->flops,
           o->bytes_read + o->bytes_written, o->live_bytes});
      return TH_OK;
    };
    th_error e = empty_error();
    check(profiler().read(session->handle(), &s, &e), e);
    return out;
  }
  step::Program program() { return step::build_program(m, r, abi::from_c(cpu_plugin().profile(host, m, r))); }
};

BOOST_AUTO_TEST_SUITE(cpu_profiler)

BOOST_AUTO_TEST_CASE(an_update_records_every_operation_in_order_with_its_planned_cost) {
  Profiled x;
  x.start();
  const th_step_out out = x.step(0);
  const std::vector<Record> records = x.read();
  const step::Program p = x.program();
  const step::Section micro = p.section(step::SectionKind::kMicro);
  const std::size_t per_micro = micro.end - micro.begin;
  BOOST_REQUIRE(records.size() == 3 * per_micro + 2);  // one record for the norm, one for the weights
  const std::vector<std::uint64_t> live = placement::live_bytes(p, placement::lifetimes(p), p.traits.tier);
  std::uint64_t sum = 0, end = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& r = records[i];
    BOOST_TEST(r.start >= end, "records overlap");
    end = r.start + r.ns;
    sum += r.ns;
    if (i >= 3 * per_micro) continue;
    const std::uint32_t at = micro.begin + static_cast<std::uint32_t>(i % per_micro);
    const step::OpCost cost = step::op_cost(p, p.ops[at], i < per_micro);
    BOOST_TEST(r.name == step::op_label(p, p.ops[at]));
    BOOST_TEST(r.micro == i / per_micro);
    BOOST_TEST((r.phase == p.ops[at].phase && r.layer == p.ops[at].layer));
    BOOST_TEST((r.flops == cost.flops && r.bytes == cost.bytes() && r.live == live[at]), r.name);
  }
  BOOST_TEST(sum <= out.wall_ns);
  BOOST_TEST(sum > out.wall_ns / 2);
  BOOST_TEST(records.back().name == "adamw of " + std::to_string(p.params.size()) + " tensors");
  std::uint64_t weights = 0;
  for (const step::Param& q : p.params) weights += p[q.weight].bytes();
  BOOST_TEST(records.back().bytes ==
             7 * weights + 128 * p.params.size());  // g, w, m, v; w, m, v; 16 scalars each time
}

BOOST_AUTO_TEST_CASE(phase_boundaries_come_in_order_with_the_planned_bytes) {
  Profiled x;
  x.start();
  x.step(0);
  const step::Program p = x.program();
  const placement::PhaseLiveBytes m = placement::live_bytes_by_phase(p, placement::lifetimes(p));
  const Moment expected[] = {
      {TH_BEFORE_FORWARD, 0, m.before_forward},       {TH_AFTER_FORWARD, 0, m.after_forward},
      {TH_BEFORE_FORWARD, 1, m.before_later_forward}, {TH_AFTER_FORWARD, 1, m.after_forward},
      {TH_BEFORE_FORWARD, 2, m.before_later_forward}, {TH_AFTER_FORWARD, 2, m.after_forward},
      {TH_AFTER_BACKWARD, 2, m.after_backward},       {TH_AFTER_UPDATE, 2, m.after_update}};
  BOOST_REQUIRE(x.moments.size() == std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i)
    BOOST_TEST((x.moments[i].moment == expected[i].moment && x.moments[i].micro == expected[i].micro &&
                x.moments[i].live == expected[i].live),
               "moment " << i << ": " << x.moments[i].moment << " of micro-batch " << x.moments[i].micro
                         << ", " << x.moments[i].live);
}

BOOST_AUTO_TEST_CASE(profiling_changes_no_bit_and_allocates_no_memory) {
  Profiled plain, x;
  const std::uint64_t peak = x.host.peak;
  x.start();
  for (std::uint64_t t = 0; t < 3; ++t) BOOST_TEST(x.step(t).loss == plain.step(t).loss);
  BOOST_TEST((x.session->save() == plain.session->save()));
  BOOST_TEST(x.host.peak == peak);
  BOOST_TEST(x.host.blocks.size() == 1u);
  for (std::size_t i = x.bytes() / 8; i < x.memory.size(); ++i)
    BOOST_TEST(x.memory[i] == 0xABABABABABABABABu);
}

BOOST_AUTO_TEST_CASE(evaluation_is_not_recorded_and_stop_ends_recording) {
  Profiled x;
  x.start();
  x.step(0);
  const std::size_t records = x.read().size(), moments = x.moments.size();
  x.session->evaluate(random_tokens(32, 37, 3), random_tokens(32, 37, 4));
  x.session->next(1, 0);
  BOOST_TEST(x.read().size() == records);
  BOOST_TEST(x.moments.size() == moments);
  profiler().stop(x.session->handle());
  x.step(1);
  BOOST_TEST(x.moments.size() == moments);
  BOOST_CHECK_THROW(x.read(), StatusFailure);
  profiler().stop(x.session->handle());  // allowed without start
}

BOOST_AUTO_TEST_CASE(too_little_memory_for_records_is_rejected) {
  Profiled x;
  std::vector<std::uint64_t> memory(x.bytes() / 8);
  th_error e = empty_error();
  BOOST_TEST(profiler().start(x.session->handle(), memory.data(), x.bytes() - 1, &x.sink, &e) == TH_E_ARG);
  BOOST_TEST(std::string(e.message).find(std::to_string(x.bytes())) != std::string::npos, e.message);
  BOOST_TEST(profiler().start(x.session->handle(), nullptr, x.bytes(), &x.sink, &e) == TH_E_ARG);
  x.step(0);  // not profiled
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
