// The built program with --backend=cuda on the emulation, from the command line to the exit code: the
// engine's own sources, loaded by the front as on a machine with a GPU. What the figures of a GPU would be is
// not asked here (tools/gpu).
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;
using nlohmann::json;
namespace fs = std::filesystem;
namespace data = boost::unit_test::data;

namespace {

const fs::path kGolden = fs::path(TRAINHOST_SOURCE_DIR) / "tests/golden/runs";
const std::string kMemory = "4294967296";  // of the emulated device

using trainhost::test::read_file;

RunOptions machine(std::map<std::string, std::string> more = {}) {
  const std::string fakes = CUDA_FAKES;
  RunOptions o;
  o.environment = {{"TRAINHOST_CUDA_DRIVER", fakes + "/libfakedriver.so"},
                   {"TRAINHOST_CUDA_NVML", fakes + "/libfakenvml.so"},
                   {"FAKE_NVML_FREE", kMemory},
                   {"FAKE_CUDA_TOTAL", kMemory},
                   {"FAKE_CUDA_SMS", "2"}};
  for (auto& [k, v] : more) o.environment[k] = v;
  return o;
}

std::vector<std::string> with_plugin(std::vector<std::string> words) {
  words.insert(words.end(), {"--plugin-path", std::string(CUDA_STAGE) + "/plugins"});
  return words;
}

/// train with the emulated backend, into dir; never on anything else.
std::vector<std::string> train(const fs::path& dir, const std::string& mode, std::vector<std::string> more) {
  more.insert(more.begin(), "train");
  more.insert(more.end(), {"--backend=cuda", "--no-fallback", "--json", "-q", "--set",
                           "plugin.cuda.mode=" + mode, "--set", "output.dir=" + dir.string()});
  return with_plugin(more);
}

std::vector<std::string> tiny(const fs::path& dir, const std::string& mode,
                              std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"--set", "train.steps=3",
                             "--set", "optimizer.warmup_steps=1",
                             "--set", "model.hidden_size=32",
                             "--set", "model.intermediate_size=48",
                             "--set", "model.num_hidden_layers=2",
                             "--set", "model.num_attention_heads=2",
                             "--set", "model.num_key_value_heads=1",
                             "--set", "model.head_dim=16",
                             "--set", "data.train=" + (kGolden / "mha/tokens.bin").string(),
                             "--set", "data.order=sequential",
                             "--set", "data.seq_len=16",
                             "--set", "train.micro_batch=1"});
  return train(dir, mode, more);
}

struct Events {
  json start, done;
  std::vector<json> steps;
};

Events events_of(const std::string& lines) {
  Events e;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const json j = json::parse(line);
    if (j["event"] == "start") e.start = j;
    if (j["event"] == "done") e.done = j;
    if (j["event"] == "step") e.steps.push_back(j);
  }
  return e;
}

/// Every tier was predicted to the byte, the device's among them.
void exact(const json& done) {
  bool device = false;
  for (const json& t : done["memory"]["tiers"]) {
    BOOST_TEST(t["predicted_bytes"] == t["measured_bytes"], t.dump());
    device = device || (t["tier"] == "device" && t["measured_bytes"].get<std::uint64_t>() > 0);
  }
  BOOST_TEST(device, done.dump());
}

