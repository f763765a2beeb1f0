// The kinds of files and how one is recognized: by `KIND:` in front, else its syntax by its name or first
// words, and its framework by keys that few others have. What the keys mean is in rules_*.cpp.
#include "core/framework_files/file_kinds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <filesystem>

#include "core/base/text.hpp"
#include "core/framework_files/arguments_read.hpp"
#include "core/framework_files/json_comments.hpp"
#include "core/framework_files/python_job.hpp"
#include "core/framework_files/python_tokens.hpp"
#include "core/framework_files/read_files.hpp"
#include "core/framework_files/script_programs.hpp"
#include "core/framework_files/swift_files.hpp"
#include "core/framework_files/yaml_read.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/python_script.hpp"
#include "core/runfile/toml_read.hpp"

namespace fs = std::filesystem;

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::Value;

/// Takes the file itself as the model: a config.json beside the files of a job.
void read_model(const Entries& entries, Job& job) {
  for (const Entry& e : entries)
    job.keys.push_back({e.key, runfile::written(e.value), e.key_where, runfile::KeyUse::kUsed, ""});
  // The job names the file; core/model reads its fields.
  // An unknown family is an error at the place of the family.
  const auto family = std::ranges::find(entries, "model_type", &Entry::key);
  Entry file = family == entries.end() ? entries.front() : *family;
  file.key = "config.json";
  job.set(kConfigFile, fs::absolute(file.key_where.file).string(), file);
}

/// "per-device-batch" as argparse stores it; options of Megatron-LM keep their dashes.
bool same_option(const std::string& word, const std::string& key) {
  return std::ranges::equal(word, key, [](char a, char b) { return a == b || (a == '_' && b == '-'); });
}

std::string names_of_kinds() { return fmt::format("{}", fmt::join(file_kinds(), ", ")); }

/// "deepspeed:ds.json". A path with a colon that names no kind is a path.
File parse_argument(const std::string& argument) {
  const std::size_t colon = argument.find(':');
  if (colon != argument.npos)
    for (const Kind& k : kinds())
      if (argument.compare(0, colon, k.name) == 0) return {argument.substr(colon + 1), &k, {}};
  std::error_code ec;
  if (colon != argument.npos && colon > 1 && !fs::exists(argument, ec))
    throw usage_error(fmt::format("'{}' is no kind of file{}", escaped(argument.substr(0, colon), 60),
                                  did_you_mean(argument.substr(0, colon), file_kinds())),
                      "kinds: " + names_of_kinds(), {"--from"});
  return {argument, nullptr, {}};
}

/// By the file's name, or by its first words.
Syntax syntax_of(const std::string& path, const std::string& text) {
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".toml") return Syntax::kToml;
  if (extension == ".yaml" || extension == ".yml" || extension == ".json") return Syntax::kYaml;
  if (extension == ".sh" || text.starts_with("#!")) return Syntax::kArguments;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != text.npos && text.compare(first, 2, "--") == 0 ? Syntax::kArguments : Syntax::kYaml;
}

/// Throws for a file that is empty or no text. yaml-cpp reads UTF-16 and UTF-32, whose zero bytes follow a
/// byte order mark.
void check_text(const std::string& text, const std::string& path) {
  const std::string_view start(text);
  const bool marked = start.starts_with("\xff\xfe") || start.starts_with("\xfe\xff") ||
                      start.starts_with(std::string_view("\0\0\xfe\xff", 4));
  if (text.find_first_not_of(" \t\r\n") == text.npos)
    throw usage_error("the file is empty", "expected the configuration of a framework: " + names_of_kinds(),
                      {path, 1, 1});
  if (!marked && text.find('\0') != text.npos)
    throw usage_error("this is a binary file",
                      "expected the configuration of a framework as text: " + names_of_kinds(), {path, 1, 1});
}

bool is_json(const std::string& path, const std::string& text) {
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".json") return true;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return extension != ".yaml" && extension != ".yml" && first != text.npos && text[first] == '{';
}

/// repeated: see read_yaml().
Entries parse(Syntax syntax, const std::string& text, const std::string& path, std::vector<Where>& repeated) {
  // All three give dotted keys, so that rules do not depend on the syntax.
  switch (syntax) {
    case Syntax::kToml: {
      Entries out = runfile::read_toml(text, path);
      // Headers of tables are entries too; rules know keys only.
      std::erase_if(out, [](const Entry& e) { return e.value.kind == Value::Kind::kTable; });
      return out;
    }
    case Syntax::kArguments:
      return read_arguments(text, path);
    case Syntax::kYaml:
    case Syntax::kPython:  // read_argument() reads it
      break;
  }
  if (!is_json(path, text)) return read_yaml(text, path, &repeated);
  // As Hjson, which DeepSpeed reads; files of other kinds are checked when the kind is known.
  const std::string without = without_comments(text);
  check_json(without, path, true);
  return read_yaml(without, path, &repeated);
}

