// The advice of `plan` and the results of `sweep`, tested through the program: every printed change is
// applied and must fit, every limit is tested together with the next value, and all real configs next to the
// checkout are planned.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/process.hpp"

using namespace trainhost::test;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

Outcome plan(std::vector<std::string> arguments, const std::vector<std::string>& sets = {}) {
  arguments.insert(arguments.begin(), "plan");
  for (const std::string& s : sets) arguments.insert(arguments.end(), {"--set", s});
  return run_program(arguments);
}

/// Plans again with the settings of a change; its device or backend replaces the one in `arguments`.
Outcome plan_changed(std::vector<std::string> arguments, std::vector<std::string> sets, const Json& change,
                     bool json) {
  for (const std::string s : change["set"]) {
    if (s.starts_with("memory.device="))
      std::erase_if(arguments, [](const std::string& w) {
        return w.starts_with("--device=") || w.starts_with("--budget=");
      });
    if (s.starts_with("train.backend="))
      std::erase_if(arguments, [](const std::string& w) { return w.starts_with("--backend="); });
    sets.push_back(s);
  }
  if (json) arguments.push_back("--json");
  return plan(std::move(arguments), sets);
}

Json json_of(const Outcome& r) {
  BOOST_REQUIRE_MESSAGE(r.code == 0 || r.code == 3, r.err);
  return Json::parse(r.out);
}

Json plan_json(std::vector<std::string> arguments, const std::vector<std::string>& sets = {}) {
  arguments.push_back("--json");
  return json_of(plan(std::move(arguments), sets));
}

std::uint64_t limit(const Json& j, const std::string& what) {
  for (const Json& l : j["limits"])
    if (l["what"] == what) return l["value"];
  BOOST_ERROR("no limit " + what);
  return 0;
}

/// Applies every change: the run fits and needs the printed bytes (an open mode or "auto" may choose to use
/// more).
void changes_fit(const std::vector<std::string>& arguments, const std::vector<std::string>& sets,
                 const Json& j, std::size_t least, bool same_bytes = true) {
  BOOST_TEST(j["changes"].size() >= least, j["changes"].dump());
  std::set<std::string> seen;
  for (const Json& c : j["changes"]) {
    BOOST_TEST(seen.insert(c["settings"].get<std::string>()).second);
    const Outcome r = plan_changed(arguments, sets, c, true);
    BOOST_TEST(r.code == 0, c.dump() + r.out + r.err);
    if (!same_bytes || r.code != 0 || c["set"][0] == "train.backend=auto") continue;
    const Json again = Json::parse(r.out);
    std::uint64_t device = 0;
    for (const Json& t : again["estimates"][0]["tiers"])
      if (t["tier"] == "device") device = t["total_bytes"];
    BOOST_TEST((device == c["compute_bytes"] || again["estimates"][0]["total_bytes"] == c["compute_bytes"]),
               c.dump());
  }
}

/// Real model configs next to the checkout; the tests that need them are skipped if they are missing.
const fs::path kConfigs = fs::path(TRAINHOST_SOURCE_DIR) / "../shared/data/hf_configs";

}  // namespace

BOOST_AUTO_TEST_SUITE(answers)

BOOST_AUTO_TEST_CASE(tensor_parallelism_on_the_same_devices_comes_before_more_devices) {
  const std::vector<std::string> arguments = {"--model=llama-3-8b", "--for=megatron", "--device=h100-80gb"},
                                 sets = {"parallel.data=8", "parallel.zero=1", "data.seq_len=8192"};
  const Json j = plan_json(arguments, sets);
  BOOST_REQUIRE(j["changes"].size() >= 2u);
  BOOST_TEST(j["changes"][0]["set"] == Json({"parallel.tensor=2", "parallel.sequence=true", "parallel.data=4",
                                             "train.grad_accum=2"}),
             j["changes"].dump());
  changes_fit(arguments, sets, j, 2);
}

