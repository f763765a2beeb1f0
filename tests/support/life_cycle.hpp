// The life-cycle tags of the interface against a trainer's tables: every function of an instance in every
// state, with good arguments, null ones and structs that end early. For trainers of this repository and those
// of the tests.
#pragma once
#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/plugin_session.hpp"
#include "trainhost/profiler.h"

namespace trainhost::test {

struct LifeCycle {
  const th_trainer& trainer;
  const th_generate& generate;
  const th_profiler& profiler;
  const CountingHost& host;
  ModelSpec model;
  RunSpec run;

  enum State { kCreated, kReady, kStepped, kLost };
  static const char* name(State s) {
    return s == kCreated ? "created" : s == kReady ? "ready" : s == kStepped ? "stepped" : "lost";
  }

  /// One instance, brought into a state.
  struct Instance {
    explicit Instance(const LifeCycle& life) : of(life) {
      th_model m = abi::to_c(of.model);
      th_run r = abi::to_c(of.run);
      th_error e = empty_error();
      check(of.trainer.create(&of.host, 0, &m, &r, &raw, &e), e);
      std::uint64_t bytes = 1 << 20;  // an engine leaves the question to its front
      if (of.profiler.record_bytes) check(of.profiler.record_bytes(&of.host, &m, &r, &bytes, &e), e);
      records.resize(bytes / sizeof(Line) + 1);
      const std::uint32_t sequences = of.run.micro_batch * of.run.accumulate;
      ids.assign(std::uint64_t{sequences} * of.run.seq_len, 1);
      step.struct_size = sizeof step, step.batch = sequences, step.seq = of.run.seq_len, step.lr = 1e-3;
      step.tokens = step.targets = ids.data();
      evaluate = step, evaluate.flags = TH_STEP_EVALUATE, evaluate.batch = 1;
      out.struct_size = sizeof out, counters.struct_size = sizeof counters;
      logits.resize(of.model.vocab);
      first = tensors(of.model)[0];
      values.assign(first.elements(), 0.01f);
      tensor.struct_size = sizeof tensor, tensor.dtype = TH_DT_F32, tensor.rank = first.rank,
      tensor.name = first.name.c_str();
      tensor.dim[0] = first.dim[0], tensor.dim[1] = first.rank == 2 ? first.dim[1] : 0;
      tensor.data = values.data(), tensor.count = values.size();
      keep.struct_size = reject.struct_size = sizeof keep;
      keep.tensor = [](th_tensor_sink*, const th_tensor*) -> th_status { return TH_OK; };
      reject.tensor = [](th_tensor_sink*, const th_tensor*) -> th_status { return TH_E_INTERNAL; };
      ops.struct_size = sizeof ops;
      ops.op = [](th_op_sink*, const th_op_record*) -> th_status { return TH_OK; };
    }
    ~Instance() { of.trainer.destroy(raw); }
    Instance(const Instance&) = delete;

    /// start() of the profiler comes with it: read() needs both.
    void bring_to(State s) {
      th_error e = empty_error();
      check(of.profiler.start(raw, records.data(), records.size() * sizeof(Line), nullptr, &e), e);
      if (s == kCreated) return;
      check(of.trainer.init(raw, 1, &e), e);
      if (s == kStepped) check(of.trainer.step(raw, &step, &out, &e), e);
      if (s == kLost) BOOST_TEST(of.trainer.save(raw, TH_SCOPE_WEIGHTS, &reject, &e) == TH_E_INTERNAL);
    }

    struct alignas(64) Line {
      char bytes[64];
    };
    const LifeCycle& of;
    th_trainer_inst* raw = nullptr;
    std::vector<Line> records;
    std::vector<std::int32_t> ids;
    std::vector<float> logits, values;
    TensorInfo first;
    th_step step{}, evaluate{};
    th_step_out out{};
    th_counters counters{};
    th_tensor tensor{};
    th_tensor_sink keep{}, reject{};
    th_op_sink ops{};
    double figure = 0;
  };

  /// A function of an instance and the states that its tag allows, besides those of lost.
  struct Call {
    const char* what;
    bool created, ready, stepped;
    std::function<th_status(Instance&, th_trainer_inst*, th_error*)> make;
  };
  std::vector<Call> calls() const {
    const th_trainer& t = trainer;
    const th_generate& g = generate;
    const th_profiler& p = profiler;
    return {
        {"load", true, true, true,
         [&t](Instance& i, auto* raw, auto* e) { return t.load(raw, TH_SCOPE_WEIGHTS, &i.tensor, e); }},
        {"init", true, false, false, [&t](Instance&, auto* raw, auto* e) { return t.init(raw, 1, e); }},
        {"step", false, true, true,
         [&t](Instance& i, auto* raw, auto* e) { return t.step(raw, &i.step, &i.out, e); }},
        {"evaluate", false, true, true,
         [&t](Instance& i, auto* raw, auto* e) { return t.step(raw, &i.evaluate, &i.out, e); }},
        {"save", false, true, true,
         [&t](Instance& i, auto* raw, auto* e) { return t.save(raw, TH_SCOPE_WEIGHTS, &i.keep, e); }},
        {"counters", true, true, true,
         [&t](Instance& i, auto* raw, auto* e) { return t.counters(raw, &i.counters, e); }},
        {"metric", true, true, true,
         [&t](Instance& i, auto* raw, auto* e) {
           const th_status s = t.metric(raw, "no such figure", &i.figure, e);
           return s == TH_E_UNSUPPORTED || s == TH_E_ABSENT ? TH_OK : s;
         }},
        {"next", false, true, true,
         [&g](Instance& i, auto* raw, auto* e) { return g.next(raw, 1, 0, i.logits.data(), e); }},
        {"read of the profiler", false, false, true,
         [&p](Instance& i, auto* raw, auto* e) { return p.read(raw, &i.ops, e); }},
        {"start of the profiler", true, true, true,
         [&p](Instance& i, auto* raw, auto* e) {
           return p.start(raw, i.records.data(), i.records.size() * sizeof(Instance::Line), nullptr, e);
         }},
    };
  }