std::size_t telling_keys(const Kind& k, const Entries& entries) {
  return static_cast<std::size_t>(std::ranges::count_if(k.telling, [&](const std::string& word) {
    return std::ranges::any_of(entries, [&](const Entry& e) {
      if (word.ends_with('.')) return e.key.starts_with(word);
      return k.syntax == Syntax::kArguments ? same_option(word, e.key) : e.key == word;
    });
  }));
}

/// Files of other programs, by the beginning of a key, and the framework whose training step is the nearest.
constexpr struct OtherFile {
  const char *key, *name, *planned_for;
} kOtherFiles[] = {{"trainer.", "NeMo or Lightning", "megatron"},
                   {"MODEL_ARGS.trainer.", "NeMo", "megatron"},
                   {"policy.megatron_cfg.", "NeMo RL", "megatron"},
                   {"model.model_config.", "nanotron", "pytorch"},
                   {"actor_rollout_ref.", "verl", "transformers"}};

/// Settings of PyTorch's allocator, in a script or in the table of variables of a YAML file. ROCm has the
/// same allocator.
constexpr std::string_view kOfCuda = "PYTORCH_CUDA_ALLOC_CONF", kOfAny = "PYTORCH_ALLOC_CONF",
                           kOfHip = "PYTORCH_HIP_ALLOC_CONF";

void read_environment(const std::string& text, Syntax syntax, File& f) {
  if (syntax == Syntax::kArguments) {
    f.environment = read_variables(text, f.path, {kOfCuda, kOfAny, kOfHip});
    return;
  }
  std::erase_if(f.entries, [&](const Entry& e) {
    const std::string_view key = e.key, name = key.substr(key.find('.') + 1);
    const bool table = key.starts_with("ENV_VARS.") || key.starts_with("ENV.");
    if (!table || (name != kOfCuda && name != kOfAny && name != kOfHip)) return false;
    f.environment.push_back(e);
    return true;
  });
}

/// YAML of Megatron-LM's functional tests: a table of arguments with their dashes.
void join_megatron_arguments(Entries& entries) {
  constexpr std::string_view kArguments = "MODEL_ARGS.--";
  for (Entry& e : entries) {
    if (e.key == "MODE" && e.value.text == "inference")
      throw usage_error("this file starts inference, and no training", kPlanInference, e.key_where);
    if (!e.key.starts_with(kArguments)) continue;
    e.spelling = e.key.substr(kArguments.size());
    e.key = e.spelling;
  }
}

/// The kind with the most telling keys; the first of equals. TrainingArguments only where no other kind has
/// one, because LLaMA-Factory and axolotl share keys with them.
const Kind& recognize(const File& f, Syntax syntax, const std::string& text) {
  // Its files have the keys of DeepSpeed too.
  for (const char* key : {"pipe_parallel_size", "pipe-parallel-size"})
    if (syntax == Syntax::kYaml && telling_keys({"", syntax, {key}, nullptr}, f.entries) > 0)
      throw usage_error("this looks like a configuration of GPT-NeoX, whose keys --from does not know",
                        "plan the same job with --model=MODEL --for=deepspeed and --set KEY=VALUE",
                        {f.path, 1, 1});
  const Kind *best = nullptr, *training_arguments = nullptr;
  std::size_t most = 0;
  for (const Kind& k : kinds()) {
    const std::size_t n = k.syntax == syntax ? telling_keys(k, f.entries) : 0;
    if (n > 0 && (k.read == read_training_arguments || k.read == read_training_script))
      training_arguments = &k;
    else if (n > most)
      most = n, best = &k;
  }
  if (syntax == Syntax::kArguments && starts_megatron_of_swift(text))
    return kind_of(read_swift_megatron_script);
  if (syntax == Syntax::kArguments && starts_swift(text)) return kind_of(read_swift);
  if (!best && syntax == Syntax::kArguments) check_program(f.path, text);
  if (!best) best = training_arguments;
  if (best) return *best;
  // A common mistake: the file that `trainhost plan` reads without --from.
  const bool run_file = std::ranges::any_of(f.entries, [](const Entry& e) {
    return e.key.starts_with("train.") || e.key.starts_with("model.") || e.key.starts_with("data.");
  });
  if (syntax == Syntax::kToml && run_file)
    throw usage_error("this looks like a run file of trainhost",
                      "give it without --from: trainhost plan " + f.path, {f.path, 1, 1});
  if (syntax == Syntax::kArguments) reject_script(f.path, text);
  for (const OtherFile& other : kOtherFiles)
    if (std::ranges::any_of(f.entries, [&](const Entry& e) { return e.key.starts_with(other.key); }))
      throw usage_error(
          fmt::format("this looks like a configuration of {}, whose keys --from does not know", other.name),
          fmt::format("plan the same job with --model=MODEL --for={} and --set KEY=VALUE", other.planned_for),
          {f.path, 1, 1});
  for (const Entry& e : f.entries)
    if (e.key == "max_new_tokens")
      throw usage_error("this file has settings of generation, and none of training", kPlanInference,
                        e.key_where);
  throw usage_error("no key of this file tells which framework it is for",
                    "name it, for example --from=deepspeed:" + f.path + "; kinds: " + names_of_kinds(),
                    {f.path, 1, 1});
}

