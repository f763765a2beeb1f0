// The state of a run: saved weights and moments equal the loaded ones bit for bit, a resumed run continues
// with the same bits, initial values, updates that are not applied change nothing, and neither does
// profiling.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "core/abi/op_journal.hpp"
#include "tests/plugins/cuda/engine/engine_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;
using Ids = std::vector<std::int32_t>;

struct Kind {
  const char* mode;
  const char* precision;
  bool tied;
};
std::ostream& operator<<(std::ostream& o, const Kind& k) {
  return o << k.mode << ", " << k.precision << (k.tied ? ", tied" : "");
}
std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (const char* mode : kModes)
    for (const char* precision : {"fp32", "bf16"})
      for (bool tied : {false, true}) all.push_back({mode, precision, tied});
  return all;
}
const auto kKinds = boost::unit_test::data::make(kinds());

constexpr std::uint32_t kSeq = 6, kVocab = 21;

/// A small run with three micro-batches per update, its data by step, and a session. Several may exist at the
/// same time.
struct SmallRun {
  explicit SmallRun(const Kind& k, std::uint32_t threads = 2) : host(k.mode, threads) {
    model = small_model("qwen3", kVocab, 12, 2, 2, 1, 6, 10);
    model.tied = k.tied, model.qk_norm = true, model.qkv_bias = true, model.initializer_range = 0.1;
    run.seq_len = kSeq, run.micro_batch = 1, run.accumulate = 3;
    run = in_precision(run, k.precision);
    session = std::make_unique<PluginSession>(cuda_engine(), host, model, run);
  }
  static Ids ids(unsigned t, std::size_t sequences = 3) {
    return random_tokens(sequences * kSeq, kVocab, 2 * t);
  }
  static Ids targets(unsigned t, std::size_t sequences = 3) {
    return random_targets(sequences * kSeq, kVocab, 2 * t + 1);
  }
  th_step_out step(unsigned t) { return session->step(ids(t), targets(t), 1e-2, t); }
  PluginSession& operator*() { return *session; }
  PluginSession* operator->() { return session.get(); }

  ModelSpec model;
  RunSpec run;
  CudaHost host;
  std::unique_ptr<PluginSession> session;
};

BOOST_AUTO_TEST_SUITE(cuda_state)

BOOST_DATA_TEST_CASE(a_save_and_a_load_resume_with_the_same_bits, kKinds, k) {
  emu::reset();
  SmallRun a(k), b(k, 3);
  a->init(7);
  for (unsigned t = 0; t < 2; ++t) a.step(t);
  const TrainState state = state_of(*a);
  BOOST_TEST_REQUIRE((!state[0].empty() && !state[1].empty() && !state[2].empty()));
  load_state(*b, state);
  b->init(99);  // all tensors were loaded, so this changes nothing
  BOOST_TEST(same_bits(state_of(*b), state));
  BOOST_TEST(b->metric("sync_mismatch") == 0.0);
  for (unsigned t = 2; t < 4; ++t) {
    const th_step_out x = a.step(t), y = b.step(t);
    BOOST_TEST(x.loss == y.loss);
    BOOST_TEST(x.grad_norm == y.grad_norm);
  }
  BOOST_TEST(same_bits(state_of(*a), state_of(*b)));
  for (SmallRun* r : {&a, &b}) BOOST_TEST((*r)->metric("sync_mismatch") == 0.0);
  BOOST_TEST(a->evaluate(SmallRun::ids(9, 1), SmallRun::targets(9, 1)).loss ==
             b->evaluate(SmallRun::ids(9, 1), SmallRun::targets(9, 1)).loss);
}

BOOST_DATA_TEST_CASE(saved_values_equal_loaded_values, kKinds, k) {
  emu::reset();
  SmallRun a(k);
  TrainState given(3);
  for (unsigned i = 0; i < 3; ++i) given[i] = as_floats(random_weights(a.model, 10 + i));
  load_state(*a, given);
  a->init(0);
  BOOST_TEST(same_bits(state_of(*a), given));  // f32, in every precision
}

