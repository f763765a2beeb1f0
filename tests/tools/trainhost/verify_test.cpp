// trainhost verify as a user runs it: the JSON, the exit codes, skipped checks and their reasons.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/process.hpp"

using namespace trainhost::test;
using Json = nlohmann::json;

namespace {

/// id -> result; also checks the schema.
std::map<std::string, Json> results(const Outcome& r) {
  const Json all = Json::parse(r.out, nullptr, false);
  BOOST_REQUIRE_MESSAGE(all.is_object() && all.size() == 1 && all.contains("results"), r.out + r.err);
  std::map<std::string, Json> out;
  for (const Json& j : all["results"]) {
    BOOST_TEST(j.size() == 5u);
    BOOST_TEST(j.at("detail").is_string());
    BOOST_TEST((j.at("measured").is_number() || j.at("measured").is_null()));
    BOOST_TEST((j.at("bound").is_number() || j.at("bound").is_null()));
    BOOST_TEST((std::set<std::string>{"held", "falsified", "skipped"}.count(j.at("status")) == 1));
    out[j.at("id")] = j;
  }
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(verify_command)

BOOST_AUTO_TEST_CASE(the_cpu_trainer_holds_every_contract_that_applies) {
  const Outcome r = run_program({"verify", "--backend=cpu", "--json", "--set", "train.steps=20"});
  BOOST_TEST(r.code == 0, r.err);
  auto all = results(r);
  BOOST_TEST(all.size() == 16u);
  for (const char* id : {"REF-001", "GPU-001", "GPU-002", "GPU-006", "GPU-007", "MEM-001", "MEM-002",
                         "MEM-003", "MEM-004", "MEM-005", "MEM-EXACT-001"})
    BOOST_TEST(all[id]["status"] == "held", all[id].dump());
  for (const char* id : {"GPU-003", "GPU-004", "GPU-005", "GPU-008"}) {
    BOOST_TEST(all[id]["status"] == "skipped", all[id].dump());
    BOOST_TEST(has(all[id]["detail"], "makes no transfers"), all[id].dump());
  }
  BOOST_TEST(has(all["GPU-001"]["detail"], "over 20 steps"), all["GPU-001"].dump());
  BOOST_TEST(has(r.err, "GPU-002"), "the table goes to stderr");
}

BOOST_AUTO_TEST_CASE(the_activation_bound_is_tested_under_full_and_reported_for_the_runs_own_policy) {
  Outcome r = run_program({"verify", "--backend=cpu", "--json", "-q", "--only", "MEM-002"});
  BOOST_TEST(r.code == 0, r.err);
  auto all = results(r);
  BOOST_TEST(all.size() == 2u);
  BOOST_TEST(has(all["MEM-002"]["detail"], "recompute = \"full\""), all["MEM-002"].dump());
  BOOST_TEST(all["MEM-002"]["bound"] == 2 * 64 * 64 * 10 * 4 * 2);
  BOOST_TEST(all["MEM-002/run"]["status"] == "falsified", all["MEM-002/run"].dump());
  BOOST_TEST(all["MEM-002/run"]["bound"] == all["MEM-002"]["bound"]);
  r = run_program(
      {"verify", "--backend=cpu", "--json", "-q", "--only", "MEM-002/run", "--set", "train.recompute=full"});
  BOOST_TEST(results(r)["MEM-002/run"]["status"] == "held", r.out);
  // The tensors of one layer exceed the bound, so no policy helps a model of one layer.
  r = run_program(
      {"verify", "--backend=cpu", "--json", "-q", "--only", "MEM-002", "--set", "model.num_hidden_layers=1"});
  BOOST_TEST(r.code == 5, r.out);
}

BOOST_AUTO_TEST_CASE(memory_is_exact_for_every_model_and_optimizer) {
  const std::vector<std::string> base = {"verify", "--backend=cpu", "--json",
                                         "-q",     "--only",        "MEM-001,MEM-004,MEM-005"};
  for (const char* set : {"model.tie_word_embeddings=false", "model.hidden_size=52", "model.head_dim=6",
                          "train.precision=bf16", "model.vocab_size=257", "model.intermediate_size=7"}) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), {"--set", set});
    const Outcome r = run_program(arguments);
    BOOST_TEST(r.code == 0, set + r.out + r.err);
    for (auto& [id, j] : results(r)) BOOST_TEST(j["status"] == "held", set + j.dump());
  }
  std::vector<std::string> arguments = base;
  arguments.insert(arguments.end(),
                   {"--set", "model.tie_word_embeddings=false", "--set", "optimizer.name=sgd"});
  auto all = results(run_program(arguments));
  BOOST_TEST(has(all["MEM-001"]["detail"], "formula gives 108,864 (-13.08 %)"), all["MEM-001"].dump());
  BOOST_TEST(all["MEM-005"]["status"] == "skipped", all["MEM-005"].dump());
  BOOST_TEST(has(all["MEM-005"]["detail"], "this run's optimizer is sgd"), all["MEM-005"].dump());
}