/// A named kind is taken as it is, also where none of its keys occurs, unless those of another kind do.
void check_named_kind(const File& f, Syntax syntax) {
  if (f.kind->telling.empty() || telling_keys(*f.kind, f.entries) > 0) return;
  for (const Kind& k : kinds())
    if (k.syntax == syntax && k.name != std::string_view(f.kind->name) && telling_keys(k, f.entries) > 1)
      throw usage_error(
          fmt::format("this looks like a file of {}, and has no key of {}", k.name, f.kind->name),
          fmt::format("give it as --from={}:{}, or without a kind", k.name, f.path), {f.path, 1, 1});
}

}  // namespace

// Read in this order: accelerate after transformers, whose values replace its own, and DeepSpeed last,
// because its "auto" is filled from the settings of the Trainer. Among equal numbers of telling keys the
// earlier kind wins.
std::span<const Kind> kinds() {
  static const std::vector<Kind> all{
      {"config.json",
       Syntax::kYaml,
       {"architectures", "hidden_size", "num_hidden_layers", "n_layer"},
       read_model},
      {"peft",
       Syntax::kYaml,
       {"peft_type", "base_model_name_or_path", "target_modules", "inference_mode"},
       read_peft},
      {"axolotl",
       Syntax::kYaml,
       {"base_model", "sequence_len", "micro_batch_size", "lora_target_linear"},
       read_axolotl},
      {"llama-factory",
       Syntax::kYaml,
       {"finetuning_type", "cutoff_len", "template", "stage", "model_class", "train_dataset", "peft_config.",
        "dist_config.", "kernel_config.", "quant_config."},
       read_llama_factory},
      {"llama-factory", Syntax::kArguments, {"finetuning_type", "cutoff_len"}, read_llama_factory_script},
      {"ms-swift", Syntax::kArguments, {}, read_swift},  // scripts by their commands
      {"ms-swift",
       Syntax::kYaml,
       {"model", "model_id_or_path", "tuner_type", "train_type", "split_dataset_ratio", "attn_impl", "ENV."},
       read_swift},
      {"ms-swift-megatron", Syntax::kArguments, {}, read_swift_megatron_script},
      {"ms-swift-megatron",
       Syntax::kYaml,
       {"model", "tuner_type", "split_dataset_ratio", "ENV.", "tensor_model_parallel_size",
        "expert_model_parallel_size", "recompute_granularity", "cross_entropy_loss_fusion", "no_save_optim",
        "global_batch_size"},
       read_swift_megatron},
      {"torchtune",
       Syntax::kYaml,
       {"model._component_", "tokenizer._component_", "optimizer._component_"},
       read_torchtune},
      {"litgpt",
       Syntax::kYaml,
       {"checkpoint_dir", "train.micro_batch_size", "train.global_batch_size", "out_dir"},
       read_litgpt},
      {"torchtitan", Syntax::kToml, {"training.", "parallelism.", "job.", "model.flavor"}, read_torchtitan},
      {"megatron",
       Syntax::kYaml,
       {"MODEL_ARGS.--num-layers", "MODEL_ARGS.--hidden-size", "MODEL_ARGS.--seq-length"},
       read_megatron},
      {"megatron",
       Syntax::kArguments,
       {"num-layers", "hidden-size", "micro-batch-size", "seq-length"},
       read_megatron},
      {"transformers",
       Syntax::kYaml,
       {"model_name_or_path", "per_device_train_batch_size", "gradient_accumulation_steps",
        "gradient_checkpointing", "output_dir", "num_train_epochs", "learning_rate", "optim", "bf16",
        "max_length"},
       read_training_arguments},
      {"transformers",
       Syntax::kArguments,
       {"per_device_train_batch_size", "per_gpu_train_batch_size", "num_train_epochs", "max_train_steps",
        "model_max_length", "gradient_accumulation_steps", "max_seq_length", "max_length", "zero_stage"},
       read_training_script},
      {"transformers", Syntax::kPython, {}, read_training_arguments},
      {"unsloth", Syntax::kPython, {}, read_unsloth},
      {"accelerate",
       Syntax::kYaml,
       {"compute_environment", "distributed_type", "num_processes", "machine_rank"},
       read_accelerate},
      {"deepspeed",
       Syntax::kYaml,
       {"zero_optimization.", "train_micro_batch_size_per_gpu", "train_batch_size", "bf16.enabled",
        "fp16.enabled"},
       read_deepspeed}};
  return all;
}

