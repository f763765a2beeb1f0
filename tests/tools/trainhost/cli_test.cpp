// The program as a user runs it: help, lists, plan, exit codes.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;

namespace {
using trainhost::test::read_file;
const std::vector<std::string> kCommands = {"train", "plan", "sweep",   "search", "verify",  "generate",
                                            "chat",  "data", "plugins", "models", "devices", "init"};
}  // namespace

BOOST_AUTO_TEST_SUITE(cli)

BOOST_AUTO_TEST_CASE(every_command_has_help_with_an_example) {
  for (const std::string& c : kCommands) {
    Outcome r = run_program({c, "--help"});
    BOOST_TEST(r.code == 0, c);
    BOOST_TEST(has(r.out, "Example"), c + ": " + r.out);
  }
  Outcome r = run_program({"--help"});
  BOOST_TEST(r.code == 0);
  for (const std::string& c : kCommands) BOOST_TEST(has(r.out, c), c);
}

BOOST_AUTO_TEST_CASE(init_writes_a_file_that_plans) {
  TemporaryDirectory tmp;
  RunOptions o;
  o.directory = tmp.path();
  BOOST_TEST(run_program({"init", "run.toml"}, o).code == 0);
  Outcome r = run_program({"plan", "run.toml"}, o);
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "exact"));
  r = run_program({"init", "run.toml"}, o);
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "already exists"), r.err);
}

// A run file keeps the defaults of the built-in run, also where it names a model of billions of parameters.
BOOST_AUTO_TEST_CASE(a_run_file_with_a_named_model_says_which_defaults_it_keeps) {
  TemporaryDirectory tmp;
  RunOptions o;
  o.directory = tmp.path();
  const std::string model = "[model]\npreset = \"llama-3-8b\"\n";
  tmp.write("model.toml", model);
  tmp.write("length.toml",
            model + "[data]\nseq_len = 4096\n[train]\nprecision = \"bf16\"\nmicro_batch = 1\n");
  tmp.write("own.toml", "[model]\nhidden_size = 256\n");
  const std::string words = "not in the run file, so as in the built-in run: ";
  Outcome r = run_program({"plan", "model.toml", "--budget=80GiB"}, o);
  BOOST_TEST(
      has(r.out,
          words +
              "train.precision = fp32, data.seq_len = 128, train.micro_batch = 4; usual for such a model: "
              "--set train.precision=bf16 --set data.seq_len=2048 --set train.micro_batch=1"),
      r.out);
  r = run_program({"plan", "model.toml", "--budget=80GiB", "--set", "data.seq_len=4096"}, o);
  BOOST_TEST(has(r.out, words + "train.precision = fp32, train.micro_batch = 4; usual"), r.out);
  for (const char* file : {"length.toml", "own.toml"})
    BOOST_TEST(!has(run_program({"plan", file, "--budget=80GiB"}, o).out, words), file);
  BOOST_TEST(!has(run_program({"plan", "--model=llama-3-8b", "--budget=80GiB"}, o).out, words));
}

BOOST_AUTO_TEST_CASE(plan_writes_a_page_and_its_parts) {
  TemporaryDirectory tmp;
  RunOptions o;
  o.directory = tmp.path();
  Outcome r = run_program({"plan", "--html", "plan.html", "--csv", "it's.csv", "--explain"}, o);
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "entries of llama (exact)"), r.out);
  BOOST_TEST(has(r.out, "V*H*4 = 256*96*4"), r.out);
  const std::string page = read_file(tmp.path() / "plan.html"), csv = read_file(tmp.path() / "it's.csv");
  BOOST_TEST(has(page, "<!doctype html>"));
  BOOST_TEST(has(page, "</html>\n"));
  BOOST_TEST(has(page, "trainhost plan --html plan.html --csv &#39;it&#39;\\&#39;&#39;s.csv&#39; --explain"),
             page.substr(page.size() - 400));
  BOOST_TEST(csv.rfind("estimator,tier,component,name,kind,bytes,bytes_at_peak,formula\nllama,host,weights,",
                       0) == 0u,
             csv.substr(0, 200));
  BOOST_TEST(std::distance(std::filesystem::directory_iterator(tmp.path()), {}) ==
             2);  // no temporary file is left
}