BOOST_AUTO_TEST_CASE(every_supported_precision_and_recompute_policy_is_verified) {
  const Outcome r = run_program({"verify", "--backend=cpu", "--json", "-q", "--set", "train.precision=bf16",
                                 "--set", "train.recompute=auto", "--set", "train.steps=3"});
  BOOST_TEST(r.code == 0, r.err);
  auto all = results(r);
  BOOST_TEST(all["GPU-002"]["status"] == "held", all["GPU-002"].dump());
  BOOST_TEST(has(all["GPU-001"]["detail"], "in fp32 instead of the run's bf16"), all["GPU-001"].dump());
  BOOST_TEST(r.err == "");
}

BOOST_AUTO_TEST_CASE(without_cuda_the_fallback_is_tested_and_the_other_checks_give_the_reason) {
  RunOptions o;
  o.environment["CUDA_VISIBLE_DEVICES"] = "";  // hides the device of a machine that has one
  const Outcome r = run_program({"verify", "--json"}, o);
  BOOST_TEST(r.code == 0, r.err);
  auto all = results(r);
  BOOST_TEST(all.size() == 16u);
  for (auto& [id, j] : all) {
    const bool of_cuda = id.starts_with("GPU") && id != "GPU-003";
    BOOST_TEST(j["status"] == (of_cuda ? "skipped" : id == "MEM-002/run" ? "falsified" : "held"), j.dump());
    BOOST_TEST(!std::string(j["detail"]).empty());
  }
  BOOST_TEST(has(all["MEM-001"]["detail"], "the cpu trainer"), all["MEM-001"].dump());
  BOOST_TEST(has(all["GPU-003"]["detail"], "on the cpu and reported the reason: "), all["GPU-003"].dump());
}

BOOST_AUTO_TEST_CASE(a_contract_that_breaks_exits_5) {
  TemporaryDirectory tmp;
  std::filesystem::copy_file(std::filesystem::path(TEST_PLUGINS_DIR) / "toy.so", tmp.path() / "toy.so");
  const Outcome r = run_program({"verify", "--backend=toy", "--plugin-path", tmp.path().string(), "--set",
                                 "plugin.toy.do=nonfinite", "--only", "GPU-001,GPU-006", "--json"});
  BOOST_TEST(r.code == 5, r.err);
  auto all = results(r);
  BOOST_TEST(all.size() == 2u);
  BOOST_TEST(all["GPU-006"]["status"] == "falsified");
  BOOST_TEST(all["GPU-006"]["measured"].is_null());
  BOOST_TEST(has(all["GPU-006"]["detail"], "loss is not finite"), all["GPU-006"].dump());
}

BOOST_AUTO_TEST_CASE(every_mode_of_a_backend_is_tested_and_the_rejected_one_is_named) {
  TemporaryDirectory tmp;
  std::filesystem::copy_file(std::filesystem::path(TEST_PLUGINS_DIR) / "toy_modes.so", tmp.path() / "toy.so");
  std::vector<std::string> arguments = {"verify", "--backend=toy", "--plugin-path", tmp.path().string(),
                                        "--only", "GPU-002",       "--json"};
  auto all = results(run_program(arguments));
  const std::string detail = all["GPU-002"]["detail"];
  BOOST_TEST(has(detail, "worst in mode resident: the trainer failed: save() gave 'w'"), detail);
  BOOST_TEST(has(detail, "hybrid FALSIFIED"), detail);
  BOOST_TEST(has(detail, "skipped: streamed: toy: streamed mode is not supported"), detail);
  arguments.insert(arguments.end(), {"--set", "plugin.toy.mode=streamed"});
  const Outcome r = run_program(arguments);
  all = results(r);
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(all["GPU-002"]["detail"] == "streamed: toy: streamed mode is not supported",
             all["GPU-002"].dump());
}

BOOST_AUTO_TEST_CASE(typos_exit_2_with_the_nearest_name) {
  Outcome r = run_program({"verify", "--only", "GPU-01"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "did you mean 'GPU-001'"), r.err);
  r = run_program({"verify", "--backend=cpuu"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "did you mean 'cpu'"), r.err);
  r = run_program({"verify", "--set", "train.step=3"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "did you mean 'train.steps'"), r.err);
  r = run_program({"verify", "--set", "parallel.data=2"});
  BOOST_TEST(r.code == 2, r.err);
}

BOOST_AUTO_TEST_CASE(a_table_is_printed_and_the_run_file_is_trained) {
  TemporaryDirectory tmp;
  RunOptions o;
  o.directory = tmp.path();
  tmp.write(
      "run.toml",
      "[model]\nhidden_size = 32\nnum_hidden_layers = 1\nnum_attention_heads = 2\nintermediate_size = 48\n"
      "[data]\nseq_len = 16\n[train]\nbackend = \"cpu\"\nsteps = 4\n");
  const Outcome r = run_program({"verify", "run.toml", "--only", "GPU-001,GPU-002"}, o);
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "GPU-001"), r.out);
  BOOST_TEST(has(r.out, "over 4 steps"), r.out);
  BOOST_TEST(!std::filesystem::exists(tmp.path() / "runs"));  // no output in the working directory
}

BOOST_AUTO_TEST_SUITE_END()
