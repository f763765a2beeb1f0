// Complete runs of the program: prediction equals measurement, golden losses, bit-identical resume, fallback.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"
#include "tests/support/text_patterns.hpp"

using namespace trainhost::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const fs::path kGolden = fs::path(TRAINHOST_SOURCE_DIR) / "tests/golden/runs";

using trainhost::test::read_file;

struct Events {
  json start, done;
  std::vector<json> steps, evals, checkpoints;
};

Events events_of(const std::string& lines) {
  Events e;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    json j = json::parse(line);
    if (j["event"] == "start") e.start = j;
    if (j["event"] == "done") e.done = j;
    if (j["event"] == "step") e.steps.push_back(j);
    if (j["event"] == "eval") e.evals.push_back(j);
    if (j["event"] == "checkpoint") e.checkpoints.push_back(j);
  }
  return e;
}

/// Arguments of a small run in `dir`, followed by `more`.
std::vector<std::string> small_run(const fs::path& dir, std::vector<std::string> more = {}) {
  std::vector<std::string> w = {"train",
                                "--json",
                                "-q",
                                "--set",
                                "output.dir=" + dir.string(),
                                "--set",
                                "train.steps=4",
                                "--set",
                                "model.initializer_range=0.02"};
  const std::vector<std::string> model = small_model_options();
  w.insert(w.end(), model.begin(), model.end());
  w.insert(w.end(), more.begin(), more.end());
  return w;
}

/// Number of lines that end with a time in UTC which is not before that of the line before.
std::ptrdiff_t times_of_lines(const std::string& lines) {
  const std::string last = R"x(,"time":"(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"\}$)x";
  std::ptrdiff_t n = 0;
  std::string before;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line); ++n) {
    const Match m = find_pattern(line, last);
    if (m.empty() || before > m[1]) break;
    before = m[1];
  }
  return n;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(whole_runs)

BOOST_AUTO_TEST_CASE(a_run_reports_every_event_and_its_memory_was_predicted_to_the_byte) {
  TemporaryDirectory tmp;
  Outcome r = run_program(small_run(tmp.path() / "out"));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  Events e = events_of(r.out);
  BOOST_TEST(e.start["backend"] == "cpu");
  BOOST_TEST(e.start["source"]["name"] == "stories");
  BOOST_TEST(e.start["source"]["entropy_nats"].get<double>() > 0.1);
  BOOST_TEST(e.steps.size() == 4u);
  BOOST_TEST(e.steps[0]["step"] == 1);
  BOOST_TEST(std::abs(e.steps[0]["loss"].get<double>() - std::log(256.0)) < 0.2);
  BOOST_TEST(e.evals.size() == 1u);
  json m = e.done["memory"];
  BOOST_TEST(m["predicted_bytes"] == m["measured_bytes"]);
  BOOST_TEST(m["predicted_bytes"] == e.start["plan"]["estimates"][0]["total_bytes"]);
  BOOST_TEST(read_file(tmp.path() / "out/metrics.jsonl") == r.out);
  BOOST_TEST(times_of_lines(r.out) == std::count(r.out.begin(), r.out.end(), '\n'), r.out);
  BOOST_TEST(read_file(tmp.path() / "out/summary.json") ==
             r.out.substr(r.out.rfind('\n', r.out.size() - 2) + 1));
  BOOST_TEST(json::parse(read_file(tmp.path() / "out/summary.json"))["steps"] == 4);
  for (const char* f : {"config.json", "model.safetensors"})
    BOOST_TEST(fs::exists(tmp.path() / "out/model" / f), f);
}