BOOST_AUTO_TEST_CASE(changes_of_a_device_run_fit_when_applied) {
  const std::vector<std::string> arguments = {"--model=llama-3-8b", "--device=h100-80gb"},
                                 sets = {"plugin.cuda.mode=resident", "train.micro_batch=32",
                                         "data.seq_len=1024"};
  const Json j = plan_json(arguments, sets);
  BOOST_TEST(j["estimates"][0]["fits"] == false);
  changes_fit(arguments, sets, j, 3);
  const std::string text = plan(arguments, sets).out;
  BOOST_TEST(text.find("Any one of these makes it fit:") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(changes_of_a_run_in_pytorch_fit_when_applied) {
  // Activations that other batches reduce; states that only another device or smaller states help against.
  const std::vector<std::string> activations = {"--model=llama-3.2-3b", "--device=a100-80gb",
                                                "--for=pytorch"},
                                 states = {"--model=llama-2-7b", "--device=h100-80gb", "--for=pytorch"},
                                 sets = {"train.micro_batch=8"};
  changes_fit(activations, sets, plan_json(activations, sets), 3);
  changes_fit(states, {}, plan_json(states), 1);
}

// An H200 keeps transposed copies of weights in 8 bits, a sixth of these states; a GB200 has none.
BOOST_AUTO_TEST_CASE(a_device_that_needs_fewer_copies_is_suggested_though_it_has_less_than_the_run_needs) {
  const std::vector<std::string> arguments = {"--model=qwen1.5-32b", "--for=megatron", "--device=h200-141gb"},
                                 sets = {"plan.fp8_recipe=tensorwise", "plan.fp8_weights=true",
                                         "parallel.data=64",           "parallel.zero=1",
                                         "data.seq_len=1024",          "train.recompute=full"};
  const Json j = plan_json(arguments, sets);
  const auto has_less = [&](const Json& c) {
    return c["set"] == Json::array({"memory.device=gb200-186gb"}) &&
           c["compute_bytes"] < j["estimates"][0]["total_bytes"];
  };
  BOOST_TEST(std::ranges::any_of(j["changes"], has_less), j["changes"].dump());
  changes_fit(arguments, sets, j, 2);
}

/// A combination is for runs that no part of it makes fit.
BOOST_AUTO_TEST_CASE(no_change_contains_one_that_fits_alone) {
  const std::vector<std::string> runs[] = {
      {"--model=llama-3.3-70b", "--for=fsdp2", "--device=h100-80gb", "--devices=64", "--set",
       "data.seq_len=8192"},
      {"--model=llama-3-8b", "--for=pytorch", "--device=rtx-4090", "--set", "lora.rank=16"},
  };
  for (const std::vector<std::string>& arguments : runs) {
    const Json j = plan_json(arguments);
    BOOST_TEST(j["changes"].size() >= 1u);
    for (const Json& a : j["changes"])
      for (const Json& b : j["changes"]) {
        const std::set<std::string> part = a["set"], whole = b["set"];
        BOOST_TEST((part.size() >= whole.size() || !std::ranges::includes(whole, part)),
                   a["set"].dump() + " fits, and is a part of " + b["set"].dump());
      }
  }
}

BOOST_AUTO_TEST_CASE(changes_have_the_bytes_of_the_estimator_that_plans_them) {
  // FSDP2 of one device has no replay, so the closed form answers; that of 16 devices has one.
  const std::vector<std::string> arguments = {"--model=llama-3-8b", "--device=v100-32gb", "--for=torchtitan"};
  const Json j = plan_json(arguments);
  BOOST_TEST(j["estimates"][0]["estimator"] == "transformer");
  changes_fit(arguments, {}, j, 3);
  BOOST_TEST(std::ranges::any_of(j["changes"], [](const Json& c) { return c["estimator"] == "pytorch"; }),
             j["changes"].dump());
}

BOOST_AUTO_TEST_CASE(recomputation_that_is_described_with_data_ranks_only_is_suggested_with_them) {
  // litgpt recomputes layers under FSDP only, so recomputation alone is refused.
  const Json j = plan_json({"--model=llama-3-8b", "--device=h100-80gb", "--for=litgpt"},
                           {"data.seq_len=8192", "train.micro_batch=4"});
  const bool suggested = std::ranges::any_of(j["changes"], [](const Json& change) {
    const std::set<std::string> set = change["set"];
    return set.contains("train.recompute=full") && set.contains("parallel.data=2");
  });
  BOOST_TEST(suggested, j["changes"].dump());
}

BOOST_AUTO_TEST_CASE(a_safe_plan_of_fsdp_is_larger_and_says_what_it_assumes) {
  const std::vector<std::string> arguments = {"--model=llama-3-8b", "--device=h100-80gb", "--for=fsdp2"},
                                 sets = {"parallel.data=8"};
  const Json j = plan_json(arguments, sets);
  BOOST_TEST(j["assumed"].dump().find("parallel.zero = 3") != std::string::npos, j["assumed"].dump());
  std::vector<std::string> safe = arguments;
  safe.push_back("--safe");
  const Json bound = plan_json(safe, sets);
  BOOST_TEST(bound["estimates"][0]["kind"] == "upper_bound");
  BOOST_TEST(bound["estimates"][0]["total_bytes"] > j["estimates"][0]["total_bytes"]);
  BOOST_TEST(plan(safe, sets).out.find("Upper bounds (--safe): the estimate is ") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(changes_of_a_host_run_fit_when_applied) {
  const std::vector<std::string> arguments = {"--backend=cpu", "--budget=10MB"},
                                 sets = {"train.micro_batch=8"};
  changes_fit(arguments, sets, plan_json(arguments, sets), 3);
}

BOOST_AUTO_TEST_CASE(changes_that_training_would_reject_are_marked) {
  // A budget that nothing fits ends the command with 3 as soon as the settings are accepted.
  const auto rejected = [](const Json& change) {
    std::vector<std::string> words = {"train", "--backend=cpu"};
    for (const std::string s : change["set"])
      if (!s.starts_with("memory.device=")) words.insert(words.end(), {"--set", s});
    words.insert(words.end(), {"--set", "memory.budget=1B"});
    const Outcome r = run_program(words);
    BOOST_TEST((r.code == 2 || r.code == 3), r.err);
    return r.code == 2;
  };
  std::size_t marked = 0, adapters = 0, trained = 0, by_ranks = 0;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--model=llama-2-7b", "--device=a100-80gb", "--budget=6GiB",
                                 "--host-budget=24GiB"},
        {"--model=llama-2-7b", "--device=h100-80gb", "--devices=4"},
        {"--backend=cpu", "--budget=10MB", "--set", "train.micro_batch=8"}}) {
    const Json j = plan_json(arguments);
    for (const Json& c : j["changes"]) {
      const std::string sentence = c["sentence"].get<std::string>();
      const bool ranks = sentence.ends_with("; trained by several processes"),
                 mark = sentence.ends_with("; planned here, but not trained");
      BOOST_TEST((mark || ranks) == rejected(c), c.dump());
      // Only the trainer's own step program tells that it trains these ranks.
      if (ranks) BOOST_TEST(c["estimator"] == "llama", c.dump());
      marked += mark, trained += !mark, by_ranks += ranks;
      adapters += c["settings"].get<std::string>().find("lora.") != std::string::npos;
    }
  }
  BOOST_TEST(marked >= 4u);
  BOOST_TEST(by_ranks >= 2u);
  BOOST_TEST(adapters >= 1u);
  BOOST_TEST(trained >= 3u);
}

// Where tensor parallelism leaves one data rank, a ZeRO stage would be an error.
BOOST_AUTO_TEST_CASE(a_change_to_one_data_rank_shards_nothing) {
  const Json j = plan_json({"--model=llama-3-8b", "--device=h100-80gb", "--devices=2"}, {"parallel.zero=1"});
  std::size_t found = 0;
  for (const Json& c : j["changes"]) {
    const std::string set = c["set"].dump();
    if (set.find("parallel.data=1\"") == std::string::npos) continue;
    ++found;
    BOOST_TEST(set.find("parallel.zero=0") != std::string::npos, set);
  }
  BOOST_TEST(found == 1u);
}

BOOST_AUTO_TEST_CASE(changes_to_another_backend_are_last_and_marked) {
  const std::vector<std::string> arguments = {"--backend=cpu", "--budget=10MB"};
  const Json j = plan_json(arguments);
  std::size_t keeping = 0;
  bool left = false;
  for (const Json& c : j["changes"]) {
    const bool device = c["settings"].get<std::string>().find("memory.device") != std::string::npos;
    BOOST_TEST((device || !left), c.dump());
    left = left || device, keeping += !device;
    if (device)
      BOOST_TEST(c["cost_words"].get<std::string>().ends_with("without the selected backend cpu"), c.dump());
  }
  BOOST_TEST(keeping >= 3u);
  BOOST_TEST(left);
}

BOOST_AUTO_TEST_CASE(without_a_sufficient_single_change_the_reason_and_combinations_are_printed) {
  const fs::path config = kConfigs / "DeepSeek-V3.json";
  if (!fs::exists(config)) {
    BOOST_TEST_MESSAGE("skipped: no ../shared/data/hf_configs next to the checkout");
    return;
  }
  const std::vector<std::string> arguments = {"--model=" + config.string(), "--device=rtx-4090"};
  const Json j = plan_json(arguments);
  BOOST_TEST(
      j["changes_note"].get<std::string>().starts_with("No single change makes it fit in 23.6 GiB: weights, "
                                                       "gradients and optimizer state alone take 11.0 TiB."),
      j["changes_note"].dump());
  changes_fit(arguments, {}, j, 3);
  const Json enough = plan_json({"--backend=cpu", "--budget=21MB"});
  BOOST_TEST((enough["changes"].size() >= 3u && !enough.contains("changes_note")), enough.dump());
}

BOOST_AUTO_TEST_CASE(expert_parallelism_is_suggested_with_more_ranks_than_experts) {
  const Json j =
      plan_json({"--model=mixtral-8x7b-v0.1", "--device=h100-80gb", "--set", "train.precision=bf16", "--set",
                 "parallel.zero=1", "--set", "optimizer.name=sgd", "--set", "parallel.data=16"});
  const auto& all = j["changes"];
  BOOST_TEST(std::any_of(all.begin(), all.end(),
                         [](const Json& c) { return c["set"] == Json{"parallel.expert=8"}; }),
             all.dump());
}

BOOST_AUTO_TEST_CASE(a_distributed_run_counts_its_devices_and_changes_name_each_key_once) {
  const Json j = plan_json({"--model=deepseek-v3", "--device=h100-80gb", "--set", "train.precision=bf16",
                            "--set", "data.seq_len=4096", "--set", "parallel.data=64", "--set",
                            "parallel.expert=64", "--set", "parallel.zero=1"});
  BOOST_TEST(j["ranks"] == 64);
  BOOST_TEST(j["changes"].size() >= 3u);
  for (const Json& c : j["changes"]) {
    std::vector<std::string> keys;
    for (const Json& set : c["set"])
      keys.push_back(set.get<std::string>().substr(0, set.get<std::string>().find('=')));
    std::sort(keys.begin(), keys.end());
    BOOST_TEST((std::adjacent_find(keys.begin(), keys.end()) == keys.end()), c["settings"].dump());
  }
}

BOOST_AUTO_TEST_CASE(expert_parallelism_over_existing_ranks_is_suggested_before_more_devices) {
  const std::vector<std::string> arguments = {"--model=deepseek-v2-lite", "--device=h100-80gb"},
                                 sets = {"train.precision=bf16", "data.seq_len=4096", "train.micro_batch=1",
                                         "parallel.data=8", "parallel.zero=1"};
  const Json j = plan_json(arguments, sets);
  const auto shares = [](const Json& c) {
    return c["set"].size() == 1 && c["set"][0].get<std::string>().starts_with("parallel.expert=");
  };
  const auto change = std::find_if(j["changes"].begin(), j["changes"].end(), shares);
  BOOST_REQUIRE_MESSAGE(change != j["changes"].end(), j["changes"].dump(1));
  BOOST_TEST((*change)["price"] == "time");
  BOOST_TEST(plan_changed(arguments, sets, *change, false).code == 0);
  const auto hardware = std::find_if(j["changes"].begin(), j["changes"].end(),
                                     [](const Json& c) { return c["price"] == "hardware"; });
  BOOST_TEST((change < hardware));
}

BOOST_AUTO_TEST_CASE(the_forward_timeline_of_a_streamed_step_is_layer_by_layer_and_ends_in_the_head) {
  const Json j = plan_json({"--model=llama-3-8b", "--device=h100-80gb", "--set", "train.precision=bf16"});
  BOOST_REQUIRE(j["mode"] == "streamed");
  std::vector<std::string> forward;
  for (const Json& m : j["timeline"])
    if (m["moment"].get<std::string>().starts_with("forward, ")) forward.push_back(m["moment"]);
  BOOST_REQUIRE(forward.size() >= 33u);
  BOOST_TEST(forward.back() == "forward, head");
  BOOST_TEST(forward[forward.size() - 2] == "forward, layer 31");
}

BOOST_AUTO_TEST_CASE(a_run_that_fits_gets_no_changes) {
  const Json j = plan_json({"--backend=cpu", "--budget=1GB"});
  BOOST_TEST(j["changes"].empty());
  BOOST_TEST(j["ranks"] == 1);
}

BOOST_AUTO_TEST_CASE(limits_fit_and_the_next_value_does_not) {
  const std::vector<std::string> arguments = {"--backend=cpu", "--budget=100MB"};
  std::vector<std::string> with_limits = arguments;
  with_limits.push_back("--limits");
  const Json j = plan_json(with_limits);
  for (const auto& [what, key] : {std::pair{"largest train.micro_batch", "train.micro_batch="},
                                  {"longest data.seq_len", "data.seq_len="}}) {
    const std::uint64_t most = limit(j, what);
    BOOST_TEST(most > 1u);
    BOOST_TEST(plan(arguments, {key + std::to_string(most)}).code == 0);
    BOOST_TEST(plan(arguments, {key + std::to_string(most + 1)}).code == 3);
  }
}

// Their losses predict the next token, so they refuse a length of 1, with which the search began.
BOOST_AUTO_TEST_CASE(the_longest_sequence_is_found_where_a_single_token_is_refused) {
  for (const std::vector<std::string>& sets : {std::vector<std::string>{"plan.framework=litgpt"},
                                               {"plan.framework=transformers", "plan.method=dpo"}}) {
    const Json j = plan_json({"--model=llama-3.2-1b", "--device=h100-80gb", "--limits"}, sets);
    BOOST_TEST(limit(j, "longest data.seq_len") > 4096u, sets[0]);
  }
  const Outcome one =
      plan({"--model=llama-3.2-1b", "--device=h100-80gb"}, {"plan.framework=litgpt", "data.seq_len=1"});
  BOOST_TEST(one.code == 0);
  BOOST_TEST(one.out.find("data.seq_len = 1 in litgpt") != std::string::npos, one.out);
}

BOOST_AUTO_TEST_CASE(the_timeline_peaks_at_the_estimate) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--backend=cpu"}, {"--backend=cpu", "--estimator=contract"}}) {
    const Json j = plan_json(arguments);
    std::uint64_t most = 0;
    for (const Json& m : j["timeline"]) {
      std::uint64_t sum = 0;
      for (const auto& [name, bytes] : m["components"].items()) sum += bytes.get<std::uint64_t>();
      BOOST_TEST(sum == m["bytes"].get<std::uint64_t>());
      most = std::max(most, sum);
    }
    BOOST_TEST(most == j["estimates"][0]["total_bytes"].get<std::uint64_t>());
  }
}

