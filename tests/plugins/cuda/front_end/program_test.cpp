// The program with the cuda backend on simulated machines: the list of plugins, fallback to another backend
// with its reason, and the memory budgets of a plan.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/process.hpp"

using namespace trainhost::test;
using nlohmann::json;

namespace {

const std::string kStage = CUDA_STAGE;

/// A machine without NVIDIA driver.
RunOptions without_driver() {
  RunOptions o;
  o.environment = {{"TRAINHOST_CUDA_DRIVER", "libno-such-driver.so.1"},
                   {"TRAINHOST_CUDA_NVML", "libno-nvml.so"}};
  return o;
}

/// A machine with one fake device.
RunOptions with_fake_device(std::map<std::string, std::string> more = {}) {
  RunOptions o;
  o.environment = {{"TRAINHOST_CUDA_DRIVER", kStage + "/libfakedriver.so"},
                   {"TRAINHOST_CUDA_NVML", kStage + "/libfakenvml.so"},
                   {"TRAINHOST_NCCL", "libno-nccl.so"}};
  o.environment.merge(more);
  return o;
}

/// The arguments with the plugin path of a front end that has a fake engine, instead of the installed plugin.
std::vector<std::string> with_front_end(const std::string& front, std::vector<std::string> words) {
  words.insert(words.end(), {"--plugin-path", kStage + "/" + front + "/plugins"});
  return words;
}

std::vector<std::string> small(const std::string& command, std::vector<std::string> more = {}) {
  std::vector<std::string> w = {command, "--json", "--set", "train.steps=2"};
  const std::vector<std::string> model = small_model_options();
  w.insert(w.end(), model.begin(), model.end());
  w.insert(w.end(), more.begin(), more.end());
  return w;
}

json plan_of(const Outcome& r) {
  BOOST_REQUIRE_MESSAGE(r.code == 0 || r.code == 3, r.err);
  return json::parse(r.out);
}

const std::string kNoDriver =
    "no NVIDIA driver found: libno-such-driver.so.1: cannot open shared object file: No such "
    "file or directory";

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_program)

BOOST_AUTO_TEST_CASE(the_plugin_is_listed_as_unavailable_with_its_reason) {
  Outcome r = run_program(with_front_end("good", {"plugins", "list", "--json"}), without_driver());
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  bool seen = false;
  const json list = json::parse(r.out);
  for (const json& p : list["plugins"]) {
    if (p["name"] != "cuda" || p["status"] == "rejected")
      continue;  // the installed plugin is listed second, as rejected
    seen = true;
    BOOST_TEST(p["status"] == "unavailable");
    BOOST_TEST(p["reason"] == kNoDriver);
    BOOST_TEST(p["kind"] == "trainer");
    BOOST_TEST(p["options"] == json({"mode", "device", "attention", "products", "multiprocessors"}));
    BOOST_TEST(p["families"].size() == 4u);
  }
  BOOST_TEST(seen);
  r = run_program({"plugins", "list"},
                  without_driver());  // the installed plugin, built with or without the toolkit
  BOOST_TEST(has(r.out, "unavailable"), r.out);
}

BOOST_AUTO_TEST_CASE(the_list_names_the_device_with_its_uuid_and_the_engine) {
  const std::string text =
      "device 0 of 1: Fake H200, GPU-64656667-6869-6a6b-6c6d-6e6f70717273; engine cuda-cublas-13.so; several "
      "ranks "
      "need NCCL: libno-nccl.so: cannot open shared object file: No such file or directory";
  Outcome r = run_program(with_front_end("good", {"plugins", "list", "-v"}), with_fake_device());
  BOOST_TEST(has(r.out, "/good/plugins/cuda.so  ok; " + text + "\n"), r.out);
  r = run_program(with_front_end("good", {"plugins", "list", "--json"}), with_fake_device());
  bool seen = false;
  const json list = json::parse(r.out);
  for (const json& p : list["plugins"])
    seen = seen || (p["name"] == "cuda" && p["status"] == "ok" && p["notes"] == json({text}));
  BOOST_TEST(seen, r.out);
}