BOOST_AUTO_TEST_CASE(an_output_file_that_cannot_be_written_is_rejected_before_planning) {
  TemporaryDirectory tmp;
  tmp.write("plain", "x");
  for (const auto& [file, why] : {std::pair{std::string("."), "this is not a file name"},
                                  {tmp.path().string(), "it is a directory"},
                                  {"missing/p.html", "the directory 'missing' does not exist"},
                                  {"plain/p.html", "is not a directory"},
                                  {"/dev/null", "not a regular file"}})
    for (const char* option : {"--html", "--csv", "--svg", "--png"}) {
      RunOptions o;
      o.directory = tmp.path();
      Outcome r = run_program({"plan", "no-such-run.toml", option, file}, o);
      BOOST_TEST(r.code == 2, file);
      BOOST_TEST(has(r.err, std::string(option) + ": cannot write '" + file + "'"), r.err);
      BOOST_TEST(has(r.err, why), r.err);
    }
  BOOST_TEST(read_file(tmp.path() / "plain") == "x");
}

/// The page is found beside the program, so a copy of the program has one of its own.
BOOST_AUTO_TEST_CASE(the_planner_page_is_written_with_the_run_of_the_command_line) {
  TemporaryDirectory tmp;
  const std::filesystem::path program = tmp.path() / "bin/trainhost";
  std::filesystem::create_directories(program.parent_path());
  std::filesystem::create_directories(tmp.path() / "share/trainhost");
  std::filesystem::copy_file(TRAINHOST_BINARY_DIR "/bin/trainhost", program);
  const std::string out = (tmp.path() / "out.html").string();
  RunOptions o;
  o.program = program.string();
  const std::vector<std::string> words = {"plan",  "--model=llama-3-8b", "--device=h100-80gb",
                                          "--set", "data.seq_len=100",   "--web=" + out};
  Outcome r = run_program(words, o);
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "this installation has no planner page"), r.err);
  tmp.write("share/trainhost/planner.html",
            "<b><script id=\"state\" type=\"application/json\">\"\"</script></b>");
  r = run_program(words, o);
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.err, out), r.err);
  BOOST_TEST(read_file(out) ==
             "<b><script id=\"state\" type=\"application/json\">\"source=model&model=llama-3-8b&device="
             "h100-80gb&budget=&for=&more=data.seq_len%3D100%0A\"</script></b>");
  // A run file with the config.json that it names.
  tmp.write(
      "config.json",
      "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 64, \"num_hidden_layers\": 1, "
      "\"num_attention_heads\": 1, \"vocab_size\": 300, \"x\": \"</script>\"}");
  r = run_program(
      {"plan", "--web=" + out, tmp.write("r.toml", "[model]\nconfig = \"config.json\"\n").string()}, o);
  BOOST_TEST(r.code == 0, r.err);
  const std::string page = read_file(out);
  BOOST_TEST(has(page, "text2=%7B%22model_type"), page);
  BOOST_TEST(has(page, "config%20%3D%20%22config.json%22"), page);
  // No browser: the file is there, and the message says so.
  o.environment = {{"BROWSER", "/no/such/browser"}, {"PATH", ""}, {"TRAINHOST_CACHE", tmp.path().string()}};
  r = run_program({"plan", "--web"}, o);
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "planner.html: no browser could be started; open this file in one"), r.err);
  BOOST_TEST(std::filesystem::exists(tmp.path() / "planner.html"));
}