// bf16 rounds the operands of products to 8 significant bits; the loss is a mean of many values and has a
// much smaller error. Over the 100 steps of `contract` small differences grow (f32 is allowed 1e-3 there), so
// the sum of the losses is compared.
BOOST_AUTO_TEST_CASE(golden_runs_in_bf16_stay_near_the_float64_losses) {
  for (const char* name : {"mha", "gqa-tied", "contract"}) {
    json expected = json::parse(read_file(kGolden / name / "expected.json"));
    TemporaryDirectory tmp;
    Outcome r = run_program({"train", (kGolden / name / "run.toml").string(), "--json", "-q", "--set",
                             "output.dir=" + tmp.path().string(), "--set", "train.precision=bf16"});
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    Events e = events_of(r.out);
    BOOST_REQUIRE(e.steps.size() == expected["loss"].size());
    double worst = 0, sum = 0, expected_sum = 0;
    for (std::size_t i = 0; i < e.steps.size(); ++i) {
      const double loss = e.steps[i]["loss"], want = expected["loss"][i];
      worst = std::max(worst, std::abs(loss / want - 1)), sum += loss, expected_sum += want;
    }
    const double off = std::abs(sum / expected_sum - 1);
    BOOST_TEST_MESSAGE(name << " in bf16: worst loss " << worst << " relative, of the whole run " << off);
    BOOST_TEST(off < (e.steps.size() < 50 ? 2e-4 : 5e-3), name);
    BOOST_TEST(worst > 1e-6, name << ": nothing was rounded");
    BOOST_TEST(e.done["memory"]["predicted_bytes"] == e.done["memory"]["measured_bytes"]);
  }
}