BOOST_AUTO_TEST_CASE(a_run_falls_back_with_the_reason_unless_forbidden) {
  TemporaryDirectory tmp;
  auto train = [&](const std::string& dir, std::vector<std::string> more) {
    more.insert(more.end(), {"--set", "output.dir=" + (tmp.path() / dir).string()});
    return run_program(with_front_end("good", small("train", more)), without_driver());
  };
  Outcome r = train("out", {"--backend=cuda"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const json start = json::parse(r.out.substr(0, r.out.find('\n')));
  BOOST_TEST(start["backend"] == "cpu");
  BOOST_TEST(start["requested"] == "cuda");
  BOOST_TEST(start["fallback_reason"] == kNoDriver);
  const std::string remedy = "(install the NVIDIA driver; start a container with access to the GPUs";
  BOOST_TEST(has(r.err, "cuda: " + kNoDriver + "; training on cpu instead " + remedy + ")"), r.err);
  r = train("strict", {"--backend=cuda", "--no-fallback"});
  BOOST_TEST(r.code == 4);
  BOOST_TEST(has(r.err, kNoDriver), r.err);
  BOOST_TEST(has(r.err, remedy + "; or omit --no-fallback to try other backends)"), r.err);
  r = train("auto", {});  // backend auto: no message about cuda
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(!has(r.err, "NVIDIA"), r.err);
}

BOOST_AUTO_TEST_CASE(an_invalid_option_is_an_error_not_a_fallback) {
  TemporaryDirectory tmp;
  const std::string out = "output.dir=" + (tmp.path() / "out").string();
  Outcome r =
      run_program(small("train", {"--backend=cuda", "--set", "plugin.cuda.mode=resdient", "--set", out}),
                  without_driver());
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "did you mean 'resident'?"), r.err);
  r = run_program(with_front_end("good", small("train", {"--backend=cuda", "--set", "plugin.cuda.device=4",
                                                         "--set", out})),
                  with_fake_device());
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "no CUDA device 4; available: 0 (Fake H200)"), r.err);
  r = run_program(small("plan", {"--backend=cuda", "--set", "plugin.cuda.speed=9"}), without_driver());
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "plugin.cuda.speed: the plugin has no such option"), r.err);
}

// A plan that is made without the device has the same bytes as on the device, to the byte.
BOOST_AUTO_TEST_CASE(a_plan_depends_on_the_multiprocessors_of_its_device) {
  const auto bytes = [](std::vector<std::string> more, const RunOptions& machine) {
    more.insert(more.end(), {"--backend=cuda", "--set", "train.micro_batch=10", "--set",
                             "plugin.cuda.mode=resident", "--set", "model.hidden_size=256"});
    const json j = plan_of(run_program(with_front_end("good", small("plan", more)), machine));
    for (const json& tier : j["estimates"][0]["tiers"])
      if (tier["tier"] == "device") return tier["total_bytes"].get<std::uint64_t>();
    return std::uint64_t{0};
  };
  const std::uint64_t h100 = bytes({}, without_driver()),
                      a100 = bytes({}, with_fake_device({{"FAKE_CUDA_SMS", "108"}}));
  BOOST_TEST(a100 != 0u);
  BOOST_TEST(a100 < h100);
  BOOST_TEST(bytes({}, with_fake_device()) == h100);
  BOOST_TEST(bytes({"--device=h100-80gb"}, without_driver()) == h100);
  BOOST_TEST(bytes({"--device=a100-80gb"}, without_driver()) == a100);
  BOOST_TEST(bytes({"--device=a100-80gb"}, with_fake_device()) == a100);
  BOOST_TEST(bytes({"--set", "plugin.cuda.multiprocessors=108"}, with_fake_device()) == a100);
  const Outcome r = run_program(
      with_front_end("good", small("plan", {"--backend=cuda", "--set", "plugin.cuda.multiprocessors=0"})),
      without_driver());
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "plugin.cuda.multiprocessors = 0: expected a number from 1 to 4096"), r.err);
}

BOOST_AUTO_TEST_CASE(a_device_by_name_is_planned_for_cuda_without_one) {
  const json j = plan_of(run_program(small("plan", {"--device=h100-80gb"}), without_driver()));
  BOOST_TEST(j["backend"] == "cuda");
  BOOST_TEST(j["mode"] == "resident");
  BOOST_TEST(j["budget_source"] == "h100-80gb, less 544 MiB for its runtime");
  const json e = j["estimates"][0];
  BOOST_TEST(e["kind"] == "exact");
  BOOST_TEST(e["fits"] == true);
  BOOST_TEST(e["budget_bytes"] == 84362552934u);  // 79.10 GiB less 544 MiB
  BOOST_TEST(!e.contains("host_budget_bytes"));   // the host memory of that machine is not known
  BOOST_TEST(e["tiers"][0]["tier"] == "device");
  const json other = plan_of(run_program(small("plan", {"--device=mi300x-192gb"}), without_driver()));
  BOOST_TEST(other["backend"] == "");
}