BOOST_AUTO_TEST_CASE(the_value_of_an_option_is_not_treated_as_a_misspelt_command) {
  Outcome r = run_program({"--plugin-path", "plug", "--backend=no-such"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "--plugin-path: 'plug' is not a directory"), r.err);
  r = run_program({"trian"});
  BOOST_TEST(has(r.err, "did you mean 'train'?"), r.err);
}

BOOST_AUTO_TEST_CASE(an_option_before_the_command_is_said_to_be_at_the_wrong_place) {
  const Outcome r = run_program({"--plugin-path=/tmp", "plan"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err,
                 "the option '--plugin-path=/tmp' is before the command 'plan' (options follow the command: "
                 "trainhost plan --plugin-path=/tmp ...)"),
             r.err);
}

BOOST_AUTO_TEST_CASE(an_option_of_another_tool_suggests_the_one_of_this) {
  const auto refused = [](std::vector<std::string> words, const std::string& suggestion) {
    const Outcome r = run_program(words);
    BOOST_TEST(r.code == 2);
    BOOST_TEST(has(r.err, "did you mean '" + suggestion + "'?"), r.err);
  };
  refused({"search", "--model=gpt2", "--gpus=8"}, "--devices=8");
  refused({"plan", "--model=gpt2", "--gpus=8"}, "--devices=8");
  refused({"train", "--gpus=8"}, "--set parallel.data=8");
  refused({"plan", "--model=gpt2", "--gpu", "4090"}, "--device=VALUE");
  refused({"train", "--lora"}, "--set lora.rank=16");
  refused({"plan", "--model=gpt2", "--dtype=bf16"}, "--set train.precision=bf16");
  refused({"plan", "--model=gpt2", "--tp=2"}, "--set parallel.tensor=2");
  refused({"plan", "--model=gpt2", "--modle=gpt2"}, "--model");
}