BOOST_AUTO_TEST_CASE(golden_runs_follow_the_float64_losses) {
  for (const char* name : {"mha", "gqa-tied", "contract"}) {
    json expected = json::parse(read_file(kGolden / name / "expected.json"));
    double tolerance = std::string(name) == "contract" ? 1e-3 : 2e-5;
    for (const char* recompute : {"none", "selective", "full"}) {
      TemporaryDirectory tmp;
      Outcome r = run_program({"train", (kGolden / name / "run.toml").string(), "--json", "-q", "--set",
                               "output.dir=" + tmp.path().string(), "--set",
                               std::string("train.recompute=") + recompute});
      BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
      Events e = events_of(r.out);
      BOOST_REQUIRE(e.steps.size() == expected["loss"].size());
      double worst = 0, worst_norm = 0;
      for (std::size_t i = 0; i < e.steps.size(); ++i) {
        worst =
            std::max(worst, std::abs(e.steps[i]["loss"].get<double>() - expected["loss"][i].get<double>()));
        double norm = expected["grad_norm"][i];
        worst_norm = std::max(worst_norm, std::abs(e.steps[i]["grad_norm"].get<double>() - norm) / norm);
      }
      BOOST_TEST_MESSAGE(name << " " << recompute << ": worst loss " << worst << ", worst norm "
                              << worst_norm);
      BOOST_TEST(worst < tolerance, name << " " << recompute);
      BOOST_TEST(worst_norm < 1e-3, name << " " << recompute);
      BOOST_TEST(e.done["memory"]["predicted_bytes"] == e.done["memory"]["measured_bytes"]);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_hundred_random_shapes_are_predicted_to_the_byte) {
  std::mt19937 rng(11);
  auto any = [&](int lo, int hi) { return std::to_string(std::uniform_int_distribution<int>(lo, hi)(rng)); };
  const char* families[] = {"llama", "mistral", "qwen2", "qwen3"};
  const char* policies[] = {"none", "selective", "full"};
  const char* optimizers[] = {"adamw", "sgd", "sgd-momentum"};
  TemporaryDirectory tmp;
  // The built-in text is evaluated on 65,536 tokens, which takes longer than all else: only each seventh run.
  const fs::path text = tmp.write("text.txt", std::string(3000, 'a') + std::string(3000, 'b'));
  for (int i = 0; i < 102; ++i) {
    int kv = std::uniform_int_distribution<int>(1, 3)(rng),
        groups = std::uniform_int_distribution<int>(1, 3)(rng);
    std::vector<std::string> sets = {
        "model.model_type=" + std::string(families[i % 4]),
        "model.vocab_size=" + any(256, 700),
        "model.hidden_size=" + any(1, 70),
        "model.num_hidden_layers=" + any(1, 4),
        "model.num_attention_heads=" + std::to_string(kv * groups),
        "model.num_key_value_heads=" + std::to_string(kv),
        "model.head_dim=" + std::to_string(2 * std::uniform_int_distribution<int>(1, 17)(rng)),
        "model.intermediate_size=" + any(1, 90),
        std::string("model.tie_word_embeddings=") + (i % 2 ? "true" : "false"),
        "data.seq_len=" + any(1, 90),
        "train.micro_batch=" + any(1, 4),
        "train.grad_accum=" + any(1, 3),
        std::string("train.recompute=") + policies[i % 3],
        std::string("optimizer.name=") + optimizers[i / 3 % 3],
        std::string("train.precision=") + (i % 5 == 4 ? "bf16" : "fp32"),
        "train.steps=2",
        "optimizer.warmup_steps=1",
        "optimizer.lr=1e-3",
        "optimizer.min_lr=1e-4",
        "output.dir=" + (tmp.path() / std::to_string(i)).string()};
    if (i % 7 != 0) sets.insert(sets.end(), {"data.train=" + text.string(), "data.valid_fraction=0.1"});
    std::vector<std::string> arguments = {"train", "--json", "-q"};
    for (const std::string& s : sets) arguments.insert(arguments.end(), {"--set", s});
    Outcome r = run_program(arguments);
    std::string shape;
    for (const std::string& s : sets) shape += s + " ";
    BOOST_REQUIRE_MESSAGE(r.code == 0, shape + "\n" + r.err);
    json m = events_of(r.out).done["memory"];
    BOOST_TEST(m["predicted_bytes"] == m["measured_bytes"], shape);
  }
}

BOOST_AUTO_TEST_CASE(the_number_of_threads_does_not_change_the_trained_weights) {
  TemporaryDirectory tmp;
  for (const std::string precision : {"fp32", "bf16"}) {
    std::string first;
    for (const std::string threads : {"1", "2", "3", "4"}) {
      fs::path out = tmp.path() / (precision + threads);
      Outcome r = run_program(
          small_run(out, {"--set", "train.threads=" + threads, "--set", "train.precision=" + precision}));
      BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
      std::string weights = read_file(out / "model/model.safetensors");
      if (first.empty()) first = weights;
      BOOST_TEST((weights == first), precision << " on " << threads << " threads");
    }
  }
}

BOOST_AUTO_TEST_CASE(ctrl_c_writes_a_checkpoint_and_resume_gives_the_same_bits) {
  TemporaryDirectory tmp;
  auto arguments = [&](const char* dir) { return small_run(tmp.path() / dir, {"--set", "train.steps=400"}); };
  Outcome whole = run_program(arguments("whole"));
  BOOST_REQUIRE_MESSAGE(whole.code == 0, whole.err);

  RunOptions o;
  bool sent = false;
  o.watch = [&](pid_t pid, const std::string& out) {
    if (!sent && out.find("\"step\":20,") != std::string::npos) sent = kill(pid, SIGINT) == 0;
  };
  Outcome stopped = run_program(arguments("parts"), o);
  BOOST_REQUIRE_MESSAGE(stopped.code == 75, stopped.err);
  Outcome rejected = run_program(arguments("parts"));
  BOOST_TEST(rejected.code == 2);
  BOOST_TEST(rejected.err.find("--resume") != std::string::npos, rejected.err);
  auto more = arguments("parts");
  more.push_back("--resume");
  Outcome rest = run_program(more);
  BOOST_REQUIRE_MESSAGE(rest.code == 0, rest.err);

  BOOST_TEST((read_file(tmp.path() / "whole/model/model.safetensors") ==
              read_file(tmp.path() / "parts/model/model.safetensors")));
  Events a = events_of(whole.out), b = events_of(read_file(tmp.path() / "parts/metrics.jsonl"));
  BOOST_REQUIRE(a.steps.size() == b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) BOOST_TEST(a.steps[i]["loss"] == b.steps[i]["loss"]);
  BOOST_TEST(a.evals.back()["loss"] == b.evals.back()["loss"]);
}

BOOST_AUTO_TEST_CASE(resuming_another_run_is_rejected_with_the_keys_that_differ) {
  TemporaryDirectory tmp;
  auto arguments = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--set", "output.checkpoint_every=2"});
    return small_run(tmp.path() / "out", more);
  };
  BOOST_REQUIRE(run_program(arguments({})).code == 0);
  Outcome r = run_program(arguments({"--resume", "--set", "optimizer.lr=0.5"}));
  BOOST_TEST(r.code == 2);
  BOOST_TEST(r.err.find("optimizer.lr") != std::string::npos, r.err);
}

BOOST_AUTO_TEST_CASE(cuda_falls_back_with_its_reason_unless_forbidden) {
  TemporaryDirectory tmp;
  Outcome r = run_program(small_run(tmp.path() / "out", {"--backend=cuda"}));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  Events e = events_of(r.out);
  BOOST_TEST(e.start["requested"] == "cuda");
  if (e.start["backend"] == "cpu") BOOST_TEST(!e.start["fallback_reason"].get<std::string>().empty());
  Outcome strict = run_program(small_run(tmp.path() / "strict", {"--backend=cuda", "--no-fallback"}));
  BOOST_TEST((strict.code == 4 || e.start["backend"] == "cuda"), strict.err);
}

BOOST_AUTO_TEST_CASE(a_run_over_its_budget_exits_3_before_allocation) {
  TemporaryDirectory tmp;
  Outcome r = run_program(small_run(tmp.path() / "out", {"--set", "memory.budget=100KB"}));
  BOOST_TEST(r.code == 3);
  BOOST_TEST(r.err.find("memory.budget") != std::string::npos, r.err);
  BOOST_TEST(!fs::exists(tmp.path() / "out"));
  // Training looks for no changes, so it does not say that there are none.
  r = run_program({"train", "--set", "memory.budget=100KB"});
  BOOST_TEST(r.code == 3);
  BOOST_TEST(r.err.find("trainhost plan, with the same arguments, lists changes") != std::string::npos,
             r.err);
  BOOST_TEST(r.err.find("No change makes it fit") == std::string::npos, r.err);
}

// Budgets from the bytes of "full" up to those of "none": no run exceeds its budget, and all train the same
// bits.
BOOST_AUTO_TEST_CASE(auto_recompute_fits_every_budget_and_gives_the_same_weights) {
  TemporaryDirectory tmp;
  auto arguments = [&](const std::string& dir, std::vector<std::string> more) {
    more.insert(more.begin(), {"--set", "model.num_hidden_layers=5", "--set", "data.seq_len=64", "--set",
                               "train.micro_batch=4"});
    return small_run(tmp.path() / dir, more);
  };
  auto needs = [&](const char* recompute) {
    Outcome r = run_program(arguments(
        "unused", {"--set", std::string("train.recompute=") + recompute, "--set", "memory.budget=1KB"}));
    BOOST_REQUIRE(r.code == 3);
    Outcome p = run_program(arguments(recompute, {"--set", std::string("train.recompute=") + recompute}));
    BOOST_REQUIRE_MESSAGE(p.code == 0, p.err);
    return events_of(p.out).done["memory"]["predicted_bytes"].get<std::uint64_t>();
  };
  const std::uint64_t none = needs("none"), full = needs("full");
  BOOST_REQUIRE(full < none);
  const std::string bits = read_file(tmp.path() / "none/model/model.safetensors");
  std::set<std::string> choices;
  for (std::uint64_t tenth = 0; tenth <= 10; ++tenth) {
    const std::uint64_t budget = full + (none - full) * tenth / 10;
    const std::string dir = "auto" + std::to_string(tenth);
    Outcome r = run_program(arguments(
        dir, {"--set", "train.recompute=auto", "--set", "memory.budget=" + std::to_string(budget) + "B"}));
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    Events e = events_of(r.out);
    const json m = e.done["memory"], chosen = e.start["plan"]["recompute"];
    BOOST_TEST(m["predicted_bytes"] == m["measured_bytes"]);
    BOOST_TEST(m["predicted_bytes"] == e.start["plan"]["estimates"][0]["total_bytes"]);
    BOOST_TEST(m["measured_bytes"].get<std::uint64_t>() <= budget);
    BOOST_TEST(chosen["asked"] == "auto");
    BOOST_TEST(e.done["recompute"] == chosen);
    BOOST_TEST(json::parse(read_file(tmp.path() / dir / "summary.json"))["recompute"] == chosen);
    if (tenth == 10) BOOST_TEST(chosen["words"] == "none");
    choices.insert(chosen["words"]);
    BOOST_TEST((read_file(tmp.path() / dir / "model/model.safetensors") == bits), chosen["words"]);
  }
  BOOST_TEST(choices.size() >= 5u);

  Outcome short_of = run_program(arguments("short", {"--set", "train.recompute=auto", "--set",
                                                     "memory.budget=" + std::to_string(full - 1) + "B"}));
  BOOST_TEST(short_of.code == 3);
  BOOST_TEST(short_of.err.find("with every layer recomputed") != std::string::npos, short_of.err);
  BOOST_TEST(short_of.err.find("(1 bytes) short") != std::string::npos, short_of.err);
}

BOOST_AUTO_TEST_CASE(resume_with_another_recompute_policy_gives_the_same_weights) {
  TemporaryDirectory tmp;
  auto arguments = [&](const char* dir, std::vector<std::string> more) {
    more.insert(more.begin(), {"--set", "output.checkpoint_every=2"});
    return small_run(tmp.path() / dir, more);
  };
  BOOST_REQUIRE(run_program(arguments("whole", {})).code == 0);
  BOOST_REQUIRE(run_program(arguments("parts", {})).code == 0);
  for (const fs::directory_entry& d : fs::directory_iterator(tmp.path() / "parts/checkpoints"))
    if (d.path().filename().string().find('4') != std::string::npos) fs::remove_all(d.path());
  Outcome rest = run_program(arguments("parts", {"--resume", "--set", "train.recompute=full"}));
  BOOST_REQUIRE_MESSAGE(rest.code == 0, rest.err);
  BOOST_TEST(events_of(rest.out).start["resumed_from"] == 2);
  BOOST_TEST((read_file(tmp.path() / "whole/model/model.safetensors") ==
              read_file(tmp.path() / "parts/model/model.safetensors")));
}

BOOST_AUTO_TEST_CASE(generate_continues_a_prompt_from_a_finished_run) {
  TemporaryDirectory tmp;
  BOOST_REQUIRE(run_program(small_run(tmp.path() / "out")).code == 0);
  Outcome r = run_program({"generate", (tmp.path() / "out").string(), "--prompt", "Once", "--tokens", "50"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(r.out.rfind("Once", 0) == 0u);
  Outcome again =
      run_program({"generate", (tmp.path() / "out/model").string(), "--prompt", "Once", "--tokens", "50"});
  BOOST_TEST(again.out == r.out);

  // Several prompts at a time have the texts of each alone; memory is what was stated.
  const fs::path prompts =
      tmp.write("prompts.jsonl", "{\"prompt\": \"Once\"}\n{\"prompt\": \"A\"}\n\"The\"\n");
  std::vector<std::string> command = {"generate",      (tmp.path() / "out").string(),
                                      "--prompts",     prompts.string(),
                                      "--tokens",      "20",
                                      "--temperature", "0",
                                      "--json",        "--backend=cpu"};
  const auto lines = [](const std::string& text) {
    std::vector<json> all;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
    return all;
  };
  r = run_program(command);
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(has(r.err, " for 3 x 24 positions"), r.err);  // the longest prompt and 20 tokens
  const std::vector<json> together = lines(r.out);
  BOOST_REQUIRE(together.size() == 4u);
  BOOST_TEST(together[0]["prompt"] == "Once");
  BOOST_TEST(together[2]["completion_tokens"] == 20);
  BOOST_TEST(together[2]["finish_reason"] == "length");
  BOOST_TEST(together[3]["memory"]["predicted_bytes"] == together[3]["memory"]["measured_bytes"]);
  BOOST_TEST(together[3]["speed"]["steps"] == 19);
  command.push_back("--batch=1");
  const std::vector<json> alone = lines(run_program(command).out);
  for (int i = 0; i < 3; ++i) BOOST_TEST((alone[i] == together[i]));
}

#ifndef __SANITIZE_ADDRESS__  // ASan's shadow memory would be counted
// 512 tokens have activations of 212 MiB, more than the bound adds: a second allocation would be found.
BOOST_AUTO_TEST_CASE(a_110m_model_stays_within_the_prediction_and_the_runtime_bound) {
  TemporaryDirectory tmp;
  fs::path text =
      tmp.write("text.txt", std::string(5000, 'a'));  // no validation text: two steps use all the memory
  Outcome r =
      run_program({"train", "--json", "-q", "--set", "data.train=" + text.string(), "--set",
                   "model.preset=llama-110m", "--set", "data.seq_len=512", "--set", "train.micro_batch=1",
                   "--set", "train.steps=2", "--set", "optimizer.warmup_steps=1", "--set", "train.threads=2",
                   "--set", "output.dir=" + (tmp.path() / "out").string()});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  json m = events_of(r.out).done["memory"];
  double predicted = m["predicted_bytes"], peak = m["process_peak_bytes"];
  BOOST_TEST_MESSAGE("predicted " << predicted << ", VmHWM " << peak << ", ratio " << peak / predicted);
  BOOST_TEST(m["predicted_bytes"] == m["measured_bytes"]);
  BOOST_TEST(peak <= predicted + (64.0 + 2 * 40) * 1048576);
  BOOST_TEST(peak >= 0.97 * predicted);
}
#endif

BOOST_AUTO_TEST_SUITE_END()
