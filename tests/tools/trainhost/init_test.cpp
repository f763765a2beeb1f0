// trainhost init and schema: the run file refers to the JSON Schema that is installed with the program, and
// says what files of other frameworks say.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;

BOOST_AUTO_TEST_SUITE(init)

BOOST_AUTO_TEST_CASE(the_first_line_names_the_installed_schema) {
  const std::string schema = run_program({"schema"}).out;
  BOOST_TEST(nlohmann::json::parse(schema)["title"] == "Run file of trainhost");
  const std::string text = run_program({"init"}).out, line = text.substr(0, text.find('\n'));
  const std::string begin = "#:schema file://";
  BOOST_REQUIRE_MESSAGE(line.starts_with(begin), line);
  BOOST_TEST(read_file(line.substr(begin.size())) == schema);
}

BOOST_AUTO_TEST_CASE(a_program_without_installed_files_names_a_schema_beside_the_run_file) {
  TemporaryDirectory tmp;
  std::filesystem::create_directories(tmp.path() / "bin");
  std::filesystem::copy_file(program(), tmp.path() / "bin/trainhost");
  RunOptions o;
  o.program = (tmp.path() / "bin/trainhost").string();
  o.directory = tmp.path();
  const Outcome r = run_program({"init", "run.toml"}, o);
  BOOST_TEST(r.code == 0);
  BOOST_TEST(read_file(tmp.path() / "run.toml").starts_with("#:schema ./run.schema.json\n"));
  BOOST_TEST(has(r.err, "trainhost schema > run.schema.json"), r.err);
  // A folder whose name a URL cannot contain.
  std::filesystem::create_directories(tmp.path() / "a b/bin");
  std::filesystem::create_directories(tmp.path() / "a b/share/trainhost");
  std::filesystem::copy_file(program(), tmp.path() / "a b/bin/trainhost");
  tmp.write("a b/share/trainhost/run.schema.json", "{}");
  o.program = (tmp.path() / "a b/bin/trainhost").string();
  const std::string text = run_program({"init"}, o).out;
  BOOST_TEST(has(text.substr(0, text.find('\n')), "/a%20b/share/trainhost/run.schema.json"),
             text.substr(0, 200));
}

BOOST_AUTO_TEST_CASE(files_of_other_frameworks_become_a_run_file) {
  TemporaryDirectory tmp;
  tmp.write(
      "train.yaml",
      "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 512\nper_device_train_batch_size: 2\n"
      "gradient_accumulation_steps: 4\nbf16: true\nlearning_rate: 1e-4\nadam_beta1: 0.9\nadam_beta2: 0.98\n"
      "num_train_epochs: 2\nmax_steps: -1\nwarmup_steps: 0\nwarmup_ratio: 0.03\n"
      "lr_scheduler_type: inverse_sqrt\nseed: 7\ntypo_key: 1\nneftune_noise_alpha: 5\n");
  RunOptions o;
  o.directory = tmp.path();
  const Outcome r = run_program({"init", "run.toml", "--from", "train.yaml"}, o);
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const std::string text = read_file(tmp.path() / "run.toml");
  BOOST_TEST(text.starts_with("#:schema file://"));
  for (const char* line : {"preset = \"qwen2.5-0.5b\" ", "seq_len = 512", "micro_batch = 2 ",
                           "grad_accum = 4", "precision = \"bf16\"", "lr = 0.0001 ", "betas = [0.9, 0.98]",
                           "epochs = 2", "warmup_ratio = 0.03", "seed = 7",
                           "# train.yaml:13 lr_scheduler_type = inverse_sqrt: optimizer.schedule = "
                           "\"inverse_sqrt\": expected one of",
                           "# train.yaml:15 typo_key = 1: not understood",
                           "# train.yaml:16 neftune_noise_alpha = 5: not carried over",
                           "plan.framework = transformers: of the framework's own step"})
    BOOST_TEST(has(text, line), line << "\n" << text);
  for (const char* no : {"[plan]", "adam_beta", "\nsteps ="}) BOOST_TEST(!has(text, no), text);
  const Outcome checked = run_program({"check", "run.toml"}, o);
  BOOST_TEST(checked.out == "run.toml: ok\n", checked.out);
}

BOOST_AUTO_TEST_CASE(each_kind_of_file_becomes_a_run_file_without_errors) {
  TemporaryDirectory tmp;
  RunOptions o;
  o.directory = tmp.path();
  const std::filesystem::path files = TRAINHOST_SOURCE_DIR "/tests/core/framework_files/files";
  int converted = 0;
  for (const auto& entry : std::filesystem::directory_iterator(files)) {
    const std::string file = entry.path().string();
    // Per step; others have 128.
    const bool sequences_8 = file.ends_with("litgpt.yaml") || file.ends_with("llama_factory_v1.yaml");
    const Outcome r =
        run_program({"init", "--from", file, "--model", "llama-3-8b", "--set", "data.seq_len=128", "--set",
                     "train.micro_batch=1", "--set", "parallel.data=8", "--set",
                     sequences_8 ? "train.grad_accum=1" : "train.grad_accum=16"},
                    o);
    BOOST_TEST(r.code == 0, file << ": " << r.err);
    tmp.write("run.toml", r.out);
    const Outcome checked = run_program({"check", "run.toml"}, o);
    BOOST_TEST(checked.code == 0, file << ": " << checked.out << r.out);
    ++converted;
  }
  BOOST_TEST(converted == 13);
}

BOOST_AUTO_TEST_CASE(mistakes_of_init_have_one_message) {
  TemporaryDirectory tmp;
  RunOptions o;
  o.directory = tmp.path();
  const auto error = [&](std::vector<std::string> arguments) {
    const Outcome r = run_program(arguments, o);
    BOOST_TEST(r.code == 2, r.out);
    return r.err;
  };
  BOOST_TEST(has(error({"init", "--set", "train.steps=5"}), "--model and --set need --from"));
  BOOST_TEST(has(error({"init", "--from", "none.yaml"}), "none.yaml"));
  tmp.write("a.yaml",
            "base_model: meta-llama/Meta-Llama-3-8B\nsequence_len: 512\nmicro_batch_size: 2\nlearning_rate: "
            "fast\n");
  const Outcome r = run_program({"init", "--from", "axolotl:a.yaml"}, o);
  BOOST_TEST(
      has(error({"init", "--from", "axolotl:a.yaml", "run.toml"}),
          "--from: 'run.toml' does not exist (to write it, name it first: trainhost init run.toml --from"));
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "# a.yaml:4 learning_rate = fast: optimizer.lr = \"fast\": expected a number"),
             r.out);
}

BOOST_AUTO_TEST_SUITE_END()
