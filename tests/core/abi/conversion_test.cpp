// core/abi: C structs convert there and back unchanged, also from older layouts; a sink that receives
// invalid nodes reports them.
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <random>

#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/base/checked.hpp"

using namespace trainhost;
namespace tb = trainhost::abi;

namespace {

struct Random {
  std::mt19937_64 engine{20240117};
  std::uint64_t upto(std::uint64_t n) { return std::uniform_int_distribution<std::uint64_t>(0, n)(engine); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(upto(UINT32_MAX - 1)) + 1; }
  double positive() { return std::uniform_real_distribution<double>(1e-9, 1e6)(engine); }
  bool coin() { return upto(1) == 1; }
  std::string word(std::size_t most) {
    std::string s(upto(most), ' ');
    for (char& c : s) c = static_cast<char>('!' + upto(90));
    return s;
  }
};

ModelSpec random_model(Random& r) {
  ModelSpec m;
  m.family = r.word(20), m.name = r.word(60), m.config_json = r.word(500);
  m.vocab = r.upto(INT64_MAX), m.max_positions = r.upto(INT64_MAX - 1) + 1;
  m.hidden = r.u32(), m.layers = r.u32(), m.heads = r.u32(), m.kv_heads = r.u32(), m.head_dim = r.u32();
  m.intermediate = r.u32(), m.sliding_window = r.u32(), m.first_window_layer = r.u32();
  m.tied = r.coin(), m.qkv_bias = r.coin(), m.o_bias = r.coin(), m.mlp_bias = r.coin(), m.qk_norm = r.coin();
  m.norm_eps = r.positive(), m.rope_theta = r.positive(), m.initializer_range = r.coin() ? 0 : r.positive();
  m.rope.kind = static_cast<RopeKind>(r.upto(2));
  m.rope.factor = r.positive(), m.rope.low_freq_factor = r.positive(), m.rope.high_freq_factor = r.positive();
  m.rope.original_max_positions = r.upto(1u << 30) + 1;
  return m;
}

RunSpec random_run(Random& r) {
  RunSpec s;
  s.mode = static_cast<RunMode>(1 + r.upto(3));
  s.micro_batch = r.u32(), s.seq_len = r.u32(), s.accumulate = r.u32();
  s.weight = static_cast<DType>(1 + r.upto(6)), s.grad = static_cast<DType>(1 + r.upto(6));
  s.master = static_cast<DType>(r.upto(7)), s.moment = static_cast<DType>(1 + r.upto(6));
  s.compute = static_cast<DType>(1 + r.upto(6));
  s.optimizer = static_cast<Optimizer>(1 + r.upto(2)), s.recompute = static_cast<Recompute>(1 + r.upto(4));
  s.recompute_layers = {static_cast<std::uint32_t>(r.upto(9)), static_cast<std::uint32_t>(r.upto(9)),
                        static_cast<std::uint32_t>(r.upto(9))};
  s.beta1 = r.coin() ? 0 : r.positive(), s.beta2 = r.positive(), s.eps = r.positive();
  s.weight_decay = r.coin() ? 0 : r.positive(), s.clip_norm = r.coin() ? 0 : r.positive();
  s.seed = r.engine(), s.parallel.zero = static_cast<std::uint32_t>(r.upto(3));
  s.parallel.data = r.u32(), s.parallel.tensor = r.u32(), s.parallel.pipeline = r.u32();
  s.lora_rank = r.u32(), s.lora_targets = r.u32(), s.lora_alpha = r.positive();
  s.device_budget = r.engine(), s.host_budget = r.engine();
  s.lora_rules = r.word(100), s.trainable = r.word(100), s.memory.lora_dropout = r.coin() ? 0 : r.positive();
  s.document_mask = r.coin();
  s.parallel.data_rank = static_cast<std::uint32_t>(r.upto(5));
  s.parallel.tensor_rank = static_cast<std::uint32_t>(r.upto(5));
  return s;
}

TrainerTraits random_traits(Random& r) {
  TrainerTraits p;
  p.trainer = r.word(63), p.mode = r.word(31);
  p.alignment = r.u32(), p.head_chunk_tokens = static_cast<std::uint32_t>(r.upto(4096));
  p.attention_tile_q = r.u32(), p.attention_tile_k = r.u32(), p.threads = r.u32(), p.slots = r.u32();
  p.workspace_bytes = r.engine(), p.tier = static_cast<Tier>(1 + r.upto(3));
  return p;
}

/// A report whose leaves sum to its tiers' totals.
MemoryReport random_report(Random& r) {
  MemoryReport out;
  out.source = "x";
  out.digest = r.engine();
  out.claim = static_cast<Claim>(1 + r.upto(2));
  std::uint32_t n = 1 + static_cast<std::uint32_t>(r.upto(40));
  std::array<std::uint64_t, 5> total{};
  for (std::uint32_t i = 1; i <= n; ++i) {
    MemoryEntry node;
    node.id = i;
    node.parent = i > 1 && r.coin() ? 1 : 0;
    node.tier = static_cast<Tier>(1 + r.upto(3));
    node.component = static_cast<Component>(1 + r.upto(11));
    node.claim = static_cast<Claim>(1 + r.upto(2));
    node.phases = 1 + static_cast<std::uint32_t>(r.upto(126));
    node.bytes = 1 + r.upto(1ull << 40);
    node.lo = node.claim == Claim::kExact ? node.bytes : r.upto(node.bytes);
    node.hi = node.claim == Claim::kApproximation ? node.bytes + r.upto(1 << 20) : node.bytes;
    node.has_at_peak = true;
    node.bytes_at_peak = r.upto(node.bytes);
    node.name = r.word(80), node.formula = r.word(80);
    out.entries.push_back(node);
  }
  bool inner = false;
  for (const MemoryEntry& node : out.entries) inner |= node.parent == 1;
  for (const MemoryEntry& node : out.entries)
    if (node.id != 1 || !inner) total[static_cast<std::size_t>(node.tier)] += node.bytes_at_peak;
  for (Tier t : {Tier::kDevice, Tier::kPinned, Tier::kHost, Tier::kDisk})
    if (std::uint64_t bytes = total[static_cast<std::size_t>(t)]) out.tiers.push_back({t, bytes, kBackward});
  for (std::uint64_t i = r.upto(3); i > 0; --i) out.notes.push_back(r.word(100));
  return out;
}

void check_same(const MemoryReport& a, const MemoryReport& b) {
  BOOST_TEST(a.digest == b.digest);
  BOOST_TEST((a.claim == b.claim));
  BOOST_TEST(a.notes == b.notes, boost::test_tools::per_element());
  BOOST_REQUIRE_EQUAL(a.entries.size(), b.entries.size());
  for (std::size_t i = 0; i < a.entries.size(); ++i) {
    const MemoryEntry &x = a.entries[i], &y = b.entries[i];
    BOOST_TEST((x.id == y.id && x.parent == y.parent && x.tier == y.tier && x.component == y.component));
    BOOST_TEST(
        (x.claim == y.claim && x.phases == y.phases && x.bytes == y.bytes && x.lo == y.lo && x.hi == y.hi));
    BOOST_TEST((x.has_at_peak == y.has_at_peak && x.bytes_at_peak == y.bytes_at_peak));
    BOOST_TEST(x.name == y.name);
    BOOST_TEST(x.formula == y.formula);
  }
  BOOST_REQUIRE_EQUAL(a.tiers.size(), b.tiers.size());
  for (std::size_t i = 0; i < a.tiers.size(); ++i)
    BOOST_TEST((a.tiers[i].tier == b.tiers[i].tier && a.tiers[i].bytes == b.tiers[i].bytes &&
                a.tiers[i].peak_at == b.tiers[i].peak_at));
}

/// A leaf that a plugin in C would send.
th_mem leaf(std::uint32_t id, std::uint64_t bytes, std::uint32_t phases) {
  th_mem m{};
  m.struct_size = sizeof m;
  m.id = id;
  m.tier = TH_TIER_HOST;
  m.component = TH_MEM_WEIGHTS;
  m.claim = TH_EXACT;
  m.phases = phases;
  m.bytes = m.lo = m.hi = bytes;
  m.name = "leaf";
  return m;
}

/// What the collector says about a single node.
std::string verdict(const th_mem& m) {
  tb::Collector c;
  th_status s = c.sink()->node(c.sink(), &m);
  BOOST_TEST((s == TH_OK) == c.problem().empty());
  return c.problem();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(bridge)

BOOST_AUTO_TEST_CASE(models_runs_and_traits_convert_there_and_back_unchanged) {
  Random r;
  for (int i = 0; i < 2000; ++i) {
    ModelSpec m = random_model(r);
    RunSpec s = random_run(r);
    TrainerTraits p = random_traits(r);
    BOOST_REQUIRE((tb::from_c(tb::to_c(m)) == m));
    BOOST_REQUIRE((tb::from_c(tb::to_c(s)) == s));
    BOOST_REQUIRE((tb::from_c(tb::to_c(p)) == p));
  }
}

BOOST_AUTO_TEST_CASE(a_shorter_struct_is_not_read_past_its_size) {
  Random r;
  ModelSpec m = random_model(r);
  RunSpec s = random_run(r);
  TrainerTraits p = random_traits(r);
  th_model cm = tb::to_c(m);
  th_run cs = tb::to_c(s);
  th_profile cp = tb::to_c(p);

  cm.struct_size = offsetof(th_model, hidden);
  ModelSpec old_model = tb::from_c(cm);
  BOOST_TEST(old_model.vocab == m.vocab);
  BOOST_TEST(old_model.hidden == 0u);
  BOOST_TEST(old_model.rope_theta == ModelSpec{}.rope_theta);
  BOOST_TEST(old_model.config_json == "");

  cs.struct_size = offsetof(th_run, optimizer) + 3;  // a truncated field is ignored
  RunSpec old_run = tb::from_c(cs);
  BOOST_TEST(old_run.seq_len == s.seq_len);
  BOOST_TEST((old_run.optimizer == RunSpec{}.optimizer));
  BOOST_TEST(old_run.beta2 == RunSpec{}.beta2);

  cp.struct_size = offsetof(th_profile, trainer);
  BOOST_TEST(tb::from_c(cp).workspace_bytes == p.workspace_bytes);
  BOOST_TEST(tb::from_c(cp).trainer == "");

  cm.struct_size = cs.struct_size = cp.struct_size = sizeof(std::uint32_t);
  BOOST_TEST((tb::from_c(cs) == RunSpec{}));
  BOOST_TEST((tb::from_c(cp) == TrainerTraits{}));
  BOOST_TEST(tb::from_c(cm).vocab == 0u);
}

BOOST_AUTO_TEST_CASE(zero_means_unset_where_zero_is_not_valid) {
  th_run r{};
  r.struct_size = sizeof r;
  RunSpec s = tb::from_c(r);
  BOOST_TEST(s.accumulate == 1u);
  BOOST_TEST((s.optimizer == Optimizer::kAdamW && s.weight == DType::kF32 && s.master == DType::kNone));
  BOOST_TEST(s.clip_norm == 0.0);  // 0 is a value: no clipping
  r.optimizer = 99;
  r.dt_weight = 4000000000u;
  BOOST_TEST((tb::from_c(r).optimizer == Optimizer::kAdamW && tb::from_c(r).weight == DType::kF32));
}

BOOST_AUTO_TEST_CASE(a_long_trainer_name_is_truncated) {
  TrainerTraits p;
  p.trainer = std::string(100, 'x');
  BOOST_TEST(tb::from_c(tb::to_c(p)).trainer == std::string(63, 'x'));
  th_profile c = tb::to_c(p);
  std::memset(c.mode, 'm', sizeof c.mode);
  BOOST_TEST(tb::from_c(c).mode == std::string(32, 'm'));
}

BOOST_AUTO_TEST_CASE(reports_convert_there_and_back_unchanged) {
  Random r;
  for (int i = 0; i < 300; ++i) {
    MemoryReport before = random_report(r);
    tb::Collector c;
    tb::send_report(before, c.sink(), c.summary());
    MemoryReport after = c.take("x");
    BOOST_REQUIRE_EQUAL(c.problem(), "");
    check_same(before, after);
  }
}

BOOST_AUTO_TEST_CASE(an_unstated_peak_is_that_of_the_largest_phase_as_an_upper_bound) {
  tb::Collector c;
  th_mem a = leaf(1, 100, TH_PH_FORWARD | TH_PH_BACKWARD), b = leaf(2, 40, TH_PH_BACKWARD),
         d = leaf(3, 50, TH_PH_UPDATE);
  for (th_mem* m : {&a, &b, &d}) BOOST_REQUIRE_EQUAL(c.sink()->node(c.sink(), m), TH_OK);
  MemoryReport r = c.take("x");
  BOOST_TEST(r.total_bytes() == 140u);
  BOOST_REQUIRE_EQUAL(r.tiers.size(), 1u);
  BOOST_TEST((r.tiers[0].peak_at == kBackward));
  BOOST_TEST((r.claim == Claim::kUpperBound));
}

BOOST_AUTO_TEST_CASE(entries_of_all_phases_peak_in_every_phase) {
  tb::Collector c;
  th_mem a = leaf(1, 100, 0), b = leaf(2, 40, TH_PH_LOAD | (2 * TH_PH_GENERATE - 2));
  for (th_mem* m : {&a, &b}) BOOST_REQUIRE_EQUAL(c.sink()->node(c.sink(), m), TH_OK);
  const MemoryReport r = c.take("x");
  BOOST_REQUIRE_EQUAL(r.tiers.size(), 1u);
  BOOST_TEST(name(r.tiers[0].peak_at) == "every phase");
  tb::Collector again;
  tb::send_report(r, again.sink(), again.summary());
  BOOST_TEST(again.summary()->peak_phase[TH_TIER_HOST] == 0u);
  BOOST_TEST(name(again.take("x").tiers[0].peak_at) == "every phase");
}

BOOST_AUTO_TEST_CASE(the_total_is_not_more_certain_than_its_entries) {
  tb::Collector c;
  th_mem a = leaf(1, 100, 0);
  a.claim = TH_APPROXIMATION, a.lo = 90, a.hi = 110;
  BOOST_REQUIRE_EQUAL(c.sink()->node(c.sink(), &a), TH_OK);
  BOOST_TEST((c.take("x").claim == Claim::kApproximation));
}

BOOST_AUTO_TEST_CASE(an_invalid_node_is_rejected_with_the_violated_rule) {
  th_mem good = leaf(1, 100, TH_PH_FORWARD), m = good;
  BOOST_TEST(verdict(good) == "");
  m.struct_size = offsetof(th_mem, hi);
  BOOST_TEST(verdict(m) == "memory node 1 is truncated: struct_size " + std::to_string(m.struct_size));
  m = good, m.id = 0;
  BOOST_TEST(verdict(m) == "memory node 1 has id 0: ids count from 1 in the order of the calls");
  m = good, m.parent = 1;
  BOOST_TEST(verdict(m) == "memory node 1 has parent 1, which was not sent before it");
  m = good, m.tier = 5;
  BOOST_TEST(verdict(m) == "memory node 1 has the unknown tier 5");
  m = good, m.component = 13;
  BOOST_TEST(verdict(m) == "memory node 1 has the unknown component 13");
  m = good, m.claim = 0;
  BOOST_TEST(verdict(m) == "memory node 1 has the unknown claim 0");
  m = good, m.hi = 101;
  BOOST_TEST(verdict(m) == "memory node 1 is exact, but lo, bytes and hi differ");
  m = good, m.claim = TH_UPPER_BOUND, m.hi = 99, m.lo = 0;
  BOOST_TEST(verdict(m) == "memory node 1 is an upper bound, but hi is not bytes");
  m = good, m.claim = TH_APPROXIMATION, m.lo = 101, m.hi = 200;
  BOOST_TEST(verdict(m) == "memory node 1 is an approximation with bytes outside [lo, hi]");
  m = good, m.claim = TH_APPROXIMATION, m.lo = m.hi = 0;
  BOOST_TEST(verdict(m) == "memory node 1 is an approximation without lo and hi");
  m = good, m.bytes = m.lo = m.hi = 1ull << 63;
  BOOST_TEST(verdict(m) == "memory node 1 has a size of 2^63 bytes or more");
  m = good, m.flags = TH_MEM_HAS_AT_PEAK, m.bytes_at_peak = 101;
  BOOST_TEST(verdict(m) == "memory node 1 has more bytes at the peak than bytes");
  tb::Collector c;
  BOOST_TEST(c.sink()->node(c.sink(), nullptr) == TH_E_ARG);
}

BOOST_AUTO_TEST_CASE(entries_that_do_not_sum_to_the_stated_total_are_rejected) {
  tb::Collector c;
  th_mem a = leaf(1, 100, 0);
  a.flags = TH_MEM_HAS_AT_PEAK, a.bytes_at_peak = 100;
  BOOST_REQUIRE_EQUAL(c.sink()->node(c.sink(), &a), TH_OK);
  c.summary()->tier_peak[TH_TIER_HOST] = 99;
  MemoryReport r = c.take("x");
  BOOST_TEST(c.problem() == "the entries of tier host sum to 100 bytes at the peak, but its total is 99");
  BOOST_TEST(r.entries.empty());
}

BOOST_AUTO_TEST_CASE(an_exact_entry_larger_than_its_total_is_rejected) {
  tb::Collector c;
  th_mem a = leaf(1, 100, 0), b = leaf(2, 30, TH_PH_UPDATE);
  for (th_mem* m : {&a, &b}) BOOST_REQUIRE_EQUAL(c.sink()->node(c.sink(), m), TH_OK);
  c.summary()->tier_peak[TH_TIER_HOST] = 99;
  c.take("x");
  BOOST_TEST(c.problem() == "memory node 1 takes 100 bytes, but the total of tier host is 99");
}

BOOST_AUTO_TEST_CASE(the_bytes_of_a_parent_node_are_not_counted) {
  tb::Collector c;
  th_mem top = leaf(1, 1000, TH_PH_LOAD), a = leaf(2, 10, TH_PH_FORWARD), b = leaf(3, 20, TH_PH_UPDATE);
  a.parent = b.parent = 1;
  for (th_mem* m : {&top, &a, &b}) BOOST_REQUIRE_EQUAL(c.sink()->node(c.sink(), m), TH_OK);
  MemoryReport r = c.take("x");
  BOOST_TEST(c.problem() == "");
  BOOST_TEST(r.tiers.at(0).bytes == 20u);
  BOOST_TEST((r.tiers.at(0).peak_at == kUpdate));
}

BOOST_AUTO_TEST_CASE(a_summary_of_unknown_tiers_is_rejected) {
  for (std::uint32_t tier : {0u, 5u, 7u}) {
    tb::Collector c;
    c.summary()->tier_peak[tier] = 1;
    c.take("x");
    BOOST_TEST(c.problem() == "a total for the unknown tier " + std::to_string(tier));
  }
  tb::Collector c;
  c.summary()->claim = 4;
  c.take("x");
  BOOST_TEST(c.problem() == "the unknown claim 4 in the summary");
}

BOOST_AUTO_TEST_CASE(a_report_has_fewer_than_a_million_nodes_and_little_text) {
  tb::Collector c;
  th_mem m = leaf(1, 1, 0);
  m.name = "";
  for (; m.id < 1'000'000 && c.problem().empty(); ++m.id) c.sink()->node(c.sink(), &m);
  BOOST_REQUIRE_EQUAL(c.problem(), "");
  BOOST_TEST(c.sink()->node(c.sink(), &m) == TH_E_ARG);
  BOOST_TEST(c.problem() == "10^6 or more memory nodes; combine repeated entries");
  tb::Collector wordy;
  const std::string text(5000, 'x');
  m = leaf(1, 1, 0), m.name = text.c_str();
  for (; m.id < 100'000 && wordy.problem().empty(); ++m.id) wordy.sink()->node(wordy.sink(), &m);
  BOOST_TEST(wordy.problem() == "names and formulas exceed 64 MiB");
}

BOOST_AUTO_TEST_CASE(sums_beyond_63_bits_are_rejected) {
  tb::Collector c;
  for (std::uint32_t i = 1; i <= 3; ++i) {
    th_mem m = leaf(i, kMaxBytes, 0);
    BOOST_REQUIRE_EQUAL(c.sink()->node(c.sink(), &m), TH_OK);
  }
  c.take("x");
  BOOST_TEST(c.problem() != "");
}

BOOST_AUTO_TEST_CASE(a_sink_called_after_its_call_has_ended_rejects) {
  tb::Collector c;
  th_mem m = leaf(1, 1, 0);
  c.take("x");
  BOOST_TEST(c.sink()->node(c.sink(), &m) == TH_E_STATE);
  BOOST_TEST(c.sink()->note(c.sink(), "late") == TH_E_STATE);
}

BOOST_AUTO_TEST_CASE(text_from_a_plugin_cannot_carry_escape_sequences) {
  tb::Collector c;
  th_mem m = leaf(1, 1, 0);
  m.name = "evil\x1b[2J";
  m.formula = nullptr;
  BOOST_REQUIRE_EQUAL(c.sink()->node(c.sink(), &m), TH_OK);
  BOOST_REQUIRE_EQUAL(c.sink()->note(c.sink(), "\xff"), TH_OK);
  MemoryReport r = c.take("x");
  BOOST_TEST(r.entries[0].name.find('\x1b') == std::string::npos);
  BOOST_TEST(r.notes[0].find('\xff') == std::string::npos);
}

BOOST_AUTO_TEST_CASE(emit_does_not_write_past_an_older_summary) {
  MemoryReport r;
  r.digest = 7;
  r.tiers.push_back({Tier::kHost, 100, kUpdate});
  th_mem_summary s{};
  s.struct_size = offsetof(th_mem_summary, tier_peak);
  tb::Collector c;
  tb::send_report(r, c.sink(), &s);
  BOOST_TEST(s.digest == 7u);
  BOOST_TEST(s.tier_peak[TH_TIER_HOST] == 0u);
  tb::send_report(r, c.sink(), nullptr);
}

BOOST_AUTO_TEST_CASE(a_failing_sink_ends_the_report) {
  MemoryReport r;
  r.entries.resize(3);
  r.entries[0].id = 1, r.entries[1].id = 5, r.entries[2].id = 3;
  tb::Collector c;
  BOOST_CHECK_EXCEPTION(tb::send_report(r, c.sink(), c.summary()), tb::StatusError,
                        [](const tb::StatusError& e) { return e.code == TH_E_ARG; });
}

BOOST_AUTO_TEST_CASE(every_exception_becomes_a_code_with_its_message) {
  auto caught = [](auto f) {
    th_error e{};
    e.struct_size = sizeof e;
    th_status s = tb::guard(&e, f);
    BOOST_TEST(s == e.code);
    return std::make_pair(s, std::string(e.message));
  };
  BOOST_TEST(caught([] {}).first == TH_OK);
  BOOST_TEST(caught([] { throw usage_error("family 'x'"); }).first == TH_E_UNSUPPORTED);
  BOOST_TEST(caught([] { throw usage_error("family 'x'"); }).second == "family 'x'");
  BOOST_TEST(caught([] { throw Error(Exit::kNoBackend, "no"); }).first == TH_E_UNAVAILABLE);
  BOOST_TEST(caught([] { throw Error(Exit::kDoesNotFit, "no"); }).first == TH_E_HOST_OOM);
  BOOST_TEST(caught([] { throw tb::StatusError(TH_E_IO, "disk"); }).first == TH_E_IO);
  BOOST_TEST(caught([] { throw std::bad_alloc(); }).first == TH_E_HOST_OOM);
  BOOST_TEST(caught([] { throw std::logic_error("bug"); }).second == "bug");
  BOOST_TEST(caught([] { throw 42; }).first == TH_E_INTERNAL);
  BOOST_TEST(tb::guard(nullptr, [] { throw 42; }) == TH_E_INTERNAL);
}

BOOST_AUTO_TEST_CASE(a_vendor_error_number_is_converted) {
  th_error e{};
  e.struct_size = sizeof e;
  tb::guard(&e, [] { throw tb::StatusError(TH_E_DEVICE_LOST, "lost", "destroy").of("cuda", 719); });
  const tb::ErrorText told = tb::read_error(e);
  BOOST_TEST(tb::prefix(told.native) + told.message + "/" + told.hint == "cuda 719: lost/destroy");
  tb::write_error(&e, TH_E_IO, "m", "", 0, "a domain that is far too long", 7);
  BOOST_TEST(tb::prefix(tb::read_error(e).native) == "a domain that i 7: ");
  tb::write_error(&e, TH_E_IO, "m");
  BOOST_TEST(tb::prefix(tb::read_error(e).native) == "");  // what an earlier failure left is gone
}

BOOST_AUTO_TEST_CASE(an_error_is_truncated_to_its_field_and_struct) {
  th_error e{};
  e.struct_size = sizeof e;
  std::string text = std::string(sizeof e.message - 2, 'a') + "\xc3\xa4 and more";  // an ä across the end
  tb::write_error(&e, TH_E_IO, text, "hint", 5);
  BOOST_TEST(std::string(e.message) == std::string(sizeof e.message - 2, 'a'));
  BOOST_TEST(e.bytes_needed == 5u);
  th_error old{};
  old.struct_size = offsetof(th_error, message);
  tb::write_error(&old, TH_E_IO, "text", "hint", 5);
  BOOST_TEST(old.bytes_needed == 5u);
  BOOST_TEST(std::string(old.message) == "");
}

BOOST_AUTO_TEST_CASE(every_status_has_its_own_name) {
  std::vector<std::string_view> seen;
  for (th_status s = 0; s >= -12; --s) {
    BOOST_TEST(std::count(seen.begin(), seen.end(), tb::status_name(s)) == 0);
    seen.push_back(tb::status_name(s));
  }
  BOOST_TEST(tb::status_name(7) == "undocumented");
  BOOST_TEST(tb::status_name(-13) == "undocumented");
}

BOOST_AUTO_TEST_SUITE_END()