  /// Each call in each state: its own code where the tag allows it, TH_E_STATE with a sentence elsewhere, and
  /// the state stays.
  void every_call_in_every_state() const {
    for (State s : {kCreated, kReady, kStepped, kLost})
      for (const Call& c : calls()) {
        Instance i(*this);
        i.bring_to(s);
        th_error e = empty_error();
        const bool allowed =
            (s == kCreated && c.created) || (s == kReady && c.ready) || (s == kStepped && c.stepped);
        BOOST_TEST(c.make(i, i.raw, &e) == (allowed ? TH_OK : TH_E_STATE),
                   c.what << " in " << name(s) << ": " << e.message);
        if (allowed) continue;
        BOOST_TEST(std::string(e.message) != "", c.what << " in " << name(s) << " gives no reason");
        BOOST_TEST(c.make(i, i.raw, nullptr) == TH_E_STATE, c.what << " in " << name(s) << ", a second time");
        if (s == kCreated)
          BOOST_TEST(trainer.init(i.raw, 1, &e) == TH_OK, c.what << " changed a created instance");
        if (s == kLost) BOOST_TEST(trainer.info(i.raw, "kernel_set") == nullptr);
        profiler.stop(i.raw);
      }
  }

  /// Null pointers are TH_E_ARG with a sentence, with and without an instance; the instance goes on as
  /// before.
  void null_arguments_are_rejected() const {
    Instance i(*this);
    i.bring_to(kStepped);
    th_error e = empty_error();
    for (const Call& c : calls()) {
      BOOST_TEST(c.make(i, nullptr, &e) == TH_E_ARG, c.what << " of a null instance");
      BOOST_TEST(c.make(i, nullptr, nullptr) == TH_E_ARG, c.what << " of a null instance, with a null error");
    }
    BOOST_TEST(trainer.info(nullptr, "kernel_set") == nullptr);
    BOOST_TEST(trainer.info(i.raw, nullptr) == nullptr);
    trainer.destroy(nullptr);
    profiler.stop(nullptr);
    th_model m = abi::to_c(model);
    th_run r = abi::to_c(run);
    th_trainer_inst* other = nullptr;
    double figure = 0;
    const std::vector<std::pair<const char*, th_status>> codes = {
        {"create without a host", trainer.create(nullptr, 0, &m, &r, &other, &e)},
        {"create without a model", trainer.create(&host, 0, nullptr, &r, &other, &e)},
        {"create without a place", trainer.create(&host, 0, &m, &r, nullptr, &e)},
        {"load", trainer.load(i.raw, TH_SCOPE_WEIGHTS, nullptr, &e)},
        {"step", trainer.step(i.raw, nullptr, &i.out, &e)},
        {"step without a result", trainer.step(i.raw, &i.step, nullptr, &e)},
        {"save", trainer.save(i.raw, TH_SCOPE_WEIGHTS, nullptr, &e)},
        {"counters", trainer.counters(i.raw, nullptr, &e)},
        {"metric", trainer.metric(i.raw, nullptr, &figure, &e)},
        {"metric without a place", trainer.metric(i.raw, "peak_flops", nullptr, &e)},
        {"next", generate.next(i.raw, 1, 0, nullptr, &e)},
        {"start of the profiler", profiler.start(i.raw, nullptr, 1 << 20, nullptr, &e)},
        {"read of the profiler", profiler.read(i.raw, nullptr, &e)},
    };
    for (const auto& [what, code] : codes) BOOST_TEST(code == TH_E_ARG, what);
    if (trainer.probe) {
      std::uint32_t devices = 0;
      BOOST_TEST(trainer.probe(nullptr, &devices, &e) == TH_E_ARG);
      BOOST_TEST(trainer.probe(&host, nullptr, &e) == TH_E_ARG);
    }
    BOOST_TEST(trainer.step(i.raw, &i.step, &i.out, nullptr) == TH_OK);
  }

  /// Structs that end before their last fields are read, and written, as far as they go.
  void short_structs_are_read_up_to_their_size() const {
    Instance i(*this);
    i.bring_to(kReady);
    th_error e = empty_error();
    for (std::uint32_t size : {4u, 8u, 20u}) {
      i.step.struct_size = i.tensor.struct_size = size;
      BOOST_TEST(trainer.step(i.raw, &i.step, &i.out, &e) == TH_E_ARG, size);
      BOOST_TEST(trainer.load(i.raw, TH_SCOPE_WEIGHTS, &i.tensor, &e) == TH_E_ARG, size);
    }
    i.step.struct_size = sizeof i.step;
    i.out.struct_size = offsetof(th_step_out, grad_norm), i.out.grad_norm = -7;
    BOOST_TEST(trainer.step(i.raw, &i.step, &i.out, &e) == TH_OK);
    BOOST_TEST((i.out.loss > 0 && i.out.grad_norm == -7));
    i.counters.struct_size = 8, i.counters.h2d_bytes = 77, i.counters.compute_ns = 77;
    BOOST_TEST(trainer.counters(i.raw, &i.counters, &e) == TH_OK);
    BOOST_TEST((i.counters.h2d_bytes == 77u && i.counters.compute_ns == 77u));
  }
};

}  // namespace trainhost::test
