// core/runfile: valid run files, defaults, overrides, and the learning rate schedule.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/model/adapter_rules.hpp"
#include "core/model/presets.hpp"
#include "core/runfile/run_config.hpp"
#include "core/runfile/schema.hpp"
#include "tests/core/runfile/folder.hpp"

using namespace trainhost;
using namespace trainhost::runfile;
using trainhost::testing::Folder;
namespace fs = std::filesystem;

namespace {

RunConfig parsed(const std::string& toml, const std::vector<Override>& overrides = {},
                 const fs::path& base = fs::current_path()) {
  return parse_run(toml, "run.toml", base, overrides);
}

/// Compares all settings except positions and the name of the run file.
void check_same_run(const RunConfig& a, const RunConfig& b) {
  BOOST_TEST((a.model == b.model));
  BOOST_TEST((a.run == b.run));
  BOOST_TEST(a.model_is_builtin == b.model_is_builtin);
  BOOST_TEST(
      (a.data.train == b.data.train && a.data.valid == b.data.valid && a.data.tokenizer == b.data.tokenizer));
  BOOST_TEST((a.data.order == b.data.order && a.data.valid_fraction == b.data.valid_fraction &&
              a.data.dtype == b.data.dtype));
  BOOST_TEST((a.precision == b.precision && a.backend == b.backend && a.steps == b.steps &&
              a.eval_every == b.eval_every && a.threads == b.threads));
  BOOST_TEST((a.optimizer.lr == b.optimizer.lr && a.optimizer.min_lr == b.optimizer.min_lr));
  BOOST_TEST(
      (a.optimizer.schedule == b.optimizer.schedule && a.optimizer.warmup_steps == b.optimizer.warmup_steps));
  BOOST_TEST((a.device == b.device && a.budget == b.budget && a.host_budget == b.host_budget &&
              a.estimators == b.estimators));
  BOOST_TEST((a.output.dir == b.output.dir && a.output.checkpoint_every == b.output.checkpoint_every &&
              a.output.keep == b.output.keep));
  BOOST_TEST((a.plugin_path == b.plugin_path && a.plugin_options == b.plugin_options));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(run_file)

BOOST_AUTO_TEST_CASE(without_any_key_the_built_in_run_is_loaded) {
  const RunConfig c = load_run("");
  BOOST_TEST(c.model_is_builtin);
  BOOST_TEST((c.model == builtin_model()));
  BOOST_TEST(c.data.train.empty());
  BOOST_TEST(c.data.tokenizer == "bytes");
  BOOST_TEST(c.precision == "fp32");
  BOOST_TEST(c.backend == "auto");
  BOOST_TEST((c.estimators == std::vector<std::string>{"auto"}));
  BOOST_TEST((c.run.mode == RunMode::kFull));
  BOOST_TEST(c.steps > 0u);
  BOOST_TEST(c.optimizer.min_lr <= c.optimizer.lr);
  BOOST_TEST(c.output.dir == fs::current_path() / "runs" / "builtin");
  BOOST_TEST(c.given.empty());
  BOOST_CHECK_NO_THROW(reject_unsupported(c));
}

BOOST_AUTO_TEST_CASE(the_reference_page_is_generated_from_the_schema) {
  const fs::path page = fs::path(TRAINHOST_SOURCE_DIR) / "docs" / "run-file.md";
  if (std::getenv("TRAINHOST_WRITE_REFERENCE"))  // set by `ninja run_file_reference`
    std::ofstream(page, std::ios::binary) << run_file_reference();
  std::ostringstream committed;
  committed << std::ifstream(page, std::ios::binary).rdbuf();
  BOOST_TEST((committed.str() == run_file_reference()),
             page << " is out of date: run `ninja -C build run_file_reference`");
}

BOOST_AUTO_TEST_CASE(the_file_that_init_writes_is_the_built_in_run) {
  const RunConfig c = parsed(init_text());
  check_same_run(c, load_run(""));
}

BOOST_AUTO_TEST_CASE(every_commented_line_of_init_is_accepted_when_uncommented) {
  Folder f;
  for (const char* name : {"input.txt", "valid.txt", "tokens.bin", "model.safetensors", "plugins/x",
                           "SmolLM-135M/model.safetensors"})
    f.write(name, "x");
  for (const char* config : {"config.json", "SmolLM-135M/config.json"})
    f.write(config, testing::small_config());
  f.write("runs/SmolLM-135M/adapter/adapter_config.json",
          R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"],
              "base_model_name_or_path": ")" +
              f.path().string() + "/SmolLM-135M\"}");
  const std::string text = init_text();
  std::string table;
  std::size_t uncommented = 0;
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    std::string line = text.substr(at, end - at);
    const bool off = line.starts_with("# ");
    if (off) line.erase(0, 2);
    if (line.starts_with("[")) table = line;
    if (!off || line.find(" = ") == line.npos || line.find(':') < line.find('=')) continue;
    std::string with = table + "\n" + line + "\n";
    // Some keys require another key.
    if (line.starts_with("weights = [")) with += "train = [\"input.txt\", \"valid.txt\"]\n";
    if (line.starts_with("valid =")) with += "train = \"input.txt\"\n";
    if (line.starts_with("decay")) with += "schedule = \"wsd\"\n";
    if (line.starts_with("double_quant")) with += "base = \"nf4\"\n";
    if (line.starts_with("kv_cache") || line.starts_with("prefill_chunk")) with += "mode = \"inference\"\n";
    for (const char* setting : {"framework_version",
                                "execution",
                                "optimizer_implementation",
                                "optimizer_in_backward",
                                "checkpoint_reentrant",
                                "liger_kernels",
                                "quant_storage",
                                "norms",
                                "quant_experts",
                                "method",
                                "reference_model",
                                "int8_outliers",
                                "optimizer_paged",
                                "allocator",
                                "runtime",
                                "expert_tensor",
                                "first_stage_layers",
                                "last_stage_layers",
                                "offload_gradients",
                                "fsdp_version",
                                "quant_compute",
                                "keep_logits",
                                "backward_prefetch",
                                "forward_prefetch",
                                "use_orig_params",
                                "no_sync",
                                "ddp_bucket",
                                "gradient_as_bucket_view"})
      if (line.starts_with(setting)) with += "framework = \"pytorch\"\n";
    if (line.starts_with("adapter_kernels")) with += "framework = \"axolotl\"\n";
    for (const char* key : {"float8_gather", "fsdp_replicas", "selective_layers"})
      if (line.starts_with(key)) with += "framework = \"torchtitan\"\n";
    if (line.starts_with("fsdp_replicas")) with += "[parallel]\ndata = 8\n";
    if (line.starts_with("separate_ends")) with += "framework = \"torchtune\"\n";
    for (const char* setting : {"reduce_bucket", "overlap_reduce", "prefetch_bucket", "persistence_threshold",
                                "max_live", "reuse_distance"})
      if (line.starts_with(setting)) with += "framework = \"deepspeed\"\n";
    for (const char* setting : {"context_exchange", "recompute_modules", "router_type", "compiled_loss",
                                "rope_fusion", "fp8_", "amax_history", "bf16_"})
      if (line.starts_with(setting)) with += "framework = \"megatron\"\n";
    if (line.starts_with("bf16_")) with += "fp8_recipe = \"tensorwise\"\n";
    if (line.starts_with("amax_history")) with += "fp8_recipe = \"delayed\"\n";
    if (line.starts_with("fp8_weights")) with += "fp8_recipe = \"mxfp8\"\n[parallel]\nzero = 1\n";
    if (line.starts_with("dtype") && table == "[data]") with += "train = \"tokens.bin\"\n";
    if (line.find("window") != line.npos) with += "model_type = \"qwen2\"\n";
    if (line.starts_with("ensure_weight_tying"))
      with += "targets = [\"embed_tokens\"]\n[model]\ntie_word_embeddings = true\n";
    if (line.starts_with("use_sliding_window")) with += "sliding_window = 8\n";
    if (line.starts_with("rope_scaling."))
      with =
          "[model]\nrope_scaling = {rope_type = \"llama3\", factor = 8.0, low_freq_factor = 1.0, "
          "high_freq_factor = 4.0, original_max_position_embeddings = 8192}\n";
    BOOST_CHECK_NO_THROW(parse_run(with, line, f.path()));
    ++uncommented;
  }
  BOOST_TEST(uncommented > 35u);
}

BOOST_AUTO_TEST_CASE(every_key_of_a_file_sets_its_field) {
  Folder f;
  f.write("a.txt", "x"), f.write("b.txt", "x"), f.write("held.txt", "x"), f.write("spm.model", "x");
  f.write("w/model.safetensors", "x"), f.write("plugs/p.so", "x"),
      f.write("config.json", testing::small_config());
  const RunConfig c = parsed(R"(
[model]
config = "config.json"
weights = "w"
[data]
train = ["b.txt", "a*.txt"]
valid = "held.txt"
tokenizer = "spm.model"
order = "sequential"
seq_len = 64
[train]
backend = "cpu"
precision = "bf16"
micro_batch = 3
grad_accum = 5
steps = 77
seed = 9
threads = 2
recompute = "selective"
eval_every = 11
[optimizer]
name = "sgd-momentum"
lr = 1
betas = [0, 0.5]
eps = 1e-6
weight_decay = 0
grad_clip = 0
schedule = "linear"
warmup_steps = 7
min_lr = 0.5
[memory]
device = "h100-80gb"
budget = "24GiB"
host_budget = "2GB"
estimator = ["llama", "contract"]
[parallel]
data = 8
tensor = 4
pipeline = 2
zero = 3
[lora]
rank = 4
alpha = 8
targets = ["k_proj", "down_proj"]
[output]
dir = "out/x"
checkpoint_every = 13
keep = 3
[plugins]
path = "plugs"
[plugin.cuda]
mode = "auto"
streams = 3
graph = true
scale = 0.5
)",
                             {}, f.path());
  BOOST_TEST(c.model.hidden == 64u);
  BOOST_TEST(!c.model_is_builtin);
  BOOST_TEST(c.weights.value() == f.path() / "w/model.safetensors");
  BOOST_TEST((c.data.train == std::vector<fs::path>{f.path() / "b.txt", f.path() / "a.txt"}));
  BOOST_TEST((c.data.valid == std::vector<fs::path>{f.path() / "held.txt"}));
  BOOST_TEST(c.data.tokenizer == (f.path() / "spm.model").string());
  BOOST_TEST((c.data.order == Order::kSequential));
  BOOST_TEST((c.run.seq_len == 64 && c.run.micro_batch == 3 && c.run.accumulate == 5 && c.run.seed == 9));
  BOOST_TEST((c.run.weight == DType::kBF16 && c.run.compute == DType::kBF16 && c.run.master == DType::kF32));
  BOOST_TEST((c.run.grad == DType::kF32 && c.run.moment == DType::kF32));
  BOOST_TEST((c.backend == "cpu" && c.steps == 77 && c.threads == 2 && c.eval_every == 11));
  BOOST_TEST((c.run.recompute == Recompute::kSelective && c.run.optimizer == Optimizer::kSgdMomentum));
  BOOST_TEST((c.run.beta1 == 0 && c.run.beta2 == 0.5 && c.run.eps == 1e-6 && c.run.weight_decay == 0 &&
              c.run.clip_norm == 0));
  BOOST_TEST((c.optimizer.lr == 1 && c.optimizer.min_lr == 0.5 && c.optimizer.warmup_steps == 7 &&
              c.optimizer.schedule == Schedule::kLinear));
  BOOST_TEST((c.device == "h100-80gb" && c.budget == 24ull << 30 && c.host_budget == 2000000000u));
  BOOST_TEST((c.run.device_budget == 24ull << 30 && c.run.host_budget == 2000000000u));
  BOOST_TEST((c.estimators == std::vector<std::string>{"llama", "contract"}));
  BOOST_TEST((c.run.parallel.data == 8 && c.run.parallel.tensor == 4 && c.run.parallel.pipeline == 2 &&
              c.run.parallel.zero == 3));
  BOOST_TEST((c.run.mode == RunMode::kLora && c.run.lora_rank == 4 && c.run.lora_alpha == 8 &&
              c.run.lora_targets == (1u << 1 | 1u << 6)));
  BOOST_TEST((c.output.dir == f.path() / "out/x" && c.output.checkpoint_every == 13 && c.output.keep == 3));
  BOOST_TEST((c.plugin_path == std::vector<fs::path>{f.path() / "plugs"}));
  BOOST_TEST((c.plugin_options.at("cuda") == std::map<std::string, std::string>{{"mode", "auto"},
                                                                                {"streams", "3"},
                                                                                {"graph", "true"},
                                                                                {"scale", "0.5"},
                                                                                {"multiprocessors", "132"}}));
  BOOST_TEST((c.plugin_option_lines.at("cuda.streams") == std::pair<std::uint32_t, std::uint32_t>{53, 11}));
  BOOST_TEST(c.given.at("train.steps").line == 16u);
  check_same_run(parsed(c.resolved(), {}, "/"), c);  // its paths are absolute
}