BOOST_AUTO_TEST_CASE(attention_scores_dominate_from_the_published_sequence_lengths) {
  // 11H/A, 34H/A, and 34h/5a = 870.4: the first whole number at which they outweigh the rest.
  for (const auto& [terms, tokens] : {std::pair{"equation", 1408}, {"exercise", 4352}, {"paper", 871}}) {
    const Outcome r = run_program({"sweep", "--model=llama-2-7b", "--device=h100-80gb", "--over",
                                   "data.seq_len=512..16384", "--estimator=memory-equation", "--set",
                                   "train.precision=bf16", "--set", "plan.attention=materialised", "--set",
                                   std::string("plugin.memory-equation.terms=") + terms, "--json"});
    const Json j = json_of(r);
    bool found = false;
    for (const Json& c : j["crossovers"])
      found = found || (c["x"] == tokens && c["sentence"].get<std::string>().find(
                                                "scores exceeds all other activations") != std::string::npos);
    BOOST_TEST(found, terms << ": " << j["crossovers"].dump());
  }
}

BOOST_AUTO_TEST_CASE(a_sweep_finds_the_first_token_count_over_budget) {
  const std::vector<std::string> arguments = {"sweep",         "--over",        "data.seq_len=64..4096",
                                              "--backend=cpu", "--budget=60MB", "--json"};
  const Json j = json_of(run_program(arguments));
  std::uint64_t edge = 0;
  for (const Json& c : j["crossovers"])
    if (c["sentence"].get<std::string>().starts_with("no longer fits")) edge = c["x"];
  BOOST_REQUIRE(edge > 64);
  BOOST_TEST(plan({"--backend=cpu", "--budget=60MB"}, {"data.seq_len=" + std::to_string(edge)}).code == 3);
  BOOST_TEST(plan({"--backend=cpu", "--budget=60MB"}, {"data.seq_len=" + std::to_string(edge - 1)}).code ==
             0);
}