BOOST_AUTO_TEST_CASE(a_number_of_devices_is_divided_among_the_ranks) {
  const auto plan = [](std::vector<std::string> more) {
    std::vector<std::string> words = {"plan", "--model=llama-3-8b", "--device=h100-80gb", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome r = run_program(words);
    BOOST_TEST((r.code == 0 || r.code == 3), r.err);
    nlohmann::json answer = nlohmann::json::parse(r.out);
    answer.erase("command");
    return answer;
  };
  BOOST_TEST(plan({"--for=fsdp2", "--devices=8"}) == plan({"--for=fsdp2", "--set", "parallel.data=8"}));
  BOOST_TEST(plan({"--for=deepspeed", "--set", "parallel.zero=3", "--devices=4"}) ==
             plan({"--for=deepspeed", "--set", "parallel.zero=3", "--set", "parallel.data=4"}));
  BOOST_TEST(plan({"--for=megatron", "--set", "parallel.tensor=2", "--set", "parallel.pipeline=2",
                   "--devices=16"}) == plan({"--for=megatron", "--set", "parallel.tensor=2", "--set",
                                             "parallel.pipeline=2", "--set", "parallel.data=4"}));
}

BOOST_AUTO_TEST_CASE(a_model_of_the_hub_is_planned_but_not_trained) {
  Outcome r = run_program({"plan", "--model=Qwen/Qwen2.5-0.5B-Instruct", "--device=t4"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "qwen2.5-0.5b"), r.out);
  BOOST_TEST(has(r.out, "assumed: train.precision = \"fp16\""), r.out);
  r = run_program({"train", "--model=Qwen/Qwen2.5-0.5B-Instruct"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "does not exist (for a model of the Hugging Face Hub: hf download"), r.err);
}

BOOST_AUTO_TEST_CASE(models_and_devices_are_listed) {
  Outcome r = run_program({"models"});
  BOOST_TEST(r.code == 0);
  BOOST_TEST(has(r.out, "llama-3-8b"));
  BOOST_TEST(has(r.out, "8,030,261,248"));
  BOOST_TEST(has(r.out, "mixtral-8x7b-v0.1"));
  BOOST_TEST(has(r.out, "12,879,925,248"));  // active parameters of 46,702,792,704
  r = run_program({"models", "Qwen2.5", "--json"});
  BOOST_TEST(r.code == 0);
  BOOST_TEST((has(r.out, "\"qwen2.5-7b\"") && !has(r.out, "\"qwen2-") && !has(r.out, "llama")), r.out);
  r = run_program({"models", "lama3-8b"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "no built-in model has 'lama3-8b' in its name; did you mean 'llama-3-8b'?"), r.err);
  r = run_program({"devices", "4090"});
  BOOST_TEST((r.code == 0 && has(r.out, "rtx-4090") && !has(r.out, "h100")), r.out);
  r = run_program({"devices", "--json"});
  BOOST_TEST(r.code == 0);
  BOOST_TEST(has(r.out, "\"h100-80gb\""));
  BOOST_TEST(has(r.out, "\"network_gbs\": 50.0"), r.out);
}

BOOST_AUTO_TEST_CASE(a_model_too_large_for_its_budget_exits_3) {
  Outcome r =
      run_program({"plan", "--model=llama-3-8b", "--device=h100-80gb", "--set", "plugin.cuda.mode=resident"});
  BOOST_TEST(r.code == 3, r.err);
  BOOST_TEST(has(r.out, "does not fit"), r.out);
  r = run_program({"plan", "--model=llama-3-8b", "--device=h100-80gb"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "mode streamed: resident needs"), r.out);
  r = run_program({"plan", "--model=llama-3-8b", "--device=h100-80gb", "--budget=2GB"});
  BOOST_TEST(r.code == 3, r.err);
}

BOOST_AUTO_TEST_CASE(a_model_alone_is_planned_for_pytorch_too) {
  Outcome r = run_program({"plan", "--model=llama-3-8b", "--device=h100-80gb"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "trainhost, cuda streamed"), r.out);
  BOOST_TEST(has(r.out, "pytorch, recompute none"), r.out);
  BOOST_TEST(has(r.out, "pytorch, recompute full"), r.out);
  BOOST_TEST(has(r.out, "does not fit in 79.1 GiB"), r.out);
  // Only one plan where the trainer or the estimator is named.
  for (const char* one : {"--for=trainhost", "--for=pytorch", "--estimator=transformer"}) {
    r = run_program({"plan", "--model=llama-3-8b", "--device=h100-80gb", one});
    BOOST_TEST(!has(r.out, "pytorch, recompute"), r.out);
  }
  r = run_program({"plan", "--device=h100-80gb"});  // the run file decides
  BOOST_TEST(!has(r.out, "pytorch, recompute"), r.out);
  r = run_program({"plan", "--model=gemma-2b", "--device=h100-80gb"});
  BOOST_TEST(has(r.out, "pytorch, recompute full"), r.out);
  r = run_program({"plan", "--model=falcon-7b", "--device=h100-80gb"});
  BOOST_TEST(has(r.out, "PyTorch: no installed estimator describes a training step of pytorch"), r.out);
  r = run_program({"plan", "--model=llama-3-8b", "--set", "plan.mode=inference"});
  BOOST_TEST(!has(r.out, "pytorch"), r.out);
}

BOOST_AUTO_TEST_CASE(the_answers_for_pytorch_are_in_json_and_html) {
  TemporaryDirectory tmp;
  const std::string page = (tmp.path() / "plan.html").string();
  const Outcome r =
      run_program({"plan", "--model=llama-110m", "--device=h100-80gb", "--json", "--html", page});
  BOOST_TEST(r.code == 0, r.err);
  const nlohmann::json j = nlohmann::json::parse(r.out);
  BOOST_TEST(j.at("framework") == "trainhost");
  const nlohmann::json& answers = j.at("framework_answers");
  BOOST_REQUIRE(answers.size() == 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    BOOST_TEST(answers[i].at("framework") == "pytorch");
    BOOST_TEST(answers[i].at("recompute") == (i ? "full" : "none"));
    BOOST_TEST(answers[i].at("verdict") == "fits");
    // The same figures as with --for.
    const Outcome only =
        run_program({"plan", "--model=llama-110m", "--device=h100-80gb", "--json", "--for", "pytorch",
                     "--set", i ? "train.recompute=full" : "train.recompute=none"});
    const nlohmann::json one = nlohmann::json::parse(only.out);
    BOOST_TEST(one.at("framework") == "pytorch");
    BOOST_TEST(one.at("framework_answers").empty());
    BOOST_TEST(one.at("estimates")[0].at("estimator") == "pytorch");
    BOOST_TEST(one.at("estimates")[0].at("total_bytes") == answers[i].at("total_bytes"));
  }
  const std::string html = read_file(page);
  BOOST_TEST(has(html, "The same run in PyTorch"));
  BOOST_TEST(has(html, "pytorch, recompute full"));
  BOOST_TEST(has(html, "fits in 79.1 GiB"));
}

/// Rows of "planned as", without sizes.
std::vector<std::string> planned_as(const std::string& out) {
  std::vector<std::string> rows;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("  pytorch, ") || line.starts_with("  fsdp2, "))
      rows.push_back(line.substr(2, line.find("  ", 2) - 2));
  return rows;
}