std::vector<std::string> file_kinds() {
  std::vector<std::string> out;
  for (const Kind& k : kinds())  // a kind has a row per syntax
    if (std::ranges::find(out, k.name) == out.end()) out.emplace_back(k.name);
  return out;
}

const Kind& kind_of(void (*read)(const Entries&, Job&)) {
  const auto found = std::ranges::find_if(kinds(), [&](const Kind& k) { return k.read == read; });
  assert(found != kinds().end());
  return *found;
}

static File read_text(File f, const std::string& text) {
  const Syntax own = syntax_of(f.path, text);
  // Of a named kind, the row for the syntax of the file.
  if (f.kind)
    for (const Kind& k : kinds())
      if (f.kind->name == std::string_view(k.name) && k.syntax == own) f.kind = &k;
  const Syntax syntax = f.kind ? f.kind->syntax : own;
  f.entries = parse(syntax, text, f.path, f.repeated);
  if (f.entries.empty() && syntax == Syntax::kArguments && !f.kind) reject_script(f.path, text);
  if (f.entries.empty())
    throw usage_error("the file sets no key",
                      "expected the configuration of a framework: " + names_of_kinds(), {f.path, 1, 1});
  if (!f.kind)
    f.kind = &recognize(f, syntax, text);
  else
    check_named_kind(f, syntax);
  if (syntax == Syntax::kYaml && is_json(f.path, text) && f.kind->read != read_deepspeed)
    check_json(text, f.path, false);
  if ((f.kind->read == read_swift || f.kind->read == read_swift_megatron) && syntax == Syntax::kYaml) {
    check_swift_command(f);
    join_swift_roles(f.entries);
  }
  read_environment(text, syntax, f);
  if (f.kind->read == read_megatron && syntax == Syntax::kYaml) join_megatron_arguments(f.entries);
  if (f.kind->read == read_torchtune) torchtune_command(text, f.path, f.entries);
  // Names as argparse stores them; Megatron-LM's rules have its spelling.
  if (f.kind->read == read_training_script || f.kind->read == read_llama_factory_script ||
      (f.kind->read == read_swift && syntax == Syntax::kArguments))
    for (Entry& e : f.entries) {
      if (e.key.find('-') == e.key.npos) continue;
      e.spelling = e.key;
      std::replace(e.key.begin(), e.key.end(), '-', '_');
    }
  if (f.kind->read == read_swift || f.kind->read == read_swift_megatron ||
      f.kind->read == read_swift_megatron_script)
    add_swift_entries(text, f.path, syntax == Syntax::kArguments, f.entries);
  return f;
}

std::vector<File> read_argument(const std::string& argument) {
  File f = parse_argument(argument);
  // Notebooks with their results are larger.
  const std::uint64_t most = f.path.ends_with(".ipynb") ? kMaxNotebookBytes : kMaxFileBytes;
  std::string text = runfile::read_text_file(f.path, most, "file", {"--from"});
  check_text(text, f.path);
  if (runfile::is_python(f.path, text) || python::is_notebook(text))
    return read_python(f.path, std::move(text), f.kind);
  return {read_text(std::move(f), text)};
}

File read_file(const std::string& argument) { return std::move(read_argument(argument).back()); }

}  // namespace trainhost::framework_files