BOOST_AUTO_TEST_CASE(a_sweep_over_ranks_uses_one_estimator_that_plans_every_point) {
  const std::vector<std::string> arguments = {"sweep", "--model=llama-3-8b", "--device=h100-80gb", "--over",
                                              "parallel.tensor=1,2,4"};
  std::vector<std::string> json = arguments;
  json.push_back("--json");
  const Json j = json_of(run_program(json));
  BOOST_REQUIRE(j["curves"].size() == 1u);
  BOOST_TEST(j["curves"][0]["estimator"] == "transformer");
  for (const Json& p : j["curves"][0]["points"]) BOOST_TEST(p.contains("total_bytes"), p.dump());
  const std::string text = run_program(arguments).out;
  BOOST_TEST(text.find("estimator transformer is used because it plans every point; llama matches the first "
                       "point better") != std::string::npos,
             text);
}

BOOST_AUTO_TEST_CASE(each_point_of_a_sweep_has_the_recompute_policy_of_its_mode) {
  const std::vector<std::string> arguments = {"sweep", "--model=llama-3.2-3b", "--device=h100-80gb", "--over",
                                              "data.seq_len=512..16384"};
  std::vector<std::string> json = arguments;
  json.push_back("--json");
  const Json j = json_of(run_program(json));
  BOOST_TEST(j["run"].get<std::string>().find("recompute none") == std::string::npos, j["run"].dump());
  for (const Json& p : j["curves"][0]["points"]) {
    const Outcome one = plan({"--model=llama-3.2-3b", "--device=h100-80gb"},
                             {"data.seq_len=" + p["value"].get<std::string>()});
    const std::string how = p["how"];
    BOOST_TEST(one.out.find(how.substr(how.find("recompute"))) != std::string::npos, how << " is not in\n"
                                                                                         << one.out);
  }
}