BOOST_DATA_TEST_CASE(init_fills_only_tensors_not_loaded, kKinds, k) {
  emu::reset();
  SmallRun a(k), b(k, 3);
  Tensors expected;
  for (const TensorInfo& t : tensors(a.model)) {
    expected[t.name].resize(t.elements());
    init_tensor(a.model, t, 5, 0, expected[t.name]);
  }
  a->init(5);
  BOOST_TEST((a->save() == expected));
  for (std::uint32_t scope : {TH_SCOPE_MOMENT1, TH_SCOPE_MOMENT2})
    for (const auto& [name, v] : a->save(scope))
      BOOST_TEST(std::count(v.begin(), v.end(), 0.0f) == static_cast<long>(v.size()), name);
  const TensorInfo first = tensors(a.model).front();
  const std::vector<float> mine(first.elements(), 0.5f);
  b->load(first, mine);
  b->init(5);
  expected[first.name] = mine;
  BOOST_TEST((b->save() == expected));
}

BOOST_DATA_TEST_CASE(a_cancelled_step_leaves_the_state_as_it_was, kKinds, k) {
  emu::reset();
  SmallRun a(k), undisturbed(k);
  a->init(1), undisturbed->init(1);
  a.step(0), undisturbed.step(0);
  const TrainState before = state_of(*a);
  for (std::uint64_t after : {0u, 1u, 2u, 3u}) {  // before the step, and before each micro-batch
    a.host.polls = 0, a.host.cancel_after = after;
    CHECK_REFUSED(a.step(1), TH_E_CANCELLED, "stopped");
    BOOST_TEST(same_bits(state_of(*a), before), "after " << after);
  }
  a.host.cancel_after = UINT64_MAX;
  BOOST_TEST(a.step(1).loss == undisturbed.step(1).loss);
  BOOST_TEST(same_bits(state_of(*a), state_of(*undisturbed)));
}

BOOST_DATA_TEST_CASE(a_non_finite_loss_leaves_the_state_as_it_was, kKinds, k) {
  emu::reset();
  SmallRun a(k), undisturbed(k);
  a->init(1), undisturbed->init(1);
  a.step(0), undisturbed.step(0);
  const TrainState whole = state_of(*a);
  // In the last norm, in the embedding table, and in a matrix: they reach different sets of weights. The
  // operation that reads the weight is the first whose output is not finite.
  const std::tuple<const char*, float, const char*> poisons[] = {
      {"model.norm.weight", std::nanf(""), "is in hf, made by 'rms_norm final_norm' in micro-batch 1 of 3"},
      {"model.embed_tokens.weight", HUGE_VALF, "made by 'embed' in"},
      {"model.layers.1.mlp.down_proj.weight", std::nanf(""), "made by 'layers.1 linear down' in"}};
  for (const auto& [where, poison, cause] : poisons) {
    TrainState broken = whole;
    for (float& x : broken[0].at(where)) x = poison;
    load_state(*a, broken);
    const TrainState before = state_of(*a);
    CHECK_REFUSED(a.step(1), TH_E_NONFINITE, cause);
    BOOST_TEST(same_bits(state_of(*a), before), where << " of " << poison);
    BOOST_TEST(a->metric("sync_mismatch") == 0.0);
  }
  load_state(*a, whole);
  BOOST_TEST(a.step(1).loss == undisturbed.step(1).loss);
  BOOST_TEST(same_bits(state_of(*a), state_of(*undisturbed)));
}