BOOST_AUTO_TEST_CASE(the_resolved_text_is_a_run_file_of_the_same_run) {
  check_same_run(parsed(parsed("").resolved()), parsed(""));
  for (const char* model : {"llama-3-8b", "mixtral-8x7b-v0.1"}) {
    const RunConfig c =
        run_for_model(model, {{"train.steps", "5"}, {"plugin.memory-equation.attention", "flash"}});
    check_same_run(parsed(c.resolved()), c);
    BOOST_TEST(c.resolved().find("# command line") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(overrides_win_over_the_file_and_the_last_one_over_the_others) {
  const char* file = "[train]\nmicro_batch = 2\nsteps = 50\n";
  const RunConfig c = parsed(
      file, {{"train.micro_batch", "8"}, {"train.micro_batch", "16"}, {"optimizer.betas", "[0.8, 0.9]"}});
  BOOST_TEST(c.run.micro_batch == 16u);
  BOOST_TEST(c.steps == 50u);
  BOOST_TEST(c.run.beta1 == 0.8);
  BOOST_TEST(c.given.at("train.micro_batch").file == "--set train.micro_batch");
}

BOOST_AUTO_TEST_CASE(numbers_of_overrides_are_read_as_toml_reads_them) {
  const auto seed = [](const char* text) { return parsed("", {{"train.seed", text}}).run.seed; };
  BOOST_TEST(seed("0") == 0u);
  BOOST_TEST(seed("1234567890123456") == 1234567890123456u);
  BOOST_TEST(seed("1_000") == 1000u);
  BOOST_TEST(seed("0x1F") == 31u);
  // No numbers of TOML: text, which the key does not accept.
  for (const char* text : {"007", "1_", "12abc", "3GiB", "0y1", "99999999999999999999"})
    BOOST_CHECK_THROW(seed(text), Error);
  BOOST_TEST(parsed("", {{"memory.budget", "24GiB"}}).budget.value() == 24ull << 30);
  BOOST_TEST(parsed("", {{"optimizer.lr", "1e-5"}}).optimizer.lr == 1e-5);
}

BOOST_AUTO_TEST_CASE(a_list_of_texts_may_be_typed_with_commas) {
  const auto targets = [](const char* text) {
    return load_run({}, {{"plan.framework", "pytorch"}, {"lora.targets", text}}).run.lora_targets;
  };
  BOOST_TEST(targets("q_proj,v_proj") == targets("[\"q_proj\", \"v_proj\"]"));
  BOOST_TEST(targets("q_proj, o_proj ,down_proj") == targets("[\"q_proj\", \"o_proj\", \"down_proj\"]"));
  for (const auto& [text, wrong] : {std::pair{"q_proj,v_prj", "unknown matrix 'v_prj'"}, {"q_proj,", "lora.targets = q_proj,: an item of the list is empty"}})
    BOOST_CHECK_EXCEPTION(targets(text), Error, [wrong](const Error& e) {
      BOOST_TEST(std::string(e.what()).find(wrong) != std::string::npos, e.what());
      return true;
    });
}

BOOST_AUTO_TEST_CASE(override_values_are_toml_or_unquoted_strings) {
  Folder f;
  f.write("2024", "x"), f.write("my text.txt", "x");
  const auto with = [&](const char* key, const char* value) { return parsed("", {{key, value}}, f.path()); };
  BOOST_TEST((with("train.recompute", "full").run.recompute == Recompute::kFull));
  BOOST_TEST((with("train.recompute", "\"full\"").run.recompute == Recompute::kFull));
  BOOST_TEST(with("memory.budget", "24GiB").budget.value() == 24ull << 30);
  BOOST_TEST(with("memory.budget", "1000B").budget.value() == 1000u);
  BOOST_TEST(with("data.train", "my text.txt").data.train.at(0) == f.path() / "my text.txt");
  BOOST_TEST(with("data.train", "2024").data.train.at(0) == f.path() / "2024");
  BOOST_TEST(with("data.train", "[\"2024\", \"my text.txt\"]").data.train.size() == 2u);
  BOOST_TEST(with("plugin.cuda.mode", "resident").plugin_options.at("cuda").at("mode") == "resident");
  // The device decides the number of multiprocessors, unless the run file has one.
  const auto multiprocessors = [&](const char* key, const char* value) {
    const auto table = with(key, value).plugin_options["cuda"];
    const auto found = table.find("multiprocessors");
    return found == table.end() ? std::string() : found->second;
  };
  BOOST_TEST(multiprocessors("memory.device", "a100-80gb") == "108");
  BOOST_TEST(multiprocessors("memory.device", "mi300x-192gb").empty());
  BOOST_TEST(multiprocessors("plugin.cuda.multiprocessors", "50") == "50");
  BOOST_TEST(with("model.preset", "llama-3-8b").model.hidden == 4096u);
  BOOST_TEST(with("model.rope_scaling.rope_type", "default").model.layers == builtin_model().layers);
  BOOST_TEST(with("optimizer.lr", "1e-4").optimizer.min_lr == 1e-4 / 100);
}

BOOST_AUTO_TEST_CASE(defaults_follow_the_keys_they_depend_on) {
  BOOST_TEST(parsed("[optimizer]\nlr = 3e-4\n").optimizer.min_lr == 3e-4 / 100);
  BOOST_TEST(parsed("[train]\nsteps = 50\n").optimizer.warmup_steps == 5u);
  BOOST_TEST(parsed("[train]\nsteps = 5000\n").optimizer.warmup_steps == 300u);
  // --set train.steps may shorten a run to less than its warm-up.
  const RunConfig cut = parsed("[optimizer]\nwarmup_steps = 100\n", {{"train.steps", "10"}});
  BOOST_TEST((cut.steps == 10 && cut.optimizer.warmup_steps == 100));
}

BOOST_AUTO_TEST_CASE(inline_models_take_absent_fields_from_the_built_in_model) {
  const ModelSpec a = parsed("[model]\nnum_hidden_layers = 2\n").model;
  BOOST_TEST(
      (a.layers == 2 && a.hidden == builtin_model().hidden && a.heads == builtin_model().heads && a.tied));
  const ModelSpec b = parsed("[model]\nhidden_size = 64\nnum_attention_heads = 4\n").model;
  BOOST_TEST((b.head_dim == 16 && b.kv_heads == 4));
  const ModelSpec c = parsed("[model]\nhead_dim = 64\nnum_key_value_heads = 1\n").model;
  BOOST_TEST((c.head_dim == 64 && c.kv_heads == 1 && c.hidden == builtin_model().hidden));
  const ModelSpec d = parsed(
                          "[model]\nmodel_type = \"qwen3\"\ntie_word_embeddings = false\nsliding_window = "
                          "8\nmax_window_layers = 2\n")
                          .model;
  BOOST_TEST((d.qk_norm && !d.qkv_bias && !d.tied && d.window(1) == 0 && d.window(2) == 8));
  const ModelSpec e = parsed("[model.rope_scaling]\nrope_type = \"linear\"\nfactor = 2.0\n").model;
  BOOST_TEST((e.rope.kind == RopeKind::kLinear && e.rope.factor == 2));
}

BOOST_AUTO_TEST_CASE(paths_are_relative_to_the_run_file_and_the_default_output_to_the_current_directory) {
  Folder f;
  f.write("sub/text.txt", "x");
  const fs::path a = f.write("sub/mine.toml", "[data]\ntrain = \"text.txt\"\n[output]\ndir = \"out\"\n");
  BOOST_TEST(load_run(a).data.train.at(0) == f.path() / "sub/text.txt");
  BOOST_TEST(load_run(a).output.dir == f.path() / "sub/out");
  BOOST_TEST(load_run(f.write("sub/other.toml", "")).output.dir == fs::current_path() / "runs/other");
  BOOST_TEST(load_run(f.write("sub/run.toml", "")).output.dir == fs::current_path() / "runs/sub");
}

BOOST_AUTO_TEST_CASE(settings_of_a_framework_are_options_of_the_estimators_that_describe_it) {
  BOOST_TEST(load_run({}).plugin_options.empty());
  BOOST_TEST(load_run({}, {{"plan.framework", "trainhost"}}).framework.empty());
  const RunConfig c = load_run({}, {{"plan.framework", "pytorch"},
                                    {"plan.optimizer_implementation", "fused"},
                                    {"plan.optimizer_in_backward", "true"},
                                    {"plan.execution", "compile"},
                                    {"plan.allocator", "expandable_segments:True"},
                                    {"plan.runtime", "600MiB"}});
  BOOST_TEST(c.framework == "pytorch");
  const std::map<std::string, std::string> expected = {
      {"framework", "pytorch"}, {"optimizer_implementation", "fused"},     {"optimizer_in_backward", "true"},
      {"execution", "compile"}, {"allocator", "expandable_segments:True"}, {"runtime", "629145600"}};
  BOOST_TEST((c.plugin_options.at("") == expected));
  BOOST_CHECK_EXCEPTION(load_run({}, {{"plan.allocator", "x"}}), Error, [](const Error& e) {
    return std::string(e.what()).find("plan.framework is not given") != std::string::npos;
  });
  BOOST_CHECK_THROW(reject_unsupported(c), Error);
  const RunConfig zero = load_run(
      {},
      {{"plan.framework", "deepspeed"}, {"plan.reduce_bucket", "1000000"}, {"plan.overlap_reduce", "true"}});
  BOOST_TEST(zero.plugin_options.at("").at("reduce_bucket") == "1000000");
  BOOST_TEST(zero.plugin_options.at("").at("overlap_reduce") == "true");
  BOOST_CHECK_EXCEPTION(load_run({}, {{"plan.framework", "pytorch"}, {"plan.reduce_bucket", "0"}}), Error,
                        [](const Error& e) {
                          return std::string(e.what()).find("is a setting of deepspeed") != std::string::npos;
                        });
}

// The folder gives model, weights, tokenizer and the type of the result; what is not given is as in
// fine-tuning.
BOOST_AUTO_TEST_CASE(a_model_folder_is_trained_further_with_the_settings_of_fine_tuning) {
  Folder f;
  f.write(
      "m/config.json",
      testing::small_config("\"torch_dtype\": \"bfloat16\", \"eos_token_id\": [2, 9], \"mine\": {\"a\": 1}"));
  f.write("m/model.safetensors", "");
  f.write("m/tokenizer.json", "{}");
  const fs::path text = f.write("t.txt", "text");
  const auto load = [&](std::vector<Override> more = {}) {
    more.insert(more.begin(), {{"model.path", (f.path() / "m").string()}, {"data.train", text.string()}});
    return load_run({}, more);
  };
  const RunConfig c = load();
  BOOST_TEST(c.model.vocab == 320u);
  BOOST_TEST(c.weights.value() == f.path() / "m/model.safetensors");
  BOOST_TEST(c.data.tokenizer == (f.path() / "m/tokenizer.json").string());
  BOOST_TEST((c.optimizer.lr == 2e-5 && c.run.beta2 == 0.999 && c.run.weight_decay == 0 && c.epochs == 3));
  BOOST_TEST(
      (c.run.micro_batch * c.run.accumulate == 16u && c.run.seq_len == 1024u && c.precision == "bf16"));
  BOOST_TEST((c.output.dtype == DType::kBF16));
  BOOST_TEST(c.output.dir.filename() == "m");
  BOOST_TEST(load({{"lora.rank", "4"}}).optimizer.lr == 2e-4);
  const RunConfig given = load({{"optimizer.lr", "1e-3"},
                                {"train.steps", "7"},
                                {"output.dtype", "fp32"},
                                {"data.tokenizer", "bytes"}});
  BOOST_TEST((given.optimizer.lr == 1e-3 && given.steps == 7u && given.epochs == 0));
  BOOST_TEST((given.output.dtype == DType::kF32 && given.data.tokenizer == "bytes"));
  // The run file of the run describes the same run.
  check_same_run(c, parsed(c.resolved()));
  const std::string json = model_config_json(c.model, DType::kBF16);
  for (const char* part : {"\"torch_dtype\": \"bfloat16\"", "\"mine\": {", "\"eos_token_id\": ["})
    BOOST_TEST(json.find(part) != json.npos, part);

  const auto message = [&](std::vector<Override> more) -> std::string {
    try {
      load(more);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  BOOST_TEST(message({{"model.weights", "x"}}).find("the folder contains the weights") != std::string::npos);
  BOOST_TEST(message({{"model.hidden_size", "8"}}).find("its config.json defines all fields") !=
             std::string::npos);
  BOOST_TEST(message({{"train.steps", "8"}, {"train.epochs", "1"}}).find("both say how long") !=
             std::string::npos);
  fs::remove(f.path() / "m/model.safetensors");
  BOOST_TEST(message({}) == "");
  BOOST_CHECK_EXCEPTION(require_weights(load({})), Error, [](const Error& e) {
    return std::string(e.what()).find("contains neither model.safetensors nor") != std::string::npos;
  });
  fs::remove(f.path() / "m/config.json");
  BOOST_TEST(message({}).find("contains no config.json") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_model_argument_replaces_a_run_file) {
  Folder f;
  const fs::path config = f.write("mine/config.json", testing::small_config());
  BOOST_TEST(run_for_model("qwen3-0.6b").model.family == "qwen3");
  BOOST_TEST(run_for_model("qwen3-0.6b", {{"data.seq_len", "99"}}).run.seq_len == 99u);
  BOOST_TEST(run_for_model(config.string()).model.vocab == 320u);
  BOOST_TEST(run_for_model(config.parent_path().string()).model.name == "mine");
  BOOST_TEST(!run_for_model("builtin").model_is_builtin);
  const std::vector<Override> fsdp = {{"plan.framework", "fsdp2"}, {"parallel.data", "8"}};
  // The loss of a framework is its own unless it is given.
  BOOST_TEST((load_run({}).run.memory.cross_entropy == CrossEntropy::kFused));
  BOOST_TEST((load_run({}, fsdp).run.memory.cross_entropy == CrossEntropy::kPlain));
  BOOST_TEST(
      (load_run({}, {{"plan.framework", "megatron"}}).run.memory.cross_entropy == CrossEntropy::kInPlace));
  BOOST_TEST((load_run({}, {fsdp[0], {"plan.cross_entropy", "fused"}}).run.memory.cross_entropy ==
              CrossEntropy::kFused));
  BOOST_TEST(load_run({}, {{"plan.safe", "true"}}).safe);
  const RunConfig adapters = load_run({}, {{"lora.base", "nf4"}});
  BOOST_TEST((adapters.precision == "bf16" && adapters.run.compute == DType::kBF16));
  BOOST_TEST((load_run({}, {{"lora.rank", "8"}, {"train.precision", "fp32"}}).precision == "fp32"));
  const auto cache = [](const char* weights) {
    return run_for_model("llama-3-8b", {{"plan.mode", "inference"}, {"plan.weights", weights}})
        .run.memory.kv_cache;
  };
  BOOST_TEST((cache("nf4") == DType::kBF16 && cache("int8") == DType::kBF16));
  const ModelSpec planned = run_for_model("gemma-2-9b").model;  // a family that is only planned
  BOOST_TEST((planned.family == "gemma2" && planned.hidden == 3584 && planned.heads == 16 &&
              !planned.config_json.empty()));
  BOOST_TEST(
      (load_run(f.write("p.toml", "[model]\npreset = \"mixtral-8x7b-v0.1\"\n")).model.family == "mixtral"));
}

BOOST_AUTO_TEST_CASE(all_linear_is_every_matrix_of_a_layer) {
  const auto targets = [](const char* value) {
    return parsed("[lora]\ntargets = " + std::string(value)).run.lora_targets;
  };
  BOOST_TEST(targets("\"all-linear\"") ==
             targets(R"(["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])"));
  BOOST_TEST(targets(R"(["all-linear", "q_proj"])") == targets("\"all-linear\""));
}

BOOST_AUTO_TEST_CASE(patterns_choose_adapters_of_single_matrices) {
  const RunSpec r = parsed(R"([lora]
rank = 4
alpha = 8
rslora = true
targets = ["v_proj", "layers.0.*", "model.layers.1.mlp.down_proj"]
rank_pattern = ["down_proj=2", "layers.1.* = 16"]
alpha_pattern = ["down_proj = 1.5"])")
                        .run;
  BOOST_TEST(r.lora_targets == 0x7fu);
  const auto size = [&](const char* module) {
    return size_of_adapter(r, std::string("model.layers.") + module);
  };
  BOOST_TEST((size("0.self_attn.q_proj") == AdapterSize{4, 8 * std::sqrt(4.0)}));
  BOOST_TEST((size("1.self_attn.v_proj") == AdapterSize{16, 8 * std::sqrt(16.0)}));
  BOOST_TEST((size("2.self_attn.v_proj") == AdapterSize{4, 8 * std::sqrt(4.0)}));
  BOOST_TEST((size("1.mlp.down_proj") == AdapterSize{2, 1.5 * std::sqrt(2.0)}));
  BOOST_TEST((size("1.mlp.up_proj").rank == 0 && size("2.mlp.down_proj").rank == 0));
  // Patterns of whole kinds are the kinds.
  const RunSpec whole = parsed("[lora]\ntargets = [\"*.q_proj\", \"*self_attn.v_proj\"]").run;
  BOOST_TEST((whole.lora_rules.empty() && whole.lora_targets == 5u));
  const auto refused = [](const std::string& table, const std::string& text) {
    try {
      parsed("[lora]\n" + table);
      BOOST_ERROR(table);
    } catch (const Error& e) {
      BOOST_TEST(std::string(e.what()).find(text) != std::string::npos, e.what());
    }
  };
  refused("targets = [\"layers.0.q_prj\"]",
          "matches no matrix of the model; the nearest is model.layers.0.self_attn.q_proj");
  refused("rank_pattern = [\"q_proj\"]", "lora.rank_pattern: 'q_proj' is not a pattern with a number from 1");
  refused("rank_pattern = [\"q_proj = 0\"]", "is not a pattern with a number");
  refused("alpha_pattern = [\"x = 3\"]", "'x' in lora.alpha_pattern matches no matrix");
  refused("rank_pattern = [\"q_proj = 3\"]",
          "the adapters of model.layers.0.self_attn.q_proj and model.layers.0");
  // peft adapts each matrix by itself; the trainers of other frameworks have adapters of their own.
  const std::string pattern = "[lora]\nrank_pattern = [\"q_proj = 3\"]\n[plan]\nframework = ";
  const RunSpec of_peft = parsed(pattern + "\"axolotl\"").run;
  BOOST_TEST(size_of_adapter(of_peft, "model.layers.0.self_attn.q_proj").rank == 3u);
  BOOST_TEST(size_of_adapter(of_peft, "model.layers.0.self_attn.v_proj").rank == 8u);
  BOOST_CHECK_EXCEPTION(parsed(pattern + "\"litgpt\""), Error, [](const Error& e) {
    return std::string(e.what()).find("with patterns cannot be planned for litgpt") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(rslora_and_the_type_of_frozen_weights_reach_trainers_in_one_form) {
  const RunConfig c = parsed("[lora]\nrank = 4\nalpha = 8\nrslora = true\nbase = \"bf16\"");
  BOOST_TEST(c.run.lora_alpha / c.run.lora_rank == 8 / std::sqrt(4.0));
  BOOST_TEST((c.lora.alpha == 8 && c.lora.rslora));
  BOOST_TEST((c.run.memory.frozen == DType::kNone));  // what train.precision implies
  BOOST_TEST(!planned_only_setting(c.run));
  const RunConfig nf4 = parsed("[lora]\nbase = \"nf4\"\ndouble_quant = true");
  BOOST_TEST((nf4.run.mode == RunMode::kQlora && nf4.run.memory.double_quantized));
  BOOST_TEST(!planned_only_setting(nf4.run));
  const RunConfig other = parsed("[lora]\nbase = \"fp32\"");
  BOOST_TEST((other.run.memory.frozen == DType::kF32 && other.run.lora_alpha == 16));
  BOOST_TEST(planned_only_setting(other.run).key == "lora.base");
}

BOOST_AUTO_TEST_CASE(estimators_are_named_by_family_or_for_all_others) {
  const std::string table =
      "[memory.estimators]\nllama = [\"llama\", \"contract\"]\n\"*\" = \"transformer\"\n";
  RunConfig c = parsed(table);
  BOOST_TEST(c.estimators == (std::vector<std::string>{"llama", "contract"}),
             boost::test_tools::per_element());
  BOOST_TEST(c.estimator_rule == "memory.estimators.llama");
  BOOST_TEST(c.given.at("memory.estimator").line == 2u);
  c = parsed(table + "[model]\npreset = \"gemma-2-9b\"\n");
  BOOST_TEST(c.estimators == std::vector<std::string>{"transformer"}, boost::test_tools::per_element());
  BOOST_TEST(c.estimator_rule == "memory.estimators.\"*\"");
  // The resolved run file has the table, and options win over it.
  BOOST_TEST(parsed(c.resolved()).estimator_rule == c.estimator_rule);
  c = parsed(table, {{"memory.estimator", "calculon"}});
  BOOST_TEST(c.estimators == std::vector<std::string>{"calculon"}, boost::test_tools::per_element());
  BOOST_TEST(c.estimator_rule == "memory.estimator");
  c = parsed("", {{"memory.estimators.llama", "vram-note"}});
  BOOST_TEST(c.estimators == std::vector<std::string>{"vram-note"}, boost::test_tools::per_element());
  BOOST_TEST(parsed("").estimator_rule.empty());
  BOOST_TEST(parsed("[memory.estimators]\nqwen2 = \"x\"\n").estimators == std::vector<std::string>{"auto"},
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_learning_rate_warms_up_then_follows_the_schedule) {
  OptimizerConfig o{1.0, 0.1, Schedule::kCosine, 4};
  BOOST_TEST(lr_at(o, 0, 12) == 0.25);
  BOOST_TEST(lr_at(o, 3, 12) == 1.0);
  BOOST_TEST(lr_at(o, 4, 12) == 1.0);
  BOOST_TEST(lr_at(o, 8, 12) == 0.55, boost::test_tools::tolerance(1e-15));  // half way
  BOOST_TEST(lr_at(o, 12, 12) == 0.1, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(lr_at(o, 1000, 12) == 0.1, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(lr_at(o, 11, 12) == 0.1 + 0.45 * (1 + std::cos(M_PI * 7 / 8)),
             boost::test_tools::tolerance(1e-15));
  o.schedule = Schedule::kLinear;
  BOOST_TEST(lr_at(o, 10, 12) == 1.0 - 0.9 * 0.75, boost::test_tools::tolerance(1e-15));
  o.schedule = Schedule::kConstant;
  BOOST_TEST(lr_at(o, 2, 12) == 0.75);
  BOOST_TEST(lr_at(o, 11, 12) == 1.0);
  o = {1.0, 0.1, Schedule::kCosine, 0};
  BOOST_TEST(lr_at(o, 0, 12) == 1.0);
  BOOST_TEST(lr_at({1.0, 0.1, Schedule::kCosine, 12}, 12, 12) == 1.0);  // all warm-up: no division by zero
}

BOOST_AUTO_TEST_SUITE_END()