BOOST_AUTO_TEST_CASE(a_sweep_writes_its_files_and_carries_what_is_no_run) {
  TemporaryDirectory tmp;
  RunOptions o;
  o.directory = tmp.path();
  const Outcome r = run_program(
      {"sweep", "--over", "model.num_attention_heads=3,5,6", "--set", "model.hidden_size=96", "--set",
       "model.num_key_value_heads=3", "--backend=cpu", "--csv", "s.csv", "--html", "s.html", "--json"},
      o);
  const Json j = json_of(r);
  BOOST_TEST(j["curves"][0]["points"][0].contains("total_bytes"));
  BOOST_TEST(j["curves"][0]["points"][1].contains("error"));
  BOOST_TEST(fs::file_size(tmp.path() / "s.csv") > 100u);
  BOOST_TEST(fs::file_size(tmp.path() / "s.html") > 1000u);
  BOOST_TEST(run_program({"sweep", "--over", "data.seq_lenn=1..2"}).code == 2);
  BOOST_TEST(run_program({"sweep"}).code == 2);
}

BOOST_AUTO_TEST_CASE(every_real_config_is_planned_and_its_changes_fit,
                     *boost::unit_test::precondition([](auto) {
                       if (!fs::is_directory(kConfigs))
                         BOOST_TEST_MESSAGE("skipped: no ../shared/data/hf_configs next to the checkout");
                       return boost::test_tools::assertion_result(fs::is_directory(kConfigs));
                     })) {
  const std::set<std::string> known = {"weights",     "master_weights", "gradients",     "optimizer_state",
                                       "activations", "logits",         "workspace",     "communication",
                                       "kv_cache",    "adapters",       "fragmentation", "runtime"};
  std::size_t configs = 0;
  for (const auto& file : fs::directory_iterator(kConfigs)) {
    const std::string name = file.path().filename().string();
    if (file.path().extension() != ".json" || name == "PARAMS.json") continue;
    ++configs;
    BOOST_TEST_CONTEXT(name) {
      const std::vector<std::string> arguments = {"--model=" + file.path().string(), "--device=h100-80gb"},
                                     sets = {"train.precision=bf16", "data.seq_len=2048"};
      const Outcome text = plan(arguments, sets);
      BOOST_TEST((text.code == 0 || text.code == 3), text.err);
      BOOST_TEST(text.out.find("total on device") != std::string::npos, text.out);
      BOOST_TEST(text.out.find(" 0 B ") == std::string::npos, text.out);
      const Json j = plan_json(arguments, sets);
      for (const Json& t : j["estimates"][0]["tiers"])
        for (const Json& c : t["components"]) BOOST_TEST(known.count(c["name"]) == 1u, c.dump());
      if (text.code == 3) BOOST_TEST(j["changes"].size() >= 3u, j["changes"].dump());
      for (std::size_t i = 0; i < j["changes"].size(); i += 4) {  // every fourth: all would take minutes
        BOOST_TEST(plan_changed(arguments, sets, j["changes"][i], false).code == 0, j["changes"][i].dump());
      }
    }
  }
  BOOST_TEST(configs >= 40u);
}