BOOST_AUTO_TEST_CASE(without_a_device_the_budget_is_unknown) {
  Outcome r = run_program(small("plan", {"--backend=cuda"}), without_driver());
  BOOST_TEST(r.code == 0, r.err);
  const json j = plan_of(r);
  BOOST_TEST(j["backend"] == "cuda");
  BOOST_TEST(j["estimates"][0]["budget_bytes"].is_null());
  BOOST_TEST(j["estimates"][0]["fits"] == true);
  BOOST_TEST(j["budget_source"] == "not known: the cuda backend finds no device here");
  std::vector<std::string> words = small("plan", {"--backend=cuda"});
  words.erase(words.begin() + 1);
  r = run_program(words, without_driver());
  BOOST_TEST(
      has(r.out,
          "budget not known: the cuda backend finds no device here; set --device=NAME or --budget=SIZE "
          "to see whether it fits"),
      r.out);
}

BOOST_AUTO_TEST_CASE(a_plan_uses_the_free_memory_of_device_and_host) {
  json j =
      plan_of(run_program(with_front_end("good", small("plan", {"--backend=cuda"})), with_fake_device()));
  BOOST_TEST(j["budget_source"] == "free memory of Fake H200, less 544 MiB for its runtime");
  BOOST_TEST(j["estimates"][0]["budget_bytes"] == 139429574656u);
  BOOST_TEST(j["host_budget_source"] == "free host memory");

  const std::uint64_t needed = j["estimates"][0]["tiers"][0]["total_bytes"];
  Outcome r = run_program(
      with_front_end("good",
                     small("plan", {"--backend=cuda", "--budget=" + std::to_string(needed - 1) + "B", "--set",
                                    "memory.host_budget=100B", "--set", "plugin.cuda.mode=resident"})),
      with_fake_device());
  BOOST_TEST(r.code == 3);
  j = json::parse(r.out)["estimates"][0];
  BOOST_TEST(j["too_much"]["device"] == 1u);
  std::uint64_t host = 0;
  for (const json& t : j["tiers"])
    if (t["tier"] == "host" || t["tier"] == "pinned") host += t["total_bytes"].get<std::uint64_t>();
  BOOST_TEST(j["too_much"]["host"] == host - 100);
  j = plan_of(run_program(
      with_front_end("good", small("plan", {"--backend=cuda", "--budget=" + std::to_string(needed) + "B",
                                            "--set", "memory.host_budget=" + std::to_string(host) + "B"})),
      with_fake_device()));
  BOOST_TEST(j["estimates"][0]["fits"] == true);
}

BOOST_AUTO_TEST_CASE(the_plugin_receives_the_budgets) {
  TemporaryDirectory tmp;
  const std::string out = "output.dir=" + (tmp.path() / "out").string();
  Outcome r = run_program(with_front_end("good", small("train", {"--backend=cuda", "--set", out, "--set",
                                                                 "memory.host_budget=3GB"})),
                          with_fake_device());
  BOOST_TEST(has(r.err, "device 0, device budget 139429574656, host budget 3000000000"),
             r.err);  // message of the fake engine
  r = run_program(with_front_end("good", small("train", {"--backend=cuda", "--set", out + "2", "--set",
                                                         "memory.budget=2GB"})),
                  with_fake_device());
  BOOST_TEST(has(r.err, "device 0, device budget 2000000000, host budget "), r.err);
}

BOOST_AUTO_TEST_CASE(a_run_that_does_not_fit_reports_tier_and_missing_bytes) {
  TemporaryDirectory tmp;
  const std::string out = "output.dir=" + (tmp.path() / "out").string();
  Outcome r = run_program(with_front_end("good", small("train", {"--backend=cuda", "--set", out, "--set",
                                                                 "memory.host_budget=1KiB"})),
                          with_fake_device());
  BOOST_TEST(r.code == 3);
  BOOST_TEST(has(r.err, "of host memory, but memory.host_budget is 1.00 KiB"), r.err);
  r = run_program(with_front_end("good", small("train", {"--backend=cuda", "--set", out + "2"})),
                  with_fake_device({{"FAKE_NVML_FREE", "633554432"}, {"FAKE_CUDA_TOTAL", "633554432"}}));
  BOOST_TEST(has(r.err, "device budget 63129088"), r.err);  // fits: create() of the fake engine is called
  r = run_program(
      with_front_end("good", small("train", {"--backend=cuda", "--set", out, "--set", "memory.budget=1MB"})),
      with_fake_device());
  BOOST_TEST(r.code == 3);
  BOOST_TEST(has(r.err, ", but memory.budget is"), r.err);
  BOOST_TEST(!std::filesystem::exists(tmp.path() / "out"));
}

BOOST_AUTO_TEST_SUITE_END()