BOOST_AUTO_TEST_CASE(where_pytorch_does_not_fit_sharding_and_adapters_are_tried) {
  const std::string none = "pytorch, recompute none", full = "pytorch, recompute full";
  const std::string lora = "pytorch, LoRA of rank 16, recompute full";
  const std::string qlora = "pytorch, QLoRA of rank 16, recompute full";
  const std::string sharded = "fsdp2, recompute full";
  using Rows = std::vector<std::string>;
  const auto rows = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", "--model=qwen2.5-7b"});
    return planned_as(run_program(more).out);
  };
  BOOST_TEST(rows({"--budget=192GiB"}) == (Rows{none, full}));
  BOOST_TEST(rows({"--device=rtx-4090"}) == (Rows{none, full, lora}));
  BOOST_TEST(rows({"--budget=12GiB"}) == (Rows{none, full, lora, qlora}));
  BOOST_TEST(rows({"--device=rtx-4090", "--set", "parallel.data=64"}) == (Rows{none, full, sharded}));
  BOOST_TEST(rows({"--device=rtx-4090", "--set", "parallel.data=8"}) == (Rows{none, full, sharded, lora}));
  // peft adapts experts in another way.
  const Outcome experts = run_program({"plan", "--model=qwen3-30b-a3b", "--device=h100-80gb"});
  BOOST_TEST(planned_as(experts.out) ==
             (Rows{none, full, "pytorch, LoRA of rank 16 on attention, recompute full"}));
  BOOST_TEST(has(experts.out, "lora.targets = [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"]"),
             experts.out);
  // The run has adapters already.
  BOOST_TEST(rows({"--budget=12GiB", "--lora"}) == (Rows{none, full}));

  // The figures are those of the options that the table names.
  const Outcome r = run_program({"plan", "--model=qwen2.5-7b", "--budget=12GiB", "--json"});
  const nlohmann::json answers = nlohmann::json::parse(r.out).at("framework_answers");
  BOOST_REQUIRE(answers.size() == 4u);
  BOOST_TEST(answers[0].at("settings") == "");
  BOOST_TEST(answers[2].at("settings") == "lora.rank = 16, lora.targets = \"all-linear\"");
  BOOST_TEST(answers[3].at("settings") ==
             "lora.rank = 16, lora.targets = \"all-linear\", lora.base = \"nf4\", lora.double_quant = true");
  for (const std::size_t i : {2u, 3u}) {
    const Outcome only =
        run_program({"plan", "--model=qwen2.5-7b", "--budget=12GiB", "--json", "--for", "pytorch", "--set",
                     "train.recompute=full", i == 2 ? "--lora" : "--qlora"});
    BOOST_TEST(nlohmann::json::parse(only.out).at("estimates")[0].at("total_bytes") ==
               answers[i].at("total_bytes"));
  }
}