BOOST_AUTO_TEST_CASE(adapters_that_a_framework_trains_are_suggested_although_they_are_not_replayed) {
  const std::vector<std::string> arguments = {"--model=llama-3-70b", "--device=h100-80gb"},
                                 sets = {"parallel.data=8"};
  const auto adapters = [&](const std::string& framework, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = arguments, settings = sets;
    all.push_back("--for=" + framework);
    settings.insert(settings.end(), more.begin(), more.end());
    const Json j = plan_json(all, settings);
    changes_fit(all, settings, j, 1);
    for (const Json& c : j["changes"])
      for (const std::string s : c["set"])
        if (s.starts_with("lora.")) return c;
    return Json();
  };
  const Json closed = adapters("fsdp2");
  BOOST_REQUIRE(closed.is_object());
  BOOST_TEST(closed["estimator"] == "transformer");
  BOOST_TEST(closed["sentence"].get<std::string>().find("by the closed form, whose upper bounds fit too") !=
             std::string::npos);
  BOOST_TEST(closed["set"] == Json({"train.recompute=full", "lora.rank=8"}), closed.dump());
  const Json replayed = adapters("deepspeed", {"parallel.zero=3"});
  BOOST_REQUIRE(replayed.is_object());
  BOOST_TEST(replayed["estimator"] == "pytorch");
  BOOST_TEST(replayed["set"] == Json({"lora.rank=8"}), replayed.dump());
  BOOST_TEST(adapters("torchtitan", {"parallel.zero=3"}).is_null());
}

// Unsloth has data parallelism alone, and the closed form that answers for its full training knows more.
BOOST_AUTO_TEST_CASE(no_change_divides_a_model_that_the_framework_does_not_divide) {
  const auto changes = [](const char* framework, const char* ranks) {
    return plan_json({"--model=qwen3-32b", "--device=a100-40gb", std::string("--for=") + framework},
                     {ranks})["changes"]
        .dump();
  };
  for (const char* ranks : {"parallel.data=1", "parallel.data=8"}) {
    const std::string unsloth = changes("unsloth", ranks);
    for (const char* key : {"parallel.tensor", "parallel.pipeline", "parallel.zero"})
      BOOST_TEST(unsloth.find(key) == std::string::npos, unsloth);
  }
  BOOST_TEST(changes("megatron", "parallel.data=1").find("parallel.tensor") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
