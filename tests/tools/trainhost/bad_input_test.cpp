// Mistakes on the command line, in files and in folders: each has a fixed exit code, location and suggestion.
// Mistakes inside run files and configs are tested in tests/core/runfile.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <sys/stat.h>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;
namespace fs = std::filesystem;

namespace {

struct Mistake {
  const char* what;
  std::vector<std::string> arguments;
  int code;
  std::vector<std::string> says;  // all of them, in stderr
};

const fs::path kGolden = fs::path(TRAINHOST_SOURCE_DIR) / "tests/golden/runs";

using trainhost::test::read_file;

/// Writes every broken file that the cases below name.
void write_broken_files(const TemporaryDirectory& t) {
  t.write("good.toml", "[data]\nseq_len = 32\n[train]\nsteps = 2\n[optimizer]\nwarmup_steps = 1\n");
  t.write("typo.toml", "[train]\nmicro_bach = 4\n");
  t.write("tensor.toml", "[model]\npreset = \"llama-3-8b\"\n[parallel]\ntensor = 3\n");
  t.write("estimator.toml", "[memory]\nestimator = \"trasformer\"\n");
  t.write("backend.toml", "[train]\nbackend = \"cuta\"\n");
  t.write("option.toml",
          "[memory]\nestimator = \"memory-equation\"\n[plugin.memory-equation]\nattention = \"flsh\"\n");
  t.write("syntax.toml", "[train\nsteps = 2\n");
  t.write("train.py",
          "from transformers import AutoModelForCausalLM, TrainingArguments\n"
          "model = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen2.5-7B-Instruct\")\n");
  t.write("loop.py", "import torch\nmodel = Net()\n");
  t.write("words.yml", "base_model: NousResearch/Meta-Llama-3-8B\nadapter: lora\nmicro_batch_size: two\n");
  t.write("stage.json",
          "{\"bf16\": {\"enabled\": true}, \"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": "
          "{\"stage\": 4}}");
  t.write(
      "tune.ipynb",
      "{\"cells\": [{\"cell_type\": \"code\", \"source\": [\"from unsloth import FastLanguageModel\\n\"]}]}");
  t.write("large.ipynb", std::string((1 << 20) + 1, ' '));
  t.write("launch", "#!/usr/bin/env python3\nimport deepspeed\n");
  t.write("empty.txt", "");
  t.write("short.txt", "abc");
  t.write("odd.bin", std::string(4001, 'x'));
  t.write("ids.bin", std::string(4000, '\x7f'));
  t.write("config.json", read_file(kGolden / "mha/config.json"));
  t.write("negative.json",
          "{\"model_type\": \"gemma\", \"hidden_size\": -8, \"num_hidden_layers\": 2, \"vocab_size\": 1000}");
  t.write(
      "heads.json",
      "{\"model_type\": \"gpt2\", \"vocab_size\": 50257, \"n_embd\": 768, \"n_layer\": 12, \"n_head\": 7}");
  t.write("broken.json", "{\"model_type\": \"llama\",");
  t.write(
      "mamba.json",
      "{\"model_type\": \"mamba\", \"hidden_size\": 768, \"num_hidden_layers\": 2, \"vocab_size\": 1000}");
  std::string weights = read_file(kGolden / "mha/model.safetensors");
  t.write("truncated.safetensors", weights.substr(0, weights.size() - 100));
  t.write("header.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + weights.substr(8));
  t.write("text.safetensors", "these are no weights, only words");
  t.write("other.safetensors", read_file(kGolden / "gqa-tied/model.safetensors"));
  t.write("model.bin", "PK\x03\x04 a pickle in a zip");
  t.write("tokenizer.model", "not a SentencePiece model");
  t.write("plugins/words.so", "not a library");
  t.write("plugins/cut.so",
          read_file(fs::path(TRAINHOST_BINARY_DIR) / "lib/trainhost/plugins/llama.so").substr(0, 3000));
  t.write("file", "a file where a folder is wanted");
}

std::vector<std::string> train_with(std::vector<std::string> sets) {
  std::vector<std::string> w = {"train", "good.toml", "-q"};
  for (std::string& s : sets) w.insert(w.end(), {"--set", std::move(s)});
  return w;
}

const std::vector<Mistake>& mistakes() {
  static const std::vector<Mistake> all = {
      {"misspelt command", {"tarin"}, 2, {"'tarin'", "'train'"}},
      {"misspelt command with arguments after it", {"plna", "good.toml"}, 2, {"'plna'", "'plan'"}},
      {"misspelt option", {"train", "--bakend=cpu"}, 2, {"--bakend", "--backend"}},
      {"misspelt option of plan", {"plan", "--estimater", "all"}, 2, {"--estimater", "--estimator"}},
      {"option without its value", {"train", "--backend"}, 2, {"--backend"}},
      {"one argument too many", {"train", "good.toml", "again"}, 2, {"'again'"}},
      {"run file that does not exist", {"train", "god.toml"}, 2, {"god.toml", "good.toml"}},
      {"folder as run file", {"train", "plugins"}, 2, {"plugins"}},
      {"model as run file",
       {"plan", "llama-3.1-8b"},
       2,
       {"run file: '", "llama-3.1-8b' does not exist (--model=llama-3.1-8b plans this model)"}},
      {"text as run file",
       {"train", "short.txt"},
       2,
       {"short.txt:1:", "not valid TOML",
        "(a run file is TOML; --set data.train=short.txt trains on this file)"}},
      {"training script as run file",
       {"plan", "train.py"},
       2,
       {"train.py:1: a Python script is no run file (plan the job of its calls: trainhost plan --from "
        "train.py"}},
      {"training script among files",
       {"plan", "--from", "train.py"},
       2,
       {"train.py:1:1: this script makes no trainer, and no adapters, that --from reads",
        "--model=Qwen/Qwen2.5-7B-Instruct --for=transformers"}},
      {"training script with its kind",
       {"plan", "--from", "transformers:loop.py"},
       2,
       {"this script makes no trainer", "--model=MODEL --for=pytorch"}},
      {"value of a file",
       {"plan", "--from", "words.yml"},
       2,
       {"words.yml:3:19: micro_batch_size means train.micro_batch = \"two\""}},
      {"number of a file",
       {"plan", "--from", "stage.json", "--model=llama-3-8b", "--set", "data.seq_len=512", "--set",
        "parallel.data=2"},
       2,
       {"zero_optimization.stage means parallel.zero = 4"}},
      {"notebook",
       {"plan", "--from", "tune.ipynb"},
       2,
       {"tune.ipynb:1:1: this script makes no trainer", "--for=unsloth"}},
      {"notebook of more than 1 MiB", {"plan", "large.ipynb"}, 2, {"a Python notebook is no run file"}},
      {"script without an extension",
       {"plan", "--from", "launch"},
       2,
       {"launch:1:1: this script makes no trainer", "--for=pytorch"}},
      {"fine-tuning a preset",
       {"finetune", "qwen2.5-0.5b", "short.txt"},
       2,
       {"MODEL: 'qwen2.5-0.5b' is a preset, which has no weights to train further, and no folder here",
        "`trainhost plan --model=qwen2.5-0.5b --lora` plans its memory",
        "`trainhost train --model=qwen2.5-0.5b --set data.train=FILE` trains it from random weights"}},
      {"fine-tuning a preset that is only planned",
       {"finetune", "Gemma-2-9B", "short.txt"},
       2,
       {"'Gemma-2-9B' is a preset", "`trainhost plan --model=gemma-2-9b --lora` plans its memory)"}},
      {"config.json as run file",
       {"plan", "config.json"},
       2,
       {"not valid TOML", "--model=config.json plans"}},
      {"option of another program",
       {"generate", "x", "--max-new-tokens", "5"},
       2,
       {"did you mean '--tokens=VALUE'?"}},
      {"data as an option", {"train", "--data=short.txt"}, 2, {"did you mean '--set data.train=short.txt'?"}},
      {"folder as an option", {"train", "--output", "x"}, 2, {"did you mean '--set output.dir=VALUE'?"}},
      {"framework of another name",
       {"plan", "--model=llama-3-8b", "--for=trl"},
       2,
       {"--for: plan.framework = \"trl\": no installed estimator describes it; did you mean "
        "'transformers'?"}},
      {"misspelt key in a run file",
       {"train", "typo.toml"},
       2,
       {"typo.toml:2:1", "micro_bach", "micro_batch"}},
      {"broken syntax in a run file", {"train", "syntax.toml"}, 2, {"syntax.toml:1"}},
      {"ranks that do not divide the heads",
       {"plan", "tensor.toml"},
       2,
       {"tensor.toml:4:10: parallel.tensor = 3 does not divide 32 heads; use 2 or 4"}},
      {"ranks that do not divide the channels of a convolution",
       {"plan", "--model=lfm2-1.2b", "--set", "parallel.tensor=3"},
       2,
       {"parallel.tensor = 3 does not divide 2048 channels of the short convolution; use 2 or 4"}},
      {"ranks of --set that do not divide",
       {"plan", "--model=llama-3-8b", "--set", "parallel.tensor=3"},
       2,
       {"--set parallel.tensor = 3 does not"}},
      {"fine-tuning a model that does not exist",
       {"finetune", "nosuch", "short.txt"},
       2,
       {"MODEL: '", "nosuch' does not exist"}},
      {"no temperature",
       {"generate", "plugins", "--prompt", "a", "--temperature", "nan"},
       2,
       {"--temperature: 'nan' is not a number from 0 to 100"}},
      {"comparison with no model",
       {"eval", "plugins", "--data", "short.txt", "--compare", "nosuch"},
       2,
       {"--compare: 'nosuch' contains no model and no adapter"}},
      {"two devices",
       {"plan", "--device=rtx-4090", "--set", "memory.device=h100-80gb"},
       2,
       {"--device=rtx-4090 and --set memory.device=h100-80gb disagree", "give one of them"}},
      {"modules that a framework's estimator does not plan",
       {"plan", "--model=llama-3-8b", "--for=axolotl", "--set", "lora.rank=16", "--set",
        "lora.modules_to_save=[\"lm_head\", \"norm\"]"},
       2,
       {"--set lora.modules_to_save: 'norm' in lora.modules_to_save cannot be planned for axolotl",
        "leave it"}},
      {"misspelt estimator in a run file",
       {"plan", "estimator.toml"},
       2,
       {"estimator.toml:2:13: ", "'trasformer'", "'transformer'"}},
      {"misspelt backend in a run file",
       {"plan", "backend.toml"},
       2,
       {"backend.toml:2:11: ", "'cuta'", "'cuda'"}},
      {"misspelt backend of a training run",
       {"train", "backend.toml"},
       2,
       {"backend.toml:2:11: ", "'cuta'", "'cuda'"}},
      {"misspelt word for a plugin", {"plan", "option.toml"}, 2, {"option.toml:4:13: ", "flsh", "'flash'"}},
      {"misspelt key in --set", train_with({"train.stepz=3"}), 2, {"train.stepz", "train.steps"}},
      {"misspelt table in --set", train_with({"trian.steps=3"}), 2, {"trian", "train"}},
      {"--set without a value", {"train", "--set", "train.steps"}, 2, {"KEY=VALUE", "train.steps"}},
      {"--model of a training run that is no model",
       {"train", "--model=lama-110m"},
       2,
       {"--model: ", "'llama-110m'"}},
      {"--model of a training run without weights",
       {"train", "--model=plugins"},
       2,
       {"model.path: ", "no config.json"}},
      {"fine-tuning without data", {"finetune", "plugins"}, 2, {"DATA"}},
      {"folder as the file of init", {"init", "plugins"}, 2, {"plugins is a folder: expected a file"}},
      {"folder as a framework's file", {"plan", "--from", "plugins"}, 2, {"--from: 'plugins' is a folder"}},
      {"--set with a wrong type", train_with({"train.steps=many"}), 2, {"train.steps", "many"}},
      {"steps that are not a number", {"train", "--steps", "ten"}, 2, {"train.steps", "ten"}},
      {"negative steps", {"train", "--steps", "-3"}, 2, {"train.steps", "-3"}},
      {"unknown backend", {"train", "good.toml", "--backend=cpuu"}, 2, {"cpuu", "'cpu'"}},
      {"cuda without fallback", {"train", "good.toml", "--backend=cuda", "--no-fallback"}, 4, {"cuda"}},
      {"unknown backend with a device",
       {"plan", "--device=h100-80gb", "--backend=cuta"},
       2,
       {"--backend: ", "'cuta'", "'cuda'"}},
      {"GPU as a backend", {"train", "--backend=gpu"}, 2, {"'gpu'", "'cuda'"}},
      {"backend of a library with a device",
       {"plan", "--device=h100-80gb", "--backend=nvidia"},
       2,
       {"'nvidia'", "'cuda'"}},
      {"device of which there are two", {"plan", "--device=A100"}, 2, {"A100", "'a100-40gb' or 'a100-80gb'"}},
      {"model of the Hub without its size",
       {"plan", "--model=meta-llama/Llama-3"},
       2,
       {"'meta-llama/Llama-3'", "'llama-3-8b'"}},
      {"key as an option", {"train", "--lr=1e-4"}, 2, {"'--lr'", "'--set optimizer.lr=1e-4'"}},
      {"key of another trainer as an option",
       {"plan", "--per-device-train-batch-size", "4"},
       2,
       {"'--set train.micro_batch=VALUE'"}},
      {"precision by its name in PyTorch",
       train_with({"train.precision=bfloat16"}),
       2,
       {"train.precision", "'bf16'"}},
      {"optimizer of Transformers", train_with({"optimizer.name=adamw_torch"}), 2, {"'adamw'"}},
      {"unknown shell", {"completion", "bsh"}, 2, {"'bsh'", "'bash'", "bash, zsh or fish"}},
      {"estimator as a backend",
       {"plan", "--device=h100-80gb", "--backend=llama"},
       2,
       {"'llama' is of kind estimator"}},
      {"unknown estimator", {"plan", "--estimator=lama"}, 2, {"lama", "llama"}},
      {"unknown device", {"plan", "--device=h100-80g"}, 2, {"h100-80g", "h100"}},
      {"estimator whose file is not a plugin",
       {"plan", "--plugin-path", "plugins", "--estimator=words"},
       2,
       {"'words'", "words.so", "ELF", "remove it from the plugin directory"}},
      {"backend whose file is not a plugin",
       {"plan", "--plugin-path", "plugins", "--backend=words"},
       2,
       {"'words'", "words.so", "ELF"}},
      {"kind of backend as a device",
       {"plan", "--device=cpu"},
       2,
       {"--device: ", "--backend=cpu", "xeon-8480"}},
      {"option given twice",
       {"sweep", "--over", "data.seq_len=1..4", "--over", "train.micro_batch=1..4"},
       2,
       {"--over is given more than once", "trainhost sweep --help"}},
      {"no devices",
       {"search", "--model=llama-3-8b", "--device=h100-80gb", "--devices=0"},
       2,
       {"--devices: '0' is not a whole number from 1 to 1048576", "trainhost search --help"}},
      {"ranks of a plan that do not divide its devices",
       {"plan", "--model=llama-3-8b", "--device=h100-80gb", "--devices=6", "--set", "parallel.tensor=4"},
       2,
       {"--devices: 6 is not a multiple of parallel.tensor x parallel.pipeline x parallel.context = 4 x 1 x "
        "1"}},
      {"sharded state of one rank",
       {"plan", "--model=llama-3-8b", "--set", "parallel.zero=3"},
       2,
       {"--set parallel.zero = 3 divides state among data-parallel ranks, but there is one",
        "parallel.data or --devices=N"}},
      {"sharded state of one rank in a framework that shards nothing",
       {"plan", "--model=llama-3-8b", "--for=pytorch", "--set", "parallel.zero=2"},
       2,
       {"--set parallel.zero = 2 divides state among data-parallel ranks, but there is one"}},
      {"devices and a sweep over their ranks",
       {"sweep", "--model=llama-3-8b", "--device=h100-80gb", "--devices=8", "--over", "parallel.tensor=1,2"},
       2,
       {"--devices: cannot be given while parallel.tensor is swept over"}},
      {"devices and ranks that disagree",
       {"plan", "--model=llama-3-8b", "--device=h100-80gb", "--devices=8", "--set", "parallel.data=4"},
       2,
       {"--devices=8 and --set parallel.data=4 disagree"}},
      {"ranks of a search that do not divide its devices",
       {"search", "--model=llama-3-8b", "--device=h100-80gb", "--devices=8", "--set", "parallel.tensor=3"},
       2,
       {"--set parallel.tensor = 3 does not divide 8 devices; use 2 or 4"}},
      {"ranks of a search that do not divide the heads",
       {"search", "--model=llama-3-8b", "--device=h100-80gb", "--devices=6", "--set", "parallel.tensor=3"},
       2,
       {"--set parallel.tensor = 3 does not divide 32 heads; use 2 or 4"}},
      {"virtual stages of a search that do not divide the layers",
       {"search", "--model=llama-3-8b", "--device=h100-80gb", "--devices=8", "--set",
        "parallel.interleave=3"},
       2,
       {"--set parallel.interleave = 3 does not divide 32 layers for any "
        "number of pipeline stages; use 2 or 4"}},
      {"expert-parallel ranks for a model without experts",
       {"search", "--model=llama-3-8b", "--device=h100-80gb", "--devices=8", "--set", "parallel.expert=2",
        "--set", "parallel.data=2"},
       2,
       {"--set parallel.expert = 2, but", "has no experts; use 1"}},
      {"micro-batch that does not divide the sequences of a step",
       {"search", "--model=llama-3-8b", "--device=h100-80gb", "--devices=8", "--set", "train.micro_batch=3",
        "--global-batch=8"},
       2,
       {"--set train.micro_batch = 3 does not divide 8 sequences per step"}},
      {"accumulation that search would override",
       {"search", "--model=llama-3-8b", "--device=h100-80gb", "--devices=8", "--set", "train.grad_accum=3"},
       2,
       {"train.grad_accum = 3 cannot be fixed", "--global-batch=N", "this run has 3"}},
      {"activations that exceed 63 bits",
       {"plan", "--set", "model.hidden_size=1048576", "--set", "model.num_attention_heads=1024", "--set",
        "model.intermediate_size=2147483646", "--set", "model.num_hidden_layers=64", "--set",
        "train.micro_batch=1024", "--set", "data.seq_len=16384"},
       2,
       {"63 bits", "model.intermediate_size = 2147483646, model.hidden_size = 1048576"}},
      {"negative dimension",
       {"plan", "--model=negative.json"},
       2,
       {"negative.json", "hidden_size = -8", "from 1 to 2147483647"}},
      {"heads that do not divide, by a family's own names",
       {"plan", "--model=heads.json"},
       2,
       {"heads.json:1:75: n_head = 7 does not divide n_embd = 768"}},
      {"budget that is not a size", {"plan", "--budget=lots"}, 2, {"lots", "memory.budget"}},
      {"budget too small", {"train", "good.toml", "--set", "memory.budget=1KiB"}, 3, {"memory.budget"}},
      {"unknown preset", {"plan", "--model=llama-3-9b"}, 2, {"llama-3-9b", "llama-3-8b"}},
      {"preset and run file at once", {"plan", "good.toml", "--model=llama-3-8b"}, 2, {"--model"}},
      {"broken config.json", {"plan", "--model=broken.json"}, 2, {"broken.json"}},
      {"unknown model family",
       {"plan", "--model=mamba.json"},
       2,
       {"mamba", "plugins new NAME --kind=estimator", "sdk/README.md"}},
      {"unknown model family among files",
       {"plan", "--from", "mamba.json", "--set", "data.seq_len=64", "--set", "train.micro_batch=1"},
       2,
       {"mamba.json:1:16: the model family 'mamba' is not described: it has layers without attention"}},
      {"training a family that has no step program", train_with({"model.config=mamba.json"}), 2, {"mamba"}},
      {"precision that the backend does not compute in",
       train_with({"train.backend=cpu", "train.precision=tf32"}),
       2,
       {"train.precision", "fp32", "bf16"}},
      {"parallelism that trainers do not support", train_with({"parallel.tensor=2"}), 2, {"parallel.tensor"}},
      {"text that does not exist", train_with({"data.train=shorrt.txt"}), 2, {"shorrt.txt", "short.txt"}},
      {"empty text", train_with({"data.train=empty.txt"}), 2, {"empty.txt"}},
      {"text shorter than one sample", train_with({"data.train=short.txt"}), 2, {"short.txt", "32"}},
      {"token file of odd length", train_with({"data.train=odd.bin"}), 2, {"odd.bin", "4,001"}},
      {"token id outside the vocabulary", train_with({"data.train=ids.bin"}), 2, {"ids.bin", "32639"}},
      {"tokenizer file that is not a SentencePiece model",
       train_with({"data.train=short.txt", "data.tokenizer=tokenizer.model"}),
       2,
       {"tokenizer.model"}},
      {"truncated weights",
       train_with(
           {"model.config=config.json", "model.weights=truncated.safetensors", "data.tokenizer=bytes"}),
       2,
       {"truncated.safetensors: tensor '", "' ends at byte ", ": it is truncated (byte ",
        ") (copy or download the file again)"}},
      {"header length larger than the file",
       train_with({"model.config=config.json", "model.weights=header.safetensors", "data.tokenizer=bytes"}),
       2,
       {"header.safetensors"}},
      {"text as weights",
       train_with({"model.config=config.json", "model.weights=text.safetensors", "data.tokenizer=bytes"}),
       2,
       {"text.safetensors"}},
      {"weights of another model",
       train_with({"model.config=config.json", "model.weights=other.safetensors", "data.tokenizer=bytes"}),
       2,
       {"other.safetensors", "lm_head.weight", "model.layers.2.input_layernorm.weight",
        "model.embed_tokens.weight"}},
      {"pickled weights",
       train_with({"model.config=config.json", "model.weights=model.bin"}),
       2,
       {"model.bin", "safetensors"}},
      {"output below a file", train_with({"output.dir=file/run"}), 1, {"file"}},
      {"resume without a checkpoint",
       {"train", "good.toml", "-q", "--resume"},
       2,
       {"--resume", "no checkpoint"}},
      {"plugin path that does not exist",
       {"plugins", "list", "--plugin-path", "/nowhere/at/all"},
       2,
       {"/nowhere/at/all"}},
      {"unknown plugin", {"plugins", "info", "lama"}, 2, {"lama", "llama"}},
      {"option of a plugin that it does not have",
       train_with({"plugin.cpu.treads=2"}),
       2,
       {"plugin.cpu", "treads"}},
      {"misspelt backend in plugins.order",
       train_with({"plugins.order=[\"cudda\", \"cpu\"]"}),
       2,
       {"plugins.order", "'cudda'", "'cuda'"}},
      {"prompt without a model", {"generate", "plugins", "--prompt", "x"}, 2, {"plugins", "config.json"}},
      {"generate without a prompt", {"generate", "plugins"}, 2, {"--prompt"}},
      {"generate with two kinds of prompts",
       {"generate", "plugins", "--prompt", "x", "--prompts", "short.txt"},
       2,
       {"--prompt", "--prompts"}},
      {"generate with an absent file of prompts",
       {"generate", "plugins", "--prompts", "absent.jsonl"},
       2,
       {"absent"}},
      {"temperature out of range",
       {"generate", "plugins", "--prompt", "x", "--temperature", "-1"},
       2,
       {"temperature"}},
      {"data info of nothing", {"data", "info", "absent.txt"}, 2, {"absent.txt"}},
      {"data tokenize into itself", {"data", "tokenize", "short.txt", "-o", "short.txt"}, 2, {"short.txt"}},
      {"data without a command", {"data"}, 2, {"info", "tokenize", "stats", "show"}},
      {"records in a text", {"data", "stats", "short.txt"}, 2, {"short.txt", "data info"}},
      {"misspelt key of records",
       {"data", "show", "a.jsonl", "--key", "txt=body"},
       2,
       {"txt=body", "'text'"}},
  };
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(bad_input)

BOOST_AUTO_TEST_CASE(every_mistake_has_an_exit_code_a_location_and_a_suggestion) {
  TemporaryDirectory t;
  write_broken_files(t);
  RunOptions o;
  o.directory = t.path();
  for (const Mistake& m : mistakes()) {
    Outcome r = run_program(m.arguments, o);
    BOOST_TEST(r.code == m.code, m.what << ": exit " << r.code << "\n" << r.err);
    for (const std::string& part : m.says)
      BOOST_TEST(r.err.find(part) != std::string::npos, m.what << ": no \"" << part << "\" in\n" << r.err);
    BOOST_TEST(r.err.find("trainhost: ") != std::string::npos, m.what << "\n" << r.err);
    BOOST_TEST(r.err.find('\x1b') == std::string::npos, m.what);
  }
}

BOOST_AUTO_TEST_CASE(a_name_with_one_meaning_is_accepted_on_the_command_line) {
  const Outcome r = run_program({"plan", "--model=Llama3-8B", "--device=4090", "--json"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(r.out.find("\"rtx-4090") != std::string::npos, r.out.substr(0, 2000));
  BOOST_TEST(r.out.find("\"llama-3-8b\"") != std::string::npos, r.out.substr(0, 2000));
}

BOOST_AUTO_TEST_CASE(output_that_cannot_be_written_is_a_failure) {
  RunOptions full;
  full.stdout_to = "/dev/full";
  const std::vector<std::vector<std::string>> answers = {
      {"plan"},
      {"plan", "--json"},
      {"plan", "--model=llama-3-8b", "--budget=1GB"},
      {"plan", "--model=llama-3-8b", "--budget=1GB", "--json"},
      {"devices"},
      {"models", "--json"},
      {"search", "--device=h100-80gb", "--json"},
      {"sweep", "--over", "data.seq_len=1..4", "--json"},
      {"plan", "--help"},
      {"plugins", "list"}};
  for (const std::vector<std::string>& arguments : answers) {
    const Outcome r = run_program(arguments, full);
    BOOST_TEST(r.code == 1, arguments.back() << " of " << arguments.front() << ": exit " << r.code);
    BOOST_TEST(r.err.find("cannot write to standard output: No space left on device") != std::string::npos,
               r.err);
  }
  BOOST_TEST(run_program({"plan", "--budget=lots"}, full).code == 2);  // it has no output on stdout
  BOOST_TEST(run_program({"plan", "-q"}, full).code == 0);
}

BOOST_AUTO_TEST_CASE(broken_plugins_are_listed_with_their_reason) {
  TemporaryDirectory t;
  write_broken_files(t);
  Outcome r = run_program({"plugins", "list", "-v", "--plugin-path", (t.path() / "plugins").string()});
  BOOST_TEST(r.code == 0, r.err);
  for (const char* part : {"words.so", "cut.so", "rejected", "cpu", "ok"})
    BOOST_TEST(r.out.find(part) != std::string::npos, r.out);
}

BOOST_AUTO_TEST_CASE(a_rejected_plugin_in_a_folder_that_the_user_named_is_reported_once) {
  TemporaryDirectory t;
  write_broken_files(t);
  const std::string folder = (t.path() / "plugins").string();
  const auto lines = [&](const std::string& err) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = err.find("/words.so is not used: ", at)) != err.npos; ++at) ++n;
    return n;
  };
  const Outcome r = run_program({"plan", "--backend=cpu", "--plugin-path", folder});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(lines(r.err) == 1u, r.err);
  BOOST_TEST(r.err.find("trainhost: the plugin ") == 0u, r.err);
  BOOST_TEST(r.err.find("it does not begin with the ELF magic number (") != r.err.npos, r.err);
  BOOST_TEST(
      lines(run_program({"plan", "--backend=cpu", "--set", "plugins.path=[\"" + folder + "\"]"}).err) == 1u);
  BOOST_TEST(run_program({"plan", "--backend=cpu", "-q", "--plugin-path", folder}).err == "");
  BOOST_TEST(run_program({"plugins", "list", "--plugin-path", folder}).err == "");  // it is in the list
  RunOptions o;
  o.environment["TRAINHOST_PLUGIN_PATH"] = folder;
  BOOST_TEST(lines(run_program({"plan", "--backend=cpu"}, o).err) == 0u);
}

BOOST_AUTO_TEST_CASE(the_check_of_a_file_that_is_no_plugin_prints_one_error) {
  TemporaryDirectory t;
  t.write("notes.txt", "hello");
  RunOptions o;
  o.directory = t.path();
  const Outcome r = run_program({"plugins", "check", "notes.txt"}, o);
  BOOST_TEST(r.code == 5);
  BOOST_TEST(r.out == "");
  BOOST_TEST(r.err ==
                 "trainhost: 'notes.txt' is not a plugin: it is no shared library (give the .so file that "
                 "the linker writes with -shared; trainhost plugins check --explain C-003 prints the rule)\n",
             r.err);
  // The report keeps its form, and so do the lines of all checks.
  const Outcome json = run_program({"plugins", "check", "notes.txt", "--json"}, o);
  BOOST_TEST(json.code == 5);
  BOOST_TEST(nlohmann::json::parse(json.out)["failed"] == 1);
  BOOST_TEST(run_program({"plugins", "check", "notes.txt", "-v"}, o).out.find("C-003") != std::string::npos);
  const Outcome other = run_program({"plugins", "check", "notes.txt", "--only", "C-001"}, o);
  BOOST_TEST(other.out.find("notes.txt: 1 passed") != std::string::npos, other.out);
}

BOOST_AUTO_TEST_CASE(a_snapshot_in_a_folder_that_does_not_exist_is_rejected_before_training) {
  TemporaryDirectory t;
  RunOptions o;
  o.directory = t.path();
  for (const char* command : {"train", "plan"}) {
    const Outcome r = run_program({command, "--memory-snapshot", "missing/x"}, o);
    BOOST_TEST(r.code == 2);
    BOOST_TEST(r.err.find("'missing/x': the directory 'missing' does not exist") != r.err.npos, r.err);
  }
  BOOST_TEST(fs::is_empty(t.path()));
}

BOOST_AUTO_TEST_CASE(the_description_of_a_rejected_plugin_has_stage_code_and_hint_but_no_empty_fields) {
  TemporaryDirectory t;
  write_broken_files(t);
  const Outcome r = run_program({"plugins", "info", (t.path() / "plugins/words.so").string()});
  BOOST_TEST(r.code == 0, r.err);
  for (const char* part :
       {"rejected validation/not_elf\n", "ELF magic number", "remove it from the plugin directory"})
    BOOST_TEST(r.out.find(part) != std::string::npos, r.out);
  BOOST_TEST(r.out.find("version") == std::string::npos, r.out);
}

BOOST_AUTO_TEST_CASE(generate_prints_nothing_to_stdout_without_a_model) {
  TemporaryDirectory t;
  const Outcome r = run_program({"generate", t.path().string(), "--prompt", "Once"});
  BOOST_TEST(r.code == 2, r.err);
  BOOST_TEST(r.out == "");
}

BOOST_AUTO_TEST_CASE(a_run_file_without_keys_is_reported) {
  TemporaryDirectory t;
  t.write("empty.toml", "# nothing\n");
  t.write("one.toml", "[train]\nsteps = 5\n");
  RunOptions o;
  o.directory = t.path();
  const std::string note = "empty.toml sets no key: using the built-in run\n";
  BOOST_TEST(run_program({"plan", "empty.toml", "--backend=cpu", "--set", "train.steps=5"}, o).err ==
             "trainhost: " + note);
  BOOST_TEST(run_program({"sweep", "empty.toml", "--backend=cpu", "--over", "data.seq_len=8..32"}, o).err ==
             "trainhost: " + note);
  BOOST_TEST(run_program({"plan", "empty.toml", "--backend=cpu", "-q"}, o).err == "");
  BOOST_TEST(run_program({"plan", "one.toml", "--backend=cpu"}, o).err == "");
}

BOOST_AUTO_TEST_CASE(control_characters_in_names_are_never_printed) {
  Outcome r = run_program({"train", "a\x1b[31mb.toml"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(r.err.find('\x1b') == std::string::npos);
  r = run_program({"plan", "--model=x\x1b]0;y\x07"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(r.err.find('\x1b') == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