BOOST_AUTO_TEST_CASE(adapters_are_an_option_of_every_plan) {
  const auto rank = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", "--model=llama-110m", "--device=h100-80gb", "--print-run"});
    const Outcome r = run_program(more);
    const std::size_t at = r.out.find("rank = ");
    return at == r.out.npos ? r.out + r.err : r.out.substr(at, r.out.find('\n', at) - at);
  };
  BOOST_TEST(rank({"--lora"}).starts_with("rank = 16"));
  BOOST_TEST(rank({"--qlora", "--set", "lora.rank=4"}).starts_with("rank = 4"));  // --set wins
  Outcome r = run_program({"plan", "--model=llama-110m", "--lora", "--qlora"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "--lora excludes --qlora"), r.err);
  for (const char* command : {"sweep", "search"}) {
    std::vector<std::string> line = {command, "--model=llama-110m", "--device=h100-80gb", "--lora"};
    if (line[0] == "sweep") line.insert(line.end(), {"--over", "data.seq_len=512,1024"});
    r = run_program(line);
    BOOST_TEST(r.code == 0, r.err);
    BOOST_TEST(has(r.out, "LoRA of rank 16"), r.out);
  }
}

BOOST_AUTO_TEST_CASE(the_closed_form_answers_where_a_framework_is_not_described) {
  Outcome r = run_program({"plan", "--model=llama-3-8b", "--device=h100-80gb", "--for", "pytorch", "--set",
                           "parallel.data=8", "--set", "parallel.zero=3"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "estimator transformer (approximation)"), r.out);
  BOOST_TEST(has(r.out,
                 "does not describe parallel.zero = 3: a plain PyTorch run shards nothing; FSDP2 is the "
                 "framework fsdp2. "
                 "The closed form 'transformer' answers instead"),
             r.out);
  // The hint of the refusal is in the note.
  r = run_program({"plan", "--model=llama-3-8b", "--device=h100-80gb", "--for", "torchtitan"});
  BOOST_TEST(
      has(r.out, "(set parallel.data, or plan a module of transformers with --for pytorch). The closed form"),
      r.out);
  r = run_program({"plan", "--model=llama-3-8b", "--device=h100-80gb", "--for", "fsdp2"});
  BOOST_TEST(has(r.out, "FSDP2: one rank, so that nothing is divided"), r.out);
  // Weights that bitsandbytes quantizes are replayed too, as a suggestion and as a setting.
  r = run_program({"plan", "--model=llama-3-8b", "--budget=16GiB", "--for", "transformers", "--set",
                   "lora.rank=16", "--set", "train.recompute=full"});
  BOOST_TEST(r.code == 3);
  BOOST_TEST(has(r.out, "lora.base = \"nf4\", lora.double_quant = true"), r.out);
  r = run_program({"plan", "--model=llama-3-8b", "--budget=16GiB", "--for", "transformers", "--set",
                   "lora.rank=16", "--set", "train.recompute=full", "--set", "lora.base=nf4", "--set",
                   "lora.double_quant=true"});
  BOOST_TEST(r.code == 0);
  BOOST_TEST(has(r.out, "estimator pytorch"), r.out);
  BOOST_TEST(has(r.out, "prepare_model_for_kbit_training()"), r.out);
  // An estimator that was named does not answer with another.
  r = run_program({"plan", "--model=llama-3-8b", "--for", "pytorch", "--estimator", "pytorch", "--set",
                   "parallel.data=8", "--set", "parallel.zero=3"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "does not describe parallel.zero = 3"), r.err);
  r = run_program({"plan", "--model=llama-3-8b", "--budget=10GiB", "--for", "pytorch", "--set",
                   "parallel.data=8", "--set", "train.grad_accum=8"});
  BOOST_TEST(r.code == 3);
  BOOST_TEST(has(r.out, "No change of a run of pytorch that the estimator pytorch describes"), r.out);
  r = run_program({"plan", "--model=llama-3-8b", "--for", "pytorch", "--set", "plan.allocator=x:1"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "plan.allocator: unknown key 'x'"), r.err);
}