struct Case {
  std::string mode, precision;
};
std::ostream& operator<<(std::ostream& o, const Case& c) { return o << c.mode << ", " << c.precision; }
std::vector<Case> every_case() {
  std::vector<Case> all;
  for (const char* mode : {"resident", "hybrid", "streamed"})
    for (const char* precision : {"fp32", "tf32", "bf16"}) all.push_back({mode, precision});
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(emulated_program)

BOOST_DATA_TEST_CASE(a_golden_run_is_followed_and_its_memory_and_transfers_are_as_planned,
                     data::make(every_case()), c) {
  const json expected = json::parse(read_file(kGolden / "mha/expected.json"));
  const std::size_t steps =
      c.precision == "fp32" ? expected["loss"].size() : 2;  // the learning rate is constant: a beginning
  TemporaryDirectory tmp;
  const Outcome r = run_program(train(tmp.path() / "out", c.mode,
                                      {(kGolden / "mha/run.toml").string(), "--set",
                                       "train.precision=" + c.precision, "--steps", std::to_string(steps)}),
                                machine());
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const Events e = events_of(r.out);
  BOOST_TEST(e.start["backend"] == "cuda");
  BOOST_TEST(!e.start.contains("fallback_reason"), e.start.dump());
  const std::string uuid = "GPU-64656667-6869-6a6b-6c6d-6e6f70717273";
  BOOST_TEST(e.start["device"] ==
             json({{"name", "Fake H200"}, {"uuid", uuid}, {"engine", "cuda-cublas-13.so"}}));
  BOOST_REQUIRE(e.steps.size() == steps);
  double worst = 0;
  for (std::size_t i = 0; i < e.steps.size(); ++i)
    worst = std::max(worst, std::abs(e.steps[i]["loss"].get<double>() - expected["loss"][i].get<double>()));
  BOOST_TEST_MESSAGE(c << ": worst loss difference " << worst << ", " << r.seconds << " s");
  BOOST_TEST(worst < (c.precision == "fp32" ? 1e-4 : 2e-2), c);
  exact(e.done);
  const json t = e.done["transfers"];
  const std::uint64_t micro_batches = e.steps.size();  // grad_accum = 1
  BOOST_TEST(t["h2d"].get<std::uint64_t>() + t["d2h"].get<std::uint64_t>() ==
                 (c.mode == "hybrid" ? 3 * micro_batches : 0u),
             t.dump());
  BOOST_TEST((t["h2d_bytes"].get<std::uint64_t>() > 0) == (c.mode == "hybrid"), t.dump());
}

BOOST_AUTO_TEST_CASE(the_header_of_a_run_names_the_device_with_its_uuid) {
  TemporaryDirectory tmp;
  std::vector<std::string> words = tiny(tmp.path() / "out", "resident");
  std::erase(words, "-q"), std::erase(words, "--json");
  const Outcome r = run_program(words, machine());
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const std::string device =
      "device: Fake H200, GPU-64656667-6869-6a6b-6c6d-6e6f70717273; engine cuda-cublas-13.so";
  BOOST_TEST(has(r.out + r.err, device + "\n"), r.out + r.err);
}

BOOST_AUTO_TEST_CASE(every_contract_holds_or_is_skipped_with_its_reason) {
  const Outcome r = run_program(
      with_plugin({"verify", "--backend=cuda", "--json", "--set", "train.steps=3", "--set", "data.seq_len=4",
                   "--set", "model.hidden_size=16", "--set", "model.intermediate_size=24", "--set",
                   "model.head_dim=8", "--set", "model.num_hidden_layers=3", "--set", "train.micro_batch=1",
                   "--set", "train.grad_accum=1"}),
      machine({{"TRAINHOST_VERIFY_SMALL", "1"}}));
  BOOST_TEST(r.code == 0, r.err);
  const json all = json::parse(r.out, nullptr, false);
  BOOST_REQUIRE(all.is_object());
  BOOST_TEST(all["results"].size() == 16u);
  for (const json& j : all["results"]) {
    const std::string id = j["id"], status = j["status"];
    BOOST_TEST_MESSAGE(id << " " << status << ": " << j["detail"].get<std::string>());
    if (id == "MEM-002/run") continue;  // only reported
    BOOST_TEST(status != "falsified", j.dump());
    BOOST_TEST((status == "held" || (id == "GPU-004" && !j["detail"].get<std::string>().empty())), j.dump());
  }
}

BOOST_DATA_TEST_CASE(ctrl_c_leaves_a_checkpoint_and_resume_gives_the_same_bits,
                     data::make({"resident", "hybrid", "streamed"}), mode) {
  TemporaryDirectory tmp;
  auto words = [&](const char* dir, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--set", "train.steps=10"});
    return tiny(tmp.path() / dir, mode, more);
  };
  const Outcome whole = run_program(words("whole"), machine());
  BOOST_REQUIRE_MESSAGE(whole.code == 0, whole.err);
  RunOptions o = machine();
  bool sent = false;
  o.watch = [&](pid_t pid, const std::string& out) {
    if (!sent && has(out, "\"step\":2,")) sent = kill(pid, SIGINT) == 0;
  };
  const Outcome stopped = run_program(words("parts"), o);
  BOOST_REQUIRE_MESSAGE(stopped.code == 75, stopped.err);
  const Outcome rest = run_program(words("parts", {"--resume"}), machine());
  BOOST_REQUIRE_MESSAGE(rest.code == 0, rest.err);
  BOOST_TEST((read_file(tmp.path() / "whole/model/model.safetensors") ==
              read_file(tmp.path() / "parts/model/model.safetensors")));
  const Events a = events_of(whole.out), b = events_of(read_file(tmp.path() / "parts/metrics.jsonl"));
  BOOST_REQUIRE(a.steps.size() == b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) BOOST_TEST(a.steps[i]["loss"] == b.steps[i]["loss"]);
  exact(b.done);
}

BOOST_AUTO_TEST_CASE(generate_continues_a_prompt_on_the_device) {
  TemporaryDirectory tmp;
  const Outcome trained = run_program(tiny(tmp.path() / "out", "resident"), machine());
  BOOST_REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const std::vector<std::string> words = {
      "generate", (tmp.path() / "out").string(), "--prompt", "Once", "--tokens", "8", "--temperature", "0"};
  std::vector<std::string> on_device = with_plugin(words), on_cpu = words;
  on_device.push_back("--backend=cuda"), on_cpu.push_back("--backend=cpu");
  const Outcome r = run_program(on_device, machine()), cpu = run_program(on_cpu, machine());
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(r.out.rfind("Once", 0) == 0u, r.out);
  BOOST_TEST(r.out == cpu.out);
}

BOOST_AUTO_TEST_CASE(a_device_that_is_too_full_is_told_before_or_in_the_middle) {
  TemporaryDirectory tmp;
  const Outcome fits = run_program(tiny(tmp.path() / "a", "resident"), machine());
  BOOST_REQUIRE_MESSAGE(fits.code == 0, fits.err);
  std::uint64_t plan = 0;
  const json done = events_of(fits.out).done;
  for (const json& t : done["memory"]["tiers"])
    if (t["tier"] == "device") plan = t["predicted_bytes"];
  // By budget: refused before anything is taken.
  Outcome r = run_program(
      tiny(tmp.path() / "b", "resident", {"--set", "memory.budget=" + std::to_string(plan - 1) + "B"}),
      machine());
  BOOST_TEST(r.code == 3, r.err);
  r = run_program(
      tiny(tmp.path() / "c", "resident", {"--set", "memory.budget=" + std::to_string(plan) + "B"}),
      machine());
  BOOST_TEST(r.code == 0, r.err);
  // Others took the memory after the plan was judged: the allocation fails, and says by how much.
  const std::uint64_t memory = std::stoull(kMemory), round = 1 << 20;
  r = run_program(tiny(tmp.path() / "d", "resident"),
                  machine({{"EMULATED_CUDA_MEMORY", kMemory},
                           {"EMULATED_CUDA_HELD", std::to_string(memory - plan + plan / 100)}}));
  BOOST_TEST(r.code == 3, r.err);
  BOOST_TEST(has(r.err, "memory"), r.err);
  r = run_program(tiny(tmp.path() / "e", "resident"),
                  machine({{"EMULATED_CUDA_MEMORY", kMemory},
                           {"EMULATED_CUDA_HELD", std::to_string(memory - plan - round)}}));
  BOOST_TEST(r.code == 0, r.err);
}

BOOST_AUTO_TEST_CASE(a_lost_device_leaves_the_last_checkpoint_and_a_run_to_be_resumed) {
  TemporaryDirectory tmp;
  const std::vector<std::string> more = {"--set", "train.steps=6", "--set", "output.checkpoint_every=2"};
  const Outcome whole = run_program(tiny(tmp.path() / "whole", "resident", more), machine());
  BOOST_REQUIRE_MESSAGE(whole.code == 0, whole.err);
  // Lost while the fifth step runs: steps 1 to 4 are in a checkpoint.
  const RunOptions dying = machine({{"EMULATED_CUDA_FAIL", "cudaGraphLaunch:5:719"}});
  const Outcome lost = run_program(tiny(tmp.path() / "parts", "resident", more), dying);
  BOOST_TEST(lost.code == 75, lost.err);
  for (const char* part :
       {"cuda 719: device 0 (", ") is lost while replaying a step", "cudaErrorLaunchFailure",
        "drain this GPU", "step-4 is intact: continue with --resume"})
    BOOST_TEST((has(lost.err, part) || has(lost.out, part)), part << " in " << lost.err << lost.out);
  std::vector<std::string> again = more;
  again.push_back("--resume");
  const Outcome resumed = run_program(tiny(tmp.path() / "parts", "resident", again), machine());
  BOOST_REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
  const Events a = events_of(whole.out), b = events_of(resumed.out);
  BOOST_TEST(a.steps.back()["loss"] == b.steps.back()["loss"]);
  // Nothing to go on from, and a checkpoint that is damaged: 1, not 75.
  const Outcome bare = run_program(tiny(tmp.path() / "bare", "resident"),
                                   machine({{"EMULATED_CUDA_FAIL", "cudaGraphLaunch:2:719"}}));
  BOOST_TEST(bare.code == 1, bare.err);
  BOOST_TEST(has(bare.err, "no checkpoint to resume from"), bare.err);
}

struct BadInput {
  const char* name;
  std::map<std::string, std::string> environment;
  int code;
  std::vector<std::string> parts;  // of the one line on stderr: the reason, and what to do
};
std::ostream& operator<<(std::ostream& o, const BadInput& b) { return o << b.name; }
std::vector<BadInput> every_bad_input() {
  const auto during = [](const char* name, const char* code, const char* hint) {
    const std::string failure = std::string("cudaGraphLaunch:1:") + code;
    return BadInput{name,
                    {{"EMULATED_CUDA_FAIL", failure}},
                    75,
                    {"device 0 (Emulated GPU) is lost while replaying a step", hint,
                     "step-4 is intact: continue with --resume"}};
  };
  const char* lost = "the GPU was reset, has fallen off the bus, or has another compute mode: nvidia-smi";
  return {
      {"driver too old",
       {{"FAKE_CUDA_VERSION", "11080"}},
       4,
       {"the NVIDIA driver supports CUDA 11.8, the cuda trainer needs 12.0",
        "update the NVIDIA driver to R580 or newer"}},
      {"driver too old for the engine",
       {{"FAKE_CUDA_VERSION", "12040"}},
       4,
       {"CUDA 13: the NVIDIA driver supports CUDA 12.4, 13.0 is needed",
        "engines/cuda-cublas-12.so is missing", "update the NVIDIA driver to R580"}},
      {"driver missing",
       {{"TRAINHOST_CUDA_DRIVER", "libno-such-driver.so.1"}},
       4,
       {"no NVIDIA driver found: libno-such-driver.so.1", "install the NVIDIA driver"}},
      {"full before the run",
       {{"FAKE_NVML_FREE", "314572800"}},
       4,
       {"device 0 (Fake H200) has 300 MiB of 4.00 GiB free", "212 MiB short",
        "nvidia-smi lists the processes on the device"}},
      {"too full for the plan",
       {{"FAKE_NVML_FREE", "578554432"}},
       3,
       {"free memory of Fake H200, less 544 MiB for its runtime is 7.75 MiB", " short",
        "use a smaller train.micro_batch"}},
      {"filled after the plan",
       {{"EMULATED_CUDA_MEMORY", kMemory}, {"EMULATED_CUDA_HELD", "4294000000"}},
       3,
       {"the plan needs ", " are free beside the CUDA runtime and its kernels: ", " short",
        "nvidia-smi lists the processes on the device"}},
      {"compute mode prohibited",
       {{"FAKE_CUDA_MODE", "2"}},
       4,
       {"has the compute mode \"prohibited\"", " -c DEFAULT` changes it, as root"}},
      {"exclusive mode",
       {{"EMULATED_CUDA_FAIL", "cudaSetDevice:1:46"}},
       4,
       {"selecting device 0: the device is busy or in exclusive mode: cudaErrorDevicesUnavailable",
        "shows its compute mode and the process that uses it: end that process, or set plugin.cuda.device"}},
      {"fallen off the bus before the run",
       {{"FAKE_NVML_MEMORY", "15"}},
       4,
       {"device 0 (Fake H200) has fallen off the bus or cannot be accessed", "reset the GPU or reboot"}},
      {"reset required",
       {{"FAKE_NVML_MEMORY", "16"}},
       4,
       {"device 0 (Fake H200) must be reset before it can be used", "reset the GPU or reboot"}},
      {"driver does not start",
       {{"FAKE_CUDA_INIT", "999"}},
       4,
       {"cuInit returned CUDA_ERROR_UNKNOWN: unknown error", "nvidia-modprobe -u, or reboot"}},
      during("fallen off the bus during the run", "999", "79: the GPU has fallen off the bus: reboot"),
      during("reset during the run", "709", "the context was destroyed, as by a reset of the GPU"),
      during("no device after a reset", "100", lost),
      during("no access after a reset", "46", lost),
  };
}

/// The files below a folder with their contents.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& f : fs::recursive_directory_iterator(folder))
    if (f.is_regular_file()) all[fs::relative(f, folder).string()] = read_file(f);
  return all;
}