BOOST_DATA_TEST_CASE(invalid_arguments_are_rejected_by_name_and_change_nothing,
                     boost::unit_test::data::make(kModes), mode) {
  emu::reset();
  SmallRun a({mode, "fp32", false});
  a->init(1);
  const TrainState before = state_of(*a);
  const Ids ids = SmallRun::ids(1), targets = SmallRun::targets(1);
  Ids bad = ids;
  bad[5] = kVocab;
  CHECK_REFUSED(a->step(bad, targets, 0, 0), TH_E_ARG, "token 5 is 21");
  bad = targets, bad[9] = -1;
  CHECK_REFUSED(a->step(ids, bad, 0, 0), TH_E_ARG, "target 9 is -1");
  CHECK_REFUSED(a->step(ids, Ids(ids.size(), -100), 0, 0), TH_E_ARG, "counted");
  CHECK_REFUSED(a->step(SmallRun::ids(1, 2), SmallRun::targets(1, 2), 0, 0), TH_E_ARG, "2 x 6");
  CHECK_REFUSED(a->evaluate(SmallRun::ids(1, 2), SmallRun::targets(1, 2)), TH_E_ARG, "2 x 6");
  CHECK_REFUSED(a->next(static_cast<std::int32_t>(kVocab), 0), TH_E_ARG, "vocabulary");
  CHECK_REFUSED(a->next(0, kSeq), TH_E_ARG, "position 6");
  TensorInfo t = tensors(a.model).front();
  const std::vector<float> values(t.elements());
  t.name = "model.embed_token.weight";
  CHECK_REFUSED(a->load(t, values), TH_E_ARG, "model.embed_token.weight");
  t = tensors(a.model).front(), t.dim[1] += 1;
  CHECK_REFUSED(a->load(t, values), TH_E_ARG, "shape");
  CHECK_REFUSED(a->metric("speed_of_light"), TH_E_UNSUPPORTED, "speed_of_light");
  BOOST_TEST(same_bits(state_of(*a), before));
}

BOOST_DATA_TEST_CASE(an_inference_run_evaluates_and_generates_but_rejects_updates, kKinds, k) {
  emu::reset();
  SmallRun training(k);
  RunSpec r = training.run;
  r.mode = RunMode::kInference;
  CudaHost host(k.mode);
  PluginSession s(cuda_engine(), host, training.model, r);
  s.init(1), training->init(1);
  BOOST_TEST(s.evaluate(SmallRun::ids(1, 1), SmallRun::targets(1, 1)).loss ==
             training->evaluate(SmallRun::ids(1, 1), SmallRun::targets(1, 1)).loss);
  for (std::uint32_t p = 0; p < 3; ++p) BOOST_TEST((s.next(3, p) == training->next(3, p)));
  CHECK_REFUSED(s.step(SmallRun::ids(1), SmallRun::targets(1), 0, 0), TH_E_STATE, "no update");
}

// ---- profiling

struct Record {
  std::string name;
  std::uint32_t micro, phase;
  std::uint64_t start, ns;
};

struct Profiled {
  explicit Profiled(SmallRun& run) : run_(run) {
    const step::Program p =
        step::build_program(run.model, run.run, cuda::choose(run.model, run.run, run.host.mode, 2).traits);
    bytes_ = abi::record_bytes(p);
    memory_.assign(bytes_ / 8 + 9, 0xABABABABABABABAB);
    sink_.struct_size = sizeof sink_, sink_.self = this;
    sink_.reached = [](th_moments* s, std::uint32_t moment, std::uint32_t, std::uint64_t) {
      static_cast<Profiled*>(s->self)->moments.push_back(moment);
    };
    th_error e = empty_error();
    check(profiler().start(run->handle(), memory_.data(), bytes_, &sink_, &e), e);
  }
  static const th_profiler& profiler() { return *trainhost_cuda_engine()->profiler; }
  std::vector<Record> read() {
    std::vector<Record> out;
    th_op_sink s{};
    s.struct_size = sizeof s, s.self = &out;
    s.op = [](th_op_sink* to, const th_op_record* o) -> th_status {
      static_cast<std::vector<Record>*>(to->self)->push_back(
          {o->name, o->micro, o->phase, o->start_ns, o->duration_ns});
      return TH_OK;
    };
    th_error e = empty_error();
    check(profiler().read(run_->handle(), &s, &e), e);
    return out;
  }
  bool stays_inside() const {
    for (std::size_t i = (bytes_ + 7) / 8; i < memory_.size(); ++i)
      if (memory_[i] != 0xABABABABABABABAB) return false;
    return true;
  }
  std::vector<std::uint32_t> moments;