BOOST_AUTO_TEST_CASE(automatic_recomputation_of_a_framework_is_all_layers_or_none) {
  const auto planned = [](const char* budget) {
    return run_program({"plan", "--model=llama-110m", "--for", "pytorch", "--budget", budget, "--set",
                        "train.recompute=auto", "--set", "train.micro_batch=16"})
        .out;
  };
  BOOST_TEST(has(planned("100GiB"), "recompute none"), planned("100GiB"));
  BOOST_TEST(has(planned("8GiB"), "recompute full"), planned("8GiB"));
}

BOOST_AUTO_TEST_CASE(a_cpu_device_is_planned_for_the_cpu_trainer) {
  Outcome r = run_program({"plan", "--device=xeon-8480"});
  BOOST_TEST(has(r.out, "total on host"), r.out);
  BOOST_TEST(!has(r.out, "total on device"), r.out);
  BOOST_TEST(!has(r.out, "no trainer for this device"), r.out);
  BOOST_TEST(has(r.out, "set train.threads for another number"), r.out);
  r = run_program({"plan", "--device=xeon-8480", "--set", "train.threads=2"});
  const Outcome here = run_program({"plan", "--backend=cpu", "--budget=512GB", "--set", "train.threads=2"});
  const auto total = [](const std::string& out) { return out.substr(out.find("total on host"), 60); };
  BOOST_TEST(total(r.out) == total(here.out));
  BOOST_TEST(!has(r.out, "train.threads"), r.out);
  r = run_program({"plan", "--device=mi300x-192gb"});
  BOOST_TEST(has(r.out, "no trainer for this device is installed"), r.out);
}

BOOST_AUTO_TEST_CASE(a_backend_that_does_not_support_a_run_is_named) {
  const char* const kNote = "the plan is for a device in general";
  Outcome r = run_program({"plan", "--backend=cpu", "--set", "plan.moments=bf16"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "the cpu backend does not support plan.moments = \"bf16\": " + std::string(kNote)),
             r.out);
  r = run_program({"plan", "--backend=cpu", "--model=gpt2"});
  BOOST_TEST(has(r.out, "the cpu backend does not train the model family gpt2: " + std::string(kNote)),
             r.out);
  BOOST_TEST(!has(run_program({"plan", "--model=gpt2"}).out, kNote));  // no backend was requested
  BOOST_TEST(!has(run_program({"plan", "--backend=cpu"}).out, kNote));
}

BOOST_AUTO_TEST_CASE(a_405b_plan_needs_under_50_mb) {
  Outcome r = run_program({"plan", "--model=llama-3.1-405b", "--budget=100TB"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "405,853,388,800"), r.out);
#ifndef __SANITIZE_ADDRESS__  // ASan's shadow memory would be counted
  BOOST_TEST(r.max_rss_bytes < 50u * 1000 * 1000);
#endif
}