// A run with a checkpoint of step 4 is resumed on a machine that has every one of these faults.
BOOST_AUTO_TEST_CASE(a_bad_machine_is_one_line_with_a_remedy_and_leaves_the_checkpoint) {
  TemporaryDirectory tmp;
  const std::vector<std::string> more = {"--set", "train.steps=6", "--set", "output.checkpoint_every=2"};
  const Outcome lost = run_program(tiny(tmp.path() / "base", "resident", more),
                                   machine({{"EMULATED_CUDA_FAIL", "cudaGraphLaunch:5:719"}}));
  BOOST_REQUIRE_MESSAGE(lost.code == 75, lost.err);
  std::vector<std::string> again = more;
  again.push_back("--resume");
  const auto resume = [&](const fs::path& dir, const RunOptions& on) {
    fs::copy(tmp.path() / "base", dir, fs::copy_options::recursive);
    return run_program(tiny(dir, "resident", again), on);
  };
  const Outcome whole = resume(tmp.path() / "whole", machine());
  BOOST_REQUIRE_MESSAGE(whole.code == 0, whole.err);
  const std::string model = read_file(tmp.path() / "whole/model/model.safetensors");
  const auto checkpoints = files_of(tmp.path() / "base/checkpoints");
  BOOST_TEST(checkpoints.size() > 1u);
  int number = 0;
  for (const BadInput& bad : every_bad_input()) {
    BOOST_TEST_CONTEXT(bad) {
      const fs::path dir = tmp.path() / std::to_string(number++);
      const Outcome r = resume(dir, machine(bad.environment));
      BOOST_TEST(r.code == bad.code, r.err);
      std::istringstream lines(r.err);
      std::string line, found;
      int errors = 0;
      while (std::getline(lines, line))
        if (has(line, bad.parts[0])) ++errors, found = line;
      BOOST_TEST(errors == 1, r.err);
      for (const std::string& part : bad.parts) BOOST_TEST(has(found, part), part << " in " << r.err);
      BOOST_TEST((files_of(dir / "checkpoints") == checkpoints));
      const Outcome repaired = run_program(tiny(dir, "resident", again), machine());
      BOOST_TEST(repaired.code == 0, repaired.err);
      BOOST_TEST((read_file(dir / "model/model.safetensors") == model));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_hidden_device_is_no_device) {
  TemporaryDirectory tmp;
  const Outcome r =
      run_program(tiny(tmp.path() / "out", "resident"), machine({{"CUDA_VISIBLE_DEVICES", ""}}));
  BOOST_TEST(r.code == 4, r.err);
  BOOST_TEST(has(r.err, "CUDA_VISIBLE_DEVICES=\"\" hides the only device"), r.err);
}

BOOST_AUTO_TEST_SUITE_END()