 private:
  SmallRun& run_;
  std::uint64_t bytes_ = 0;
  std::vector<std::uint64_t> memory_;
  th_moments sink_{};
};

BOOST_AUTO_TEST_CASE(the_profiler_records_every_operation_of_the_resident_mode_in_order) {
  emu::reset();
  SmallRun a({"resident", "fp32", false});
  a->init(1);
  Profiled profiled(a);
  a.step(0);
  const std::vector<Record> records = profiled.read();
  const step::Program p =
      step::build_program(a.model, a.run, cuda::choose(a.model, a.run, "resident", 2).traits);
  const step::Section micro = p.section(step::SectionKind::kMicro);
  const std::size_t per_micro = micro.end - micro.begin;
  BOOST_TEST_REQUIRE(records.size() == 3 * per_micro + 2);  // one record for the norm, one for the weights
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    BOOST_TEST(records[i].start >= end, "records overlap");
    end = records[i].start + records[i].ns;
    if (i >= 3 * per_micro) continue;
    const step::Op& op = p.ops[micro.begin + i % per_micro];
    BOOST_TEST(records[i].name == step::op_label(p, op));
    BOOST_TEST(records[i].micro == i / per_micro);
    BOOST_TEST(records[i].phase == op.phase);
  }
  const std::vector<std::uint32_t> moments = {TH_BEFORE_FORWARD, TH_AFTER_FORWARD,  TH_BEFORE_FORWARD,
                                              TH_AFTER_FORWARD,  TH_BEFORE_FORWARD, TH_AFTER_FORWARD,
                                              TH_AFTER_BACKWARD, TH_AFTER_UPDATE};
  BOOST_TEST((profiled.moments == moments));
}

BOOST_DATA_TEST_CASE(profiling_changes_no_bit_and_stays_in_its_records, kKinds, k) {
  emu::reset();
  SmallRun a(k), plain(k);
  a->init(1), plain->init(1);
  Profiled profiled(a);
  for (unsigned t = 0; t < 2; ++t) BOOST_TEST(a.step(t).loss == plain.step(t).loss);
  BOOST_TEST(!profiled.read().empty());
  BOOST_TEST(profiled.stays_inside());
  Profiled::profiler().stop(a->handle());
  BOOST_CHECK_THROW(profiled.read(), StatusFailure);
  BOOST_TEST(a.step(2).loss == plain.step(2).loss);
  BOOST_TEST(same_bits(state_of(*a), state_of(*plain)));
}

BOOST_AUTO_TEST_CASE(measuring_peak_flops_does_not_change_the_state) {
  emu::reset();
  const Kind k = {"resident", "fp32", true};
  ModelSpec m = small_model("llama", kVocab, 8, 1, 1, 1, 8,
                            60000);  // activations large enough for a product of 512 x 512 x 512
  m.tied = true;
  const RunSpec r = SmallRun(k).run;
  CudaHost hosts[2] = {CudaHost(k.mode), CudaHost(k.mode)};
  PluginSession a(cuda_engine(), hosts[0], m, r), undisturbed(cuda_engine(), hosts[1], m, r);
  a.init(3), undisturbed.init(3);
  for (unsigned t = 0; t < 2; ++t) {
    BOOST_TEST(a.step(SmallRun::ids(t), SmallRun::targets(t), 1e-2, t).loss ==
               undisturbed.step(SmallRun::ids(t), SmallRun::targets(t), 1e-2, t).loss);
    BOOST_TEST(a.metric("peak_flops") > 1e6);
  }
  BOOST_TEST(same_bits(state_of(a), state_of(undisturbed)));
  CHECK_REFUSED(SmallRun(k)->metric("peak_flops"), TH_E_UNSUPPORTED, "free memory");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
