// The CPU plugin as built, through its C tables: descriptor, plan, traits, loading of the engine, state, and
// every error.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/plugin_session.hpp"
#include "tests/support/small_models.hpp"

namespace trainhost {
namespace {

using namespace test;
using Tokens = std::vector<std::int32_t>;

const std::string kPluginDir = TRAINHOST_BINARY_DIR "/lib/trainhost/plugins",
                  kEngineDir = TRAINHOST_BINARY_DIR "/lib/trainhost/engines";

ModelSpec tiny() {
  ModelSpec m = small_model("llama", 37, 24, 2, 3, 1, 8, 40);
  m.tied = true, m.initializer_range = 0.1;
  return m;
}
RunSpec tiny_run() {
  RunSpec r;
  r.seq_len = 16, r.micro_batch = 2, r.accumulate = 2;
  return r;
}
struct Batch {
  Tokens ids, targets;
};
Batch batch(unsigned seed, std::size_t sequences = 4) {
  return {random_tokens(sequences * 16, 37, seed), random_tokens(sequences * 16, 37, seed + 1)};
}

BOOST_AUTO_TEST_SUITE(cpu_plugin_table)

BOOST_AUTO_TEST_CASE(descriptor_and_tables_are_complete) {
  BOOST_TEST(std::string(cpu_plugin().descriptor->id) == "cpu");
  BOOST_TEST(cpu_plugin().descriptor->abi_major == TH_ABI_MAJOR);
  BOOST_REQUIRE(cpu_plugin().trainer);
  BOOST_REQUIRE(cpu_plugin().generate);
  BOOST_TEST(!cpu_plugin().descriptor->get("trainhost.trainer/99"));
  const th_trainer& t = *cpu_plugin().trainer;
  BOOST_TEST((t.probe && t.profile && t.plan && t.create && t.load && t.init && t.step && t.save &&
              t.counters && t.info && t.metric && t.destroy));
}

BOOST_AUTO_TEST_CASE(probe_finds_one_device) {
  CountingHost host;
  std::uint32_t devices = 0;
  th_error e = empty_error();
  check(cpu_plugin().trainer->probe(&host, &devices, &e), e);
  BOOST_TEST(devices == 1u);
}

BOOST_AUTO_TEST_CASE(the_arena_equals_the_plan_and_is_freed) {
  for (Recompute r : {Recompute::kNone, Recompute::kSelective, Recompute::kFull, Recompute::kLayers}) {
    CountingHost host(3);
    RunSpec run = tiny_run();
    run.recompute = r, run.recompute_layers = {1, 0, 1};
    const MemoryReport plan = cpu_plugin().plan(host, tiny(), run);
    BOOST_TEST(host.peak == 0u, "planning allocates");
    {
      PluginSession s(cpu_plugin(), host, tiny(), run);
      s.init(1);
      const Batch b = batch(1);
      s.step(b.ids, b.targets, 1e-3, 0);
      s.evaluate(batch(3, 1).ids, batch(3, 1).targets);
      s.next(1, 0);
      BOOST_TEST(host.blocks.size() == 1u);
      BOOST_TEST(host.peak == plan.total_bytes());
      BOOST_TEST(host.peak == plan.tier_bytes(Tier::kHost));
    }
    BOOST_TEST(host.now == 0u);
  }
}

BOOST_AUTO_TEST_CASE(the_profile_has_the_traits_of_the_plan) {
  CountingHost host(5);
  const ModelSpec m = tiny();
  const RunSpec r = tiny_run();
  const th_profile p = cpu_plugin().profile(host, m, r);
  BOOST_TEST(p.threads == 5u);
  BOOST_TEST(p.alignment == 64u);
  BOOST_TEST(p.tier == TH_TIER_HOST);
  BOOST_TEST(std::string(p.trainer) == "cpu");
  BOOST_TEST(p.head_chunk_tokens == 32u);
}

BOOST_AUTO_TEST_CASE(a_save_and_a_load_resume_with_the_same_bits) {
  CountingHost host;
  PluginSession a(cpu_plugin(), host, tiny(), tiny_run());
  a.init(7);
  for (unsigned t = 0; t < 3; ++t) a.step(batch(t).ids, batch(t).targets, 1e-2, t);
  PluginSession b(cpu_plugin(), host, tiny(), tiny_run());
  b.load_all(a.save());
  b.load_all(a.save(TH_SCOPE_MOMENT1), TH_SCOPE_MOMENT1);
  b.load_all(a.save(TH_SCOPE_MOMENT2), TH_SCOPE_MOMENT2);
  b.init(99);  // all tensors were loaded, so this changes nothing
  for (unsigned t = 3; t < 6; ++t) {
    const th_step_out x = a.step(batch(t).ids, batch(t).targets, 1e-2, t),
                      y = b.step(batch(t).ids, batch(t).targets, 1e-2, t);
    BOOST_TEST(x.loss == y.loss);
    BOOST_TEST(x.grad_norm == y.grad_norm);
  }
  BOOST_TEST((a.save() == b.save()));
}

BOOST_AUTO_TEST_CASE(init_depends_only_on_the_seed_and_fills_tensors_not_loaded) {
  CountingHost two(2), four(4);
  PluginSession a(cpu_plugin(), two, tiny(), tiny_run()), b(cpu_plugin(), four, tiny(), tiny_run()),
      c(cpu_plugin(), two, tiny(), tiny_run());
  const TensorInfo first = tensors(tiny()).front();
  const std::vector<float> mine(first.elements(), 0.5f);
  a.init(5), b.init(5);
  c.load(first, mine);
  c.init(5);
  Tensors wa = a.save(), wc = c.save();
  BOOST_TEST((wa == b.save()));
  BOOST_TEST((wc.at(first.name) == mine));
  wa.erase(first.name), wc.erase(first.name);
  BOOST_TEST((wa == wc));
}

BOOST_AUTO_TEST_CASE(tensors_come_in_the_order_of_the_checkpoint) {
  CountingHost host;
  PluginSession s(cpu_plugin(), host, tiny(), tiny_run());
  s.init(1);
  std::vector<std::string> names;
  th_tensor_sink sink{};
  sink.struct_size = sizeof sink, sink.self = &names;
  sink.tensor = [](th_tensor_sink* k, const th_tensor* t) -> th_status {
    return static_cast<std::vector<std::string>*>(k->self)->push_back(t->name), TH_OK;
  };
  th_error e = empty_error();
  check(cpu_plugin().trainer->save(s.handle(), TH_SCOPE_WEIGHTS, &sink, &e), e);
  std::vector<std::string> expected;
  for (const TensorInfo& t : tensors(tiny())) expected.push_back(t.name);
  BOOST_TEST((names == expected));
}

BOOST_AUTO_TEST_CASE(moments_that_an_optimizer_lacks_are_not_saved_and_not_loaded) {
  CountingHost host;
  RunSpec r = tiny_run();
  r.optimizer = Optimizer::kSgd;
  PluginSession s(cpu_plugin(), host, tiny(), r);
  s.init(1);
  BOOST_TEST(s.save(TH_SCOPE_MOMENT1).empty());
  const TensorInfo t = tensors(tiny()).front();
  CHECK_REFUSED(s.load(t, std::vector<float>(t.elements()), TH_SCOPE_MOMENT1), TH_E_ARG,
                "no such optimizer state");
}

BOOST_AUTO_TEST_CASE(a_non_finite_loss_leaves_the_state_as_it_was) {
  CountingHost host;
  PluginSession s(cpu_plugin(), host, tiny(), tiny_run());
  s.init(1);
  s.step(batch(1).ids, batch(1).targets, 1e-2, 0);
  Tensors w = s.save();
  const Tensors m = s.save(TH_SCOPE_MOMENT1);
  Tensors broken = w;
  broken.at("model.norm.weight")[3] = std::nanf("");
  s.load_all(broken);
  const Tensors before = s.save();
  CHECK_REFUSED(s.step(batch(2).ids, batch(2).targets, 1e-2, 1), TH_E_NONFINITE,
                "not applied; the first value that is not finite is in hf, made by 'rms_norm final_norm' in "
                "micro-batch 1 of ");
  for (const auto& [name, v] : s.save())
    for (std::size_t i = 0; i < v.size(); ++i)
      BOOST_TEST((v[i] == before.at(name)[i] || (std::isnan(v[i]) && std::isnan(before.at(name)[i]))));
  BOOST_TEST((s.save(TH_SCOPE_MOMENT1) == m));
  s.load_all(w);
  BOOST_TEST(std::isfinite(s.step(batch(2).ids, batch(2).targets, 1e-2, 1).loss));
}

BOOST_AUTO_TEST_CASE(a_cancelled_step_leaves_the_state_as_it_was) {
  CountingHost host;
  PluginSession s(cpu_plugin(), host, tiny(), tiny_run()),
      undisturbed(cpu_plugin(), host, tiny(), tiny_run());
  s.init(1), undisturbed.init(1);
  const Tensors before = s.save();
  for (std::uint64_t after : {0u, 1u, 10u, 40u}) {
    host.polls = 0, host.cancel_after = after;
    CHECK_REFUSED(s.step(batch(2).ids, batch(2).targets, 1e-2, 0), TH_E_CANCELLED, "stopped");
    BOOST_TEST((s.save() == before));
  }
  host.cancel_after = UINT64_MAX;
  BOOST_TEST(s.step(batch(2).ids, batch(2).targets, 1e-2, 0).loss ==
             undisturbed.step(batch(2).ids, batch(2).targets, 1e-2, 0).loss);
  BOOST_TEST((s.save() == undisturbed.save()));
}

BOOST_AUTO_TEST_CASE(targets_of_minus_100_are_not_counted) {
  CountingHost host;
  PluginSession s(cpu_plugin(), host, tiny(), tiny_run());
  s.init(1);
  Batch b = batch(1);
  for (std::size_t i = 0; i < b.targets.size(); i += 2) b.targets[i] = -100;
  BOOST_TEST(s.step(b.ids, b.targets, 0.0, 0).tokens_counted == b.targets.size() / 2);
  std::fill(b.targets.begin(), b.targets.end(), -100);
  CHECK_REFUSED(s.step(b.ids, b.targets, 0.0, 0), TH_E_ARG, "counted");
  b.ids.resize(16), b.targets.resize(16);
  BOOST_TEST(s.evaluate(b.ids, b.targets).tokens_counted == 0u);
}

BOOST_AUTO_TEST_CASE(invalid_arguments_are_rejected_by_name) {
  CountingHost host;
  PluginSession s(cpu_plugin(), host, tiny(), tiny_run());
  s.init(1);
  Batch b = batch(1), bad = b;
  bad.ids[5] = 37;
  CHECK_REFUSED(s.step(bad.ids, bad.targets, 0, 0), TH_E_ARG, "token 5 is 37");
  bad = b, bad.targets[9] = -1;
  CHECK_REFUSED(s.step(bad.ids, bad.targets, 0, 0), TH_E_ARG, "target 9 is -1");
  CHECK_REFUSED(s.step(batch(1, 3).ids, batch(1, 3).targets, 0, 0), TH_E_ARG, "3 x 16");
  CHECK_REFUSED(s.evaluate(batch(1, 3).ids, batch(1, 3).targets), TH_E_ARG, "3 x 16");
  CHECK_REFUSED(s.next(37, 0), TH_E_ARG, "vocabulary");
  CHECK_REFUSED(s.next(0, 16), TH_E_ARG, "position 16");
  TensorInfo t = tensors(tiny()).front();
  const std::vector<float> values(t.elements());
  t.name = "model.embed_token.weight";
  CHECK_REFUSED(s.load(t, values), TH_E_ARG, "model.embed_token.weight");
  t = tensors(tiny()).front(), t.dim[1] += 1;
  CHECK_REFUSED(s.load(t, values), TH_E_ARG, "shape");
  CHECK_REFUSED(s.metric("speed_of_light"), TH_E_UNSUPPORTED, "speed_of_light");
}

BOOST_AUTO_TEST_CASE(unsupported_runs_are_reported_as_unsupported) {
  CountingHost host;
  RunSpec r = tiny_run();
  r.compute = DType::kBF16;
  CHECK_REFUSED(cpu_plugin().plan(host, tiny(), r), TH_E_UNSUPPORTED, "fp32");
  CHECK_REFUSED(PluginSession(cpu_plugin(), host, tiny(), r), TH_E_UNSUPPORTED, "fp32");
  r = tiny_run(), r.mode = RunMode::kLora;
  CHECK_REFUSED(cpu_plugin().plan(host, tiny(), r), TH_E_UNSUPPORTED, "lora");
  ModelSpec m = tiny();
  m.family = "mamba";
  CHECK_REFUSED(cpu_plugin().plan(host, m, tiny_run()), TH_E_UNSUPPORTED, "mamba");
}

BOOST_AUTO_TEST_CASE(out_of_memory_reports_the_missing_bytes) {
  CountingHost host;
  host.limit = 1000;
  const ModelSpec m = tiny();
  const RunSpec r = tiny_run();
  th_model cm = abi::to_c(m);
  th_run cr = abi::to_c(r);
  th_trainer_inst* instance = nullptr;
  th_error e = empty_error();
  BOOST_TEST(cpu_plugin().trainer->create(&host, 0, &cm, &cr, &instance, &e) == TH_E_HOST_OOM);
  BOOST_TEST(e.bytes_needed > 1000u);
  BOOST_TEST(host.now == 0u);
}

BOOST_AUTO_TEST_CASE(info_and_metric_answer_by_key) {
  CountingHost host;
  PluginSession s(cpu_plugin(), host, tiny(), tiny_run());
  BOOST_TEST_MESSAGE(s.info("kernel_set"));
  BOOST_TEST(s.info("kernel_set").find("OpenBLAS") != std::string::npos);
  BOOST_TEST(s.info("kernel_set").find(" products") != std::string::npos);  // on which bits depend
  BOOST_TEST(s.info("shoe_size").empty());
  BOOST_TEST(s.metric("peak_flops") > 1e8);
  th_counters c{};
  c.struct_size = sizeof c;
  th_error e = empty_error();
  check(cpu_plugin().trainer->counters(s.handle(), &c, &e), e);
  BOOST_TEST((c.h2d_bytes == 0 && c.d2h_bytes == 0 && c.sync_count == 0));
}

BOOST_AUTO_TEST_CASE(an_inference_run_evaluates_and_generates_but_rejects_updates) {
  CountingHost host;
  RunSpec r = tiny_run(), training = tiny_run();
  r.mode = RunMode::kInference;
  PluginSession s(cpu_plugin(), host, tiny(), r);
  s.init(1);
  BOOST_TEST(host.now == cpu_plugin().plan(host, tiny(), r).total_bytes());
  BOOST_TEST(host.now < cpu_plugin().plan(host, tiny(), training).total_bytes());
  BOOST_TEST(std::isfinite(s.evaluate(batch(1, 2).ids, batch(1, 2).targets).loss));
  BOOST_TEST(std::isfinite(s.next(1, 0)[0]));
  CHECK_REFUSED(s.step(batch(1).ids, batch(1).targets, 0, 0), TH_E_STATE, "no update");
}

BOOST_AUTO_TEST_CASE(the_environment_is_unchanged) {
  const char* core = std::getenv("OPENBLAS_CORETYPE");
  const std::string before = core ? core : "(unset)";
  CountingHost host;
  std::uint32_t devices = 0;
  th_error e = empty_error();
  cpu_plugin().trainer->probe(&host, &devices, &e);
  core = std::getenv("OPENBLAS_CORETYPE");
  BOOST_TEST((core ? core : "(unset)") == before);
}

BOOST_AUTO_TEST_CASE(a_missing_or_foreign_engine_is_unavailable_with_the_reason) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("trainhost-cpu-" + std::to_string(getpid()));
  auto probe_copy = [&](const char* dir, auto&& make_engine) {
    const fs::path at = root / dir;
    fs::create_directories(at / "plugins"), fs::create_directories(at / "engines");
    fs::copy_file(kPluginDir + "/cpu.so", at / "plugins" / "cpu.so");
    make_engine(at / "engines" / "cpu-openblas.so");
    const Plugin copy((at / "plugins" / "cpu.so").string());
    CountingHost host;
    std::uint32_t devices = 0;
    th_error e = empty_error();
    const th_status s = copy.trainer->probe(&host, &devices, &e);
    const MemoryReport plan = copy.plan(host, tiny(), tiny_run());  // needs no engine
    BOOST_TEST(plan.total_bytes() > 0u);
    BOOST_TEST(refusal([&] { PluginSession(copy, host, tiny(), tiny_run()); }).first == s);
    return std::pair<th_status, std::string>(s, e.message);
  };
  auto [missing, why] = probe_copy("missing", [](const fs::path&) {});
  BOOST_TEST(missing == TH_E_UNAVAILABLE);
  BOOST_TEST(why.find("missing") != std::string::npos, why);
  auto [garbage, why2] =
      probe_copy("garbage", [](const fs::path& p) { std::ofstream(p) << "not a library"; });
  BOOST_TEST(garbage == TH_E_UNAVAILABLE);
  BOOST_TEST(why2.find("cpu-openblas.so") != std::string::npos, why2);
  auto [foreign, why3] =
      probe_copy("foreign", [](const fs::path& p) { fs::copy_file(kPluginDir + "/cpu.so", p); });
  BOOST_TEST(foreign == TH_E_UNAVAILABLE);
  BOOST_TEST(why3.find("does not belong to this build") != std::string::npos, why3);
  auto [good, why4] =
      probe_copy("good", [](const fs::path& p) { fs::copy_file(kEngineDir + "/cpu-openblas.so", p); });
  BOOST_TEST(good == TH_OK, why4);
  fs::remove_all(root);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