BOOST_AUTO_TEST_CASE(trained_parameters_are_counted_separately) {
  // Llama-2-7B, rank 8 on q and v: 4,194,304 parameters, as LitGPT prints for it.
  const std::vector<std::string> lora = {"plan", "--model=llama-2-7b", "--budget=1TB", "--set",
                                         "lora.rank=8"};
  Outcome r = run_program(lora);
  BOOST_TEST(has(r.out, "6,738,415,616 parameters, 4,194,304 trained"), r.out);
  std::vector<std::string> json = lora;
  json.push_back("--json");
  BOOST_TEST(has(run_program(json).out, "\"trainable\": 4194304,"));
  r = run_program({"plan", "--model=llama-2-7b", "--budget=1TB", "--json", "--set", "plan.mode=inference"});
  BOOST_TEST(has(r.out, "\"trainable\": 0,"), r.out.substr(0, 400));
  r = run_program({"plan", "--model=llama-2-7b", "--budget=1TB", "--json"});
  BOOST_TEST(has(r.out, "\"trainable\": 6738415616,"), r.out.substr(0, 400));
}

BOOST_AUTO_TEST_CASE(all_estimators_are_compared_in_one_table) {
  Outcome r = run_program({"plan", "--estimator=all"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "estimator llama (exact)"), r.out);
  BOOST_TEST(has(r.out, "estimator contract (upper bound)"), r.out);
  const std::string table = r.out.substr(std::min(r.out.size(), r.out.find("comparison of the estimates")));
  BOOST_TEST(has(table, "llama"), table);
  BOOST_TEST(has(table, "the others are compared with this one"), table);
  BOOST_TEST(has(table, "a closed form: 16 bytes per parameter"), table);
  BOOST_TEST(has(table, "memory-equation  approximation"), table);
  BOOST_TEST(has(table, "rule of thumb: 16 bytes per parameter"), table);
  BOOST_TEST(has(table, "rule of thumb: 2 bytes per number"), table);
  r = run_program({"plan", "--estimator=memory-equation", "--set", "plugin.memory-equation.chunks=1MiB"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "did you mean 'chunk'?"), r.err);
}

BOOST_AUTO_TEST_CASE(an_estimator_that_cannot_be_asked_is_in_the_plan_with_its_error) {
  TemporaryDirectory tmp;
  std::filesystem::permissions(tmp.path(), std::filesystem::perms(0755));
  const std::string file = (tmp.path() / "throws.so").string();
  std::filesystem::copy_file(std::string(TRAINHOST_BINARY_DIR) + "/tests/test_plugins/throws.so", file);
  const std::vector<std::string> plan = {"plan", "--estimator=all", "--plugin-path", tmp.path().string()};
  Outcome r = run_program(plan);
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "note: the estimator sample is left out: the plugin " + file), r.out);
  std::vector<std::string> json = plan;
  json.push_back("--json");
  const auto failed = nlohmann::json::parse(run_program(json).out)["failed_estimators"];
  BOOST_REQUIRE(failed.size() == 1u);
  BOOST_TEST(failed[0]["estimator"] == "sample");
  BOOST_TEST(has(failed[0]["error"], "was rejected: "), failed[0]["error"]);
  BOOST_TEST(nlohmann::json::parse(run_program({"plan", "--json"}).out)["failed_estimators"].empty());
}

BOOST_AUTO_TEST_CASE(what_a_plugin_prints_does_not_reach_the_json) {
  TemporaryDirectory tmp;
  std::filesystem::permissions(tmp.path(), std::filesystem::perms(0755));
  std::filesystem::copy_file(
      std::string(TRAINHOST_BINARY_DIR) + "/tests/broken_plugins/estimator-prints_when_used.so",
      tmp.path() / "prints.so");
  const Outcome r = run_program({"plan", "--estimator=all", "--json", "--plugin-path", tmp.path().string()});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(nlohmann::json::accept(r.out), r.out.substr(0, 200));
  BOOST_TEST(has(r.err, "printed by the plugin"), r.err);
}

BOOST_AUTO_TEST_CASE(the_choice_of_the_estimator_is_printed_with_v) {
  const Outcome r = run_program({"plan", "-v"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "estimator llama: match 1000 of 1000\n"), r.err);
  BOOST_TEST(has(r.err, "estimator memory-equation: match "), r.err);
}

BOOST_AUTO_TEST_SUITE_END()
