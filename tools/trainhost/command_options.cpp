// Each add_*() declares one command: its options, their help, and where the values go. Text in brackets is
// the default;
// "[train.steps of the run file]" names the key that holds without the option. Options that override a key
// are texts here: the run file's reader checks them, so both give the same errors.
#include "tools/trainhost/command_options.hpp"

#include <fmt/format.h>

#include <charconv>

#include "core/base/text.hpp"

namespace trainhost::cli {
namespace {

// Bits of add_common(): which of the shared options a command has.
enum Shared : unsigned { kRunFile = 1, kModel = 2, kBackend = 4, kPlugins = 8, kFrom = 16 };

// `shown` of add_text() for arguments whose name is all that is shown. CLI11 prints TEXT for "".
constexpr const char* kNoType = " ";

CLI::Option* add_text(CLI::App& app, const char* name, std::string& value, const char* shown,
                      const char* help) {
  return app.add_option(name, value, help)->option_text(shown);
}

void add_repeatable(CLI::App& app, const char* name, std::vector<std::string>& values, const char* shown,
                    const char* help) {
  // take_all keeps the order of several options. Without allow_extra_args(false) an option of a list would
  // also take the words after its value, for example the run file.
  app.add_option(name, values, help)->option_text(shown)->expected(1)->take_all()->allow_extra_args(false);
}

void add_plugin_path(CLI::App& app, std::vector<std::string>& folders) {
  add_repeatable(app, "--plugin-path", folders, "DIR", "Search DIR for plugins first (repeatable).");
}

void add_from(CLI::App& app, std::vector<std::string>& files, const char* help) {
  app.add_option("--from", files, help)
      ->option_text("FILE...")
      ->expected(1, CLI::detail::expected_max_vector_size);
}

void add_set(CLI::App& app, std::vector<std::string>& settings) {
  add_repeatable(app, "--set", settings, "KEY=VALUE",
                 "Override one key of the run file, e.g. --set train.micro_batch=8 (repeatable).");
}

/// The shared options named in `shared`, then --json, -q and -v.
void add_common(CLI::App& app, CommonArguments& a, unsigned shared) {
  if (shared & kRunFile) {
    add_text(app, "RUN.toml", a.run_file, kNoType, "Read the run from this file [the built-in run].");
    add_set(app, a.settings);
  }
  if (shared & kModel)
    add_text(app, "--model", a.model, "PRESET|config.json",
             "Use a preset or a Hugging Face config.json instead of a run file.");
  if (shared & kFrom)
    add_from(app, a.from,
             "Plan the job that these files of another framework describe: TrainingArguments, accelerate,\n"
             "DeepSpeed, torchtune, torchtitan, litgpt, axolotl, LLaMA-Factory, Megatron-LM.\n"
             "KIND:FILE names the framework, e.g. deepspeed:ds.json.");
  // The backend is a text, not an enumeration: plugins add trainers.
  if (shared & kBackend)
    add_text(app, "--backend", a.backend, "NAME",
             "Use this trainer: auto, cpu, cuda or the id of a plugin [train.backend of the run file].");
  if (shared & kPlugins) add_plugin_path(app, a.plugin_path);
  app.add_flag("--json", a.json, "Print JSON to stdout, and text for people to stderr.");
  app.add_flag("-q,--quiet", a.quiet, "Print errors only.");
  app.add_flag("-v,--verbose", a.verbosity, "Print more; -vv prints debug messages too.");
}

void add_host_budget(CLI::App& app, std::string& host_budget) {
  add_text(app, "--host-budget", host_budget, "SIZE",
           "Limit host memory per device to SIZE, e.g. 64GiB [memory.host_budget of the run file].");
}

void add_target(CLI::App& app, TargetArguments& a) {
  add_text(app, "--device", a.device, "NAME",
           "Plan for this device; `trainhost devices` lists them [memory.device of the run file].");
  add_text(app, "--budget", a.budget, "SIZE",
           "Limit the memory of one device, or of the host for the CPU trainer, e.g. 24GiB [memory.budget of "
           "the run file].");
  add_host_budget(app, a.host_budget);
  add_text(app, "--for", a.framework, "NAME",
           "Plan the training step of this framework, e.g. pytorch [plan.framework of the run file].");
  app.add_flag(
      "--safe", a.safe,
      "Judge by upper bounds: add the margin that the estimator states [plan.safe of the run file].");
}

void add_estimators(CLI::App& app, std::string& estimators) {
  add_text(app, "--estimator", estimators, "auto|all|NAME,NAME",
           "Use these estimators; the first one decides the exit code [memory.estimator of the run file].");
}

/// "" where `text` is a whole number from `least` to `most`, else the complaint. For CLI::Option::check().
/// Strict: from_chars accepts neither signs, spaces nor fractions.
auto whole_number(std::uint64_t least, std::uint64_t most) {
  return [=](const std::string& text) -> std::string {
    std::uint64_t n = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (ec == std::errc{} && end == text.data() + text.size() && n >= least && n <= most) return {};
    return fmt::format("'{}' is not a whole number from {} to {}", escaped(text, 60), least, most);
  };
}

// Two keys of [train] have options of their own, --steps and --backend; --set reaches every key.
void add_training_options(CLI::App* app, TrainArguments* a) {
  add_text(*app, "--steps", a->steps, "N", "Train for N optimizer steps [train.steps of the run file].");
  // A flag with an optional value: `--resume` alone gives "true".
  app->add_flag(
         "--resume", a->resume,
         "Continue from the newest checkpoint in output.dir, with bit-identical results.\n"
         "--resume=auto starts a new run if there is no checkpoint, and does nothing if the run is finished.")
      ->check([](const std::string& value) {
        return value == "true" || value == "auto" ? std::string()
                                                  : fmt::format(
                                                        "'{}' is not a value of --resume: write "
                                                        "--resume or --resume=auto",
                                                        escaped(value, 60));
      });
  app->add_flag("--overwrite", a->overwrite,
                "Replace an earlier run in output.dir: its checkpoints and its model.");
  app->add_flag("--no-fallback", a->no_fallback,
                "Exit with code 4 if the requested backend is unavailable, instead of using another.");
  app->add_flag("--log-ranks", a->log_ranks,
                "Write the messages of every process of the run to rank_N.log in output.dir.");
  app->add_flag("--live", a->live,
                "Serve a page of the run on 127.0.0.1 while it goes on; --live=PORT sets the port [7070].")
      ->check([](const std::string& value) {
        return value == "true" ? std::string() : whole_number(0, 65535)(value);
      });
  add_text(*app, "--profile", a->profile, "FILE",
           "Time every operation; write the first steps to FILE as a Chrome trace (ui.perfetto.dev).")
      // `--profile=` would otherwise mean no profile.
      ->check([](const std::string& file) {
        return file.empty() ? "no file is given, for example --profile trace.json" : "";
      });
  // A range is checked where its defaults are known, by parse_lr_range().
  app->add_flag(
      "--find-lr", a->find_lr,
      "Suggest a learning rate instead of training: plot the losses of 100 steps with growing rates.\n"
      "--find-lr=FROM:TO[:STEPS] sets the range, e.g. --find-lr=1e-6:1:100.");
}

void add_train(Parser& p) {
  auto [app, a] =
      p.add<TrainArguments>(p.root, "train", "Plan a run, then train it (the default command).",
                            "Example:\n  trainhost train run.toml --backend=cuda --set train.micro_batch=8");
  add_common(*app, a->common, kRunFile | kBackend | kPlugins);
  add_text(
      *app, "--model", a->common.model, "DIR|PRESET|config.json",
      "Instead of a run file: train the model in this Hugging Face folder further, or a preset or the model\n"
      "of a config.json from random weights.");
  add_training_options(app, a);
}

void add_finetune(Parser& p) {
  auto [app, a] = p.add<FinetuneArguments>(
      p.root, "finetune", "Train a model of a Hugging Face folder further, on your data.",
      "Example:\n  trainhost finetune SmolLM-135M chat.jsonl --lora\n\n"
      "Reads config.json, *.safetensors and the tokenizer of MODEL. Writes a folder that transformers "
      "loads:\n"
      "runs/MODEL/model, or with --lora, --qlora and --dora the PEFT adapter runs/MODEL/adapter (`trainhost "
      "merge` "
      "folds it into "
      "the\n"
      "weights).\n"
      "Three epochs of 16 sequences per step with a learning rate of 2e-5, or 2e-4 for adapters; the header "
      "lists\n"
      "these settings, and --set changes each: --set train.epochs=1 --set optimizer.lr=1e-5.");
  add_text(*app, "MODEL", a->folder, "(required)", "Train the model in this folder.")->required();
  app->add_option("DATA", a->data, "Train on these files.")->option_text("(required)")->required();
  CLI::Option* lora =
      app->add_flag("--lora", a->lora,
                    "Train adapters of rank 16 (alpha 32) on every matrix of the layers, not the weights.");
  app->add_flag(
         "--qlora", a->qlora,
         "The same on weights that are quantized to 4 bits while they are loaded: a quarter of the memory "
         "of bf16.")
      ->excludes(lora);
  CLI::Option* dora =
      app->add_flag("--dora", a->dora,
                    "Train such adapters and the magnitude of each row of the adapted matrices (DoRA); with "
                    "--qlora on the quantized weights.");
  add_text(*app, "--adapter", a->adapter, "DIR", "Train the adapter in this PEFT folder further.")
      ->excludes(lora)
      ->excludes(dora);
  add_set(*app, a->common.settings);
  add_common(*app, a->common, kBackend | kPlugins);
  add_training_options(app, a);
}

// RUN excludes --model and --from (run_setup.cpp). --model beside --from replaces the model of the files.
void add_plan(Parser& p) {
  auto [app, a] = p.add<PlanArguments>(
      p.root, "plan", "Plan the memory of a run and report whether it fits.",
      "Example:\n  trainhost plan --model=llama-3-8b --device=h100-80gb --set data.seq_len=4096");
  add_common(*app, a->common, kRunFile | kModel | kFrom | kBackend | kPlugins);
  add_estimators(*app, a->estimators);
  add_target(*app, a->target);
  app->add_flag("--print-run", a->print_run,
                "Print the run file of what would be planned, and plan nothing.");
  add_text(
      *app, "--rank", a->rank, "R",
      "Plan the memory of rank R, from 0, of a run that trainhost trains in several processes; default: the "
      "rank that needs most.");
  app->add_flag("--explain", a->explain, "Print every entry with its formula and the numbers in it.");
  add_text(*app, "--html", a->html, "FILE", "Write the plan as one HTML file: charts, timeline, derivation.");
  add_text(*app, "--csv", a->csv, "FILE", "Write every entry as one line of CSV.");
  add_text(*app, "--memory-snapshot", a->memory_snapshot, "FILE",
           "Write the allocations of a step for PyTorch's memory visualiser (pytorch.org/memory_viz).");
  app->add_flag(
      "--limits", a->limits,
      "Also compute the largest micro-batch, the longest sequence and the fewest devices that fit.");
}

// --over is parsed by planning/sweep_axis.cpp, which knows the type of the key.
void add_sweep(Parser& p) {
  auto [app, a] = p.add<SweepArguments>(
      p.root, "sweep",
      "Plot memory against one key of the run file, and report where one component overtakes another.",
      "Example:\n  trainhost sweep --model=llama-3-8b --over data.seq_len=512..16384 --device=h100-80gb");
  add_common(*app, a->common, kRunFile | kModel | kFrom | kBackend | kPlugins);
  add_text(*app, "--over", a->over, "KEY=VALUES",
           "Vary KEY: 512..16384 doubles, 512..4096+512 adds 512, 1..81*3 multiplies by 3, a,b,c is a list.");
  add_estimators(*app, a->estimators);
  add_target(*app, a->target);
  add_text(*app, "--csv", a->csv, "FILE", "Write the points as CSV.");
  add_text(*app, "--html", a->html, "FILE", "Write the sweep as one HTML file.");
}

// No options for the keys of a layout: they are searched. A key given with --set keeps its value.
void add_search(Parser& p) {
  auto [app, a] = p.add<SearchArguments>(
      p.root, "search", "Rank the parallel layouts of a model that fit on N devices.",
      "A key given with --set keeps its value; the other keys of a layout are searched.\n"
      "Example:\n  trainhost search --model=llama-3-8b --device=h100-80gb --devices=64 --global-batch=512 "
      "--set train.precision=bf16");
  add_common(*app, a->common, kRunFile | kModel | kFrom);
  add_text(*app, "--device", a->target.device, "NAME",
           "Plan for devices of this kind; `trainhost devices` lists them [memory.device of the run file].");
  app->add_option("--devices", a->devices, "Search layouts for N devices [number of ranks in the run file].")
      ->option_text("N")
      // 2^20 devices: beyond every published run, and small enough that products of ranks fit in 64 bits.
      ->check(whole_number(1, 1048576));
  app->add_option(
         "--global-batch", a->global_batch,
         "Use N sequences per optimizer step over all devices [as in the run file, at least one per device].")
      ->option_text("N")
      // 2^40: products with the number of devices stay in 64 bits.
      ->check(whole_number(1, std::uint64_t{1} << 40));
  add_text(*app, "--budget", a->target.budget, "SIZE",
           "Limit the memory of one device, e.g. 24GiB [memory.budget of the run file].");
  add_host_budget(*app, a->target.host_budget);
  app->add_option("--top", a->top, "List the K fastest layouts [10].")
      ->option_text("K")
      ->check(whole_number(1, 10000));
  app->add_option("--threads", a->threads, "Search with N threads; 0 = one per core [0].")
      ->option_text("N")
      ->check(whole_number(0, 1024));
  app->add_flag("--every", a->every, "Evaluate every layout, including those that pruning would skip.");
  add_text(*app, "--csv", a->csv, "FILE", "Write the listed layouts as CSV.");
  add_text(*app, "--html", a->html, "FILE", "Write the result as one HTML file.");
}

void add_compare(Parser& p) {
  auto [app, a] = p.add<CompareArguments>(
      p.root, "compare", "Compare runs: losses, speed, memory and the settings in which they differ.",
      "Example:\n  trainhost compare runs/a runs/b --html compare.html");
  app->add_option("RUN", a->runs, "Compare the runs in these folders.")->required()->option_text("...");
  add_text(*app, "--html", a->html, "FILE", "Write one HTML file with the curves of all runs.");
  add_common(*app, a->common, 0);
}

void add_watch(Parser& p) {
  auto [app, a] = p.add<WatchArguments>(
      p.root, "watch", "Serve a page of runs that go on or have ended, on 127.0.0.1; read-only.",
      "Example:\n  trainhost watch runs/a runs/b\n\nCtrl-C ends it.");
  app->add_option("DIR", a->runs, "Show the runs in these folders.")->required()->option_text("...");
  app->add_option("--port", a->port, "Serve on this port; 0 = any free one [7070].")
      ->option_text("PORT")
      ->check(whole_number(0, 65535));
  add_common(*app, a->common, 0);
}

// Ids and exit codes are a part of the help, because CI scripts choose by them.
void add_verify(Parser& p) {
  auto [app, a] = p.add<VerifyArguments>(
      p.root, "verify", "Test the contracts of docs/memory-model.md against real trainers.",
      "Example:\n  trainhost verify --backend=cpu --only MEM-002,GPU-007\n"
      "Checks: MEM-001 to MEM-005 and MEM-EXACT-001 (memory), REF-001 (results compared with a reference in\n"
      "double), GPU-001 to GPU-008 (training results and transfers). Without --backend, the MEM and REF "
      "checks\n"
      "run on the cpu trainer and the GPU checks on cuda.\n"
      "MEM-002 adds the row MEM-002/run: the same bound under the run's own recompute policy. That row is\n"
      "only reported; it does not change the exit code.\n"
      "Without a run file, a model of about 100,000 parameters is trained. train.steps limits the steps of\n"
      "every check. A run file that sets [plugin.cuda] mode is tested in that mode only.\n"
      "Exit code: 0 no contract falsified, 5 at least one falsified.");
  add_common(*app, a->common, kRunFile | kModel | kBackend | kPlugins);
  add_text(*app, "--only", a->only, "ID,ID", "Run only these checks [all].");
}

// No run file: the folder of a run has everything that generation needs.
/// How tokens are sampled; the defaults are those of the model.
void add_sampling(CLI::App& app, training::SampleOverrides& o) {
  constexpr const char* kFile = "[generation_config.json]";
  const auto add = [&](const char* name, auto& value, const char* shown, const std::string& help) {
    return app.add_option(name, value, help)->option_text(shown);
  };
  // The default in the help is the value of the struct, so that the two cannot differ.
  add("--tokens", o.tokens, "N", fmt::format("Generate at most N tokens [{}].", o.tokens));
  add("--temperature", o.temperature, "T",
      fmt::format("Divide the logits by T; 0 = always the most likely token {}.", kFile))
      ->check(CLI::Range(0.0, 100.0));
  add("--top-k", o.top_k, "K", fmt::format("Sample from the K most likely tokens; 0 = all {}.", kFile));
  add("--top-p", o.top_p, "P",
      fmt::format("Sample from the most likely tokens whose probabilities sum to P {}.", kFile))
      ->check(CLI::Range(0.0, 1.0));
  add("--repetition-penalty", o.repetition_penalty, "X",
      fmt::format("Make tokens that the text has less likely; 1 = no penalty {}.", kFile))
      ->check(CLI::Range(0.01, 100.0));
  add("--seed", o.seed, "N", fmt::format("Use this random seed for sampling [{}].", o.seed));
}

void add_threads(CLI::App& app, std::uint32_t& threads) {
  app.add_option("--threads", threads, "Compute with N threads; 0 = one per core [0].")->option_text("N");
}

/// What `generate` and `chat` compute with.
void add_trained_model(CLI::App& app, std::string& directory, std::string& adapter) {
  add_text(
      app, "DIR", directory, "(required)",
      "Use the model of this output.dir of a run, or of a directory with config.json and model.safetensors.")
      ->required();
  add_text(app, "--adapter", adapter, "DIR",
           "Add the adapter in this PEFT folder, or of this run, to the weights.");
}

void add_generate(Parser& p) {
  auto [app, a] = p.add<GenerateArguments>(p.root, "generate", "Generate text with a trained model.",
                                           "Example:\n  trainhost generate runs/builtin --prompt \"Once \"");
  add_common(*app, a->common, kBackend | kPlugins);
  add_trained_model(*app, a->directory, a->adapter);
  add_text(*app, "--prompt", a->prompt, "TEXT", "Continue this text.");
  add_text(*app, "--prompts", a->prompts, "FILE",
           "Continue each prompt of FILE: one per line, or {\"prompt\"} in .jsonl. Prints a line of JSON for "
           "each.");
  add_sampling(*app, a->sample);
  app->add_option("--batch", a->batch, "Continue N prompts of a file at the same time [8].")
      ->option_text("N")
      ->check(whole_number(1, 1024));
  app->add_option("--context", a->context,
                  "Attend to at most N tokens [max_length of generation_config.json, else 1024].")
      ->option_text("N");
  add_threads(*app, a->threads);
}

void add_chat(Parser& p) {
  auto [app, a] = p.add<ChatArguments>(
      p.root, "chat", "Converse with a trained model.",
      "Example:\n  trainhost chat my-model --system \"Answer in one sentence.\"\n\n"
      "Each line is a question. Ctrl-C stops an answer; a second one, or Ctrl-D, ends the program.");
  add_common(*app, a->common, kBackend | kPlugins);
  add_trained_model(*app, a->directory, a->adapter);
  add_text(*app, "--system", a->system, "TEXT", "Begin with this system message [of the template].");
  add_text(*app, "--chat-template", a->chat_template, "NAME",
           "Use this built-in template; auto = that of the model [auto].");
  add_sampling(*app, a->sample);
  app->add_option(
         "--context", a->context,
         "Keep at most N tokens of the conversation [max_length of generation_config.json, else 4096].")
      ->option_text("N");
  add_threads(*app, a->threads);
}

void add_eval(Parser& p) {
  auto [app, a] = p.add<EvalArguments>(
      p.root, "eval",
      "Evaluate a model: perplexity on texts and records, accuracy on questions with choices.",
      "Examples:\n"
      "  trainhost eval runs/builtin --data valid.txt\n"
      "  trainhost eval my-model --data valid.jsonl --compare runs/my-model\n"
      "  trainhost eval my-model --data arc.jsonl --question-format 'Question: {}\\nAnswer:'\n\n"
      "A .jsonl, .json, .csv or .tsv file contains records as for `train`, or questions:\n"
      "{\"question\": \"2 + 2 =\", \"choices\": [\"3\", \"4\"], \"answer\": 1}. Any other file is one text.");
  add_common(*app, a->common, kBackend | kPlugins);
  add_trained_model(*app, a->directory, a->adapter);
  app->add_option("--data", a->data, "Evaluate on each of these files (required).")
      ->option_text("FILE...")
      ->required()
      ->expected(1, CLI::detail::expected_max_vector_size);
  add_text(*app, "--compare", a->compare, "DIR",
           "Evaluate this model, run or adapter too, and print the differences.");
  app->add_option(
         "--window", a->window,
         "Divide what is longer than N tokens into windows [data.seq_len + 1 of a run, else the positions "
         "of the model, at most 2048].")
      ->option_text("N")
      ->check(whole_number(2, 16777216));
  app->add_option("--stride", a->stride,
                  "Begin a window every N tokens, so that each token after the first window has a context "
                  "of at least window - N tokens [half of the window].")
      ->option_text("N")
      ->check(whole_number(1, 16777216));
  app->add_option("--loss-on", a->loss_on, "Score these tokens of records [as the run, else completions].")
      ->option_text("completions|all")
      ->check(CLI::IsMember({"completions", "all"}));
  add_text(
      *app, "--chat-template", a->chat_template, "NAME",
      "Render conversations with this built-in template; auto = that of the model [as the run, else auto].");
  add_repeatable(*app, "--key", a->keys, "NAME=KEY",
                 "Read KEY of a record where NAME is expected, e.g. question=query (repeatable).");
  add_text(*app, "--question-format", a->question_format, "TEXT",
           "Put the question in place of {} in this text; \\n is an end of line [{}].");
  add_text(*app, "--delimiter", a->delimiter, "TEXT", "Put this text between question and choice [a space].");
  app->add_option("--shots", a->shots,
                  "Put the first N other questions with their answers before each question [0].")
      ->option_text("N")
      ->check(whole_number(0, 1000));
  add_text(*app, "--shots-from", a->shots_from, "FILE",
           "Take the questions of --shots from this file [that of the question].");
  app->add_option("--on-error", a->on_error, "Stop at broken records, or leave them out [stop].")
      ->option_text("stop|skip")
      ->check(CLI::IsMember({"stop", "skip"}));
  add_text(*app, "--details", a->details, "FILE",
           "Write a line of JSON for each window, document or question to FILE.");
  app->add_option("--batch", a->batch, "Score N windows, documents or questions at the same time [8].")
      ->option_text("N")
      ->check(whole_number(1, 1024));
  add_threads(*app, a->threads);
}

void add_merge(Parser& p) {
  auto [app, a] = p.add<MergeArguments>(
      p.root, "merge", "Fold an adapter into the weights of its model.",
      "Example:\n  trainhost merge runs/lora/adapter -o merged\n\n"
      "Reads adapter_config.json and adapter_model.safetensors, as `trainhost train` with [lora] and PEFT "
      "write\n"
      "them, and writes a model folder in f32 that generate, transformers and llama.cpp read.");
  add_common(*app, a->common, 0);
  add_text(*app, "ADAPTER", a->adapter, "(required)", "Merge the adapter in this folder.")->required();
  add_text(*app, "-o,--output", a->output, "DIR", "Write the model to this new folder (required).")
      ->required();
  add_text(*app, "--model", a->model, "DIR",
           "Merge into the weights in this folder [base_model_name_or_path of the adapter].");
}

/// Adds the options that `info` and `tokenize` share.
void add_data_files(CLI::App& app, DataArguments& a) {
  add_common(app, a.common, 0);
  app.add_option("FILE", a.files, "Read these text files or token files.")->required()->option_text("...");
  add_text(app, "--tokenizer", a.tokenizer, "bytes|FILE",
           "Tokenize text as bytes, or with a tokenizer.json or a SentencePiece .model [bytes].");
  app.add_option("--dtype", a.dtype, "Read and write ids of this type in token files [by vocabulary size].")
      ->option_text("uint16|uint32")
      ->check(CLI::IsMember({"uint16", "uint32"}));
}

/// Adds the options that `stats` and `show` share.
void add_data_records(CLI::App& app, DataRecordsArguments& a) {
  add_common(app, a.common, kBackend | kPlugins);
  app.add_option(
         "FILE", a.files,
         "Read the records of these files (.jsonl, .json, .csv, .tsv), or the training data of a run\n"
         "file (.toml) as training reads it: mixed, packed and truncated.")
      ->option_text("...");
  add_repeatable(app, "--set", a.common.settings, "KEY=VALUE",
                 "Override one key of the run file, e.g. --set data.weights=[3,1] (repeatable).");
  add_text(app, "--tokenizer", a.tokenizer, "bytes|FILE",
           "Tokenize text as bytes, or with a tokenizer.json or a SentencePiece model [that of --model, else "
           "bytes].");
  add_text(app, "--chat-template", a.chat_template, "NAME",
           "Render conversations with this template [that of the model: data.chat_template].");
  add_text(app, "--model", a.model, "DIR",
           "Use the tokenizer and the chat template of the model in DIR [the folder of the tokenizer].");
  app.add_option("--loss-on", a.loss_on, "Count these tokens in the loss [completions].")
      ->option_text("completions|all")
      ->check(CLI::IsMember({"completions", "all"}));
  add_repeatable(app, "--key", a.keys, "NAME=KEY",
                 "Read KEY of a record where NAME is expected, e.g. text=body (repeatable).");
}

void add_data(Parser& p) {
  CLI::App* data =
      p.root.add_subcommand("data", "Inspect texts, records and token files; create token files.");
  // 0 subcommands are accepted by the parser and rejected below, with a message that lists them.
  data->require_subcommand(0, 1);
  data->allow_extras();
  data->footer("Example:\n  trainhost data info input.txt");
  p.results.emplace_back(data, []() -> Arguments {
    throw usage_error("trainhost data needs one of: info, tokenize, stats, show", "trainhost data --help");
  });
  auto [info, i] =
      p.add<DataInfoArguments>(*data, "info", "Report the tokens, ids and entropy of each file.",
                               "Example:\n  trainhost data info input.txt --tokenizer tokenizer.model");
  // `info` only counts; `tokenize` gets the vocabulary from the tokenizer.
  info->add_option("--vocab", i->vocab,
                   "Count the ids from N upwards as outside the vocabulary; 0 = none [0].")
      ->option_text("N");
  add_data_files(*info, *i);
  auto [tokenize, t] = p.add<DataTokenizeArguments>(
      *data, "tokenize", "Convert text files into one file of raw token ids.",
      "Example:\n  trainhost data tokenize part1.txt part2.txt --tokenizer tokenizer.model -o train.bin");
  add_text(*tokenize, "-o,--output", t->output, "FILE.bin",
           "Write to this file [the first text file with the suffix .bin].");
  add_data_files(*tokenize, *t);
  auto [stats, s] = p.add<DataStatsArguments>(
      *data, "stats",
      "Report the lengths of records in tokens, duplicates and broken records, or the sources of a run.",
      "Examples:\n  trainhost data stats chat.jsonl --tokenizer tokenizer.model --seq-len 2048\n"
      "  trainhost data stats run.toml --set data.weights=[3,1]");
  add_data_records(*stats, *s);
  stats
      ->add_option("--seq-len", s->seq_len,
                   "Count what does not fit sequences of N tokens; 0 = no limit [0].")
      ->option_text("N")
      ->check(whole_number(0, 16777216));
  auto [show, w] = p.add<DataShowArguments>(
      *data, "show", "Print records as they are trained on; {+this+} is counted in the loss.",
      "Example:\n  trainhost data show chat.jsonl --chat-template chatml");
  add_data_records(*show, *w);
  show->add_option("--first", w->first, "Begin with record N, or sample N of a run [1].")
      ->option_text("N")
      ->check(whole_number(1, INT64_MAX));
  show->add_option("--count", w->count, "Print N records or samples [3].")
      ->option_text("N")
      ->check(whole_number(1, 1000000));
}

void add_plugins_check(Parser& p, CLI::App& plugins) {
  auto [app, a] = p.add<PluginsCheckArguments>(
      plugins, "check", "Check that a plugin conforms to the interface.",
      "Exit code: 0 all checks passed, 5 a check failed, 2 no such plugin or option.\n"
      "Example:\n  trainhost plugins check ./acme-mamba.so --level 5 --junit check.xml");
  add_text(*app, "FILE.so|ID", a->plugin, kNoType, "Check the plugin in this file or with this id.");
  // The range is validated in command_plugins_check.cpp, where --fuzz raises the level.
  app->add_option("--level", a->level, "Run the checks of levels 1 to N, at most 10 [5].")->option_text("N");
  add_text(*app, "--only", a->only, "ID,...", "Run only these checks or levels, e.g. E-014,C-020,3.");
  add_text(*app, "--skip", a->skip, "ID,...", "Skip these checks or levels.");
  // --json has an optional value here, unlike the flag of the other commands.
  app->add_option_function<std::string>(
         "--json", [a = a](const std::string& file) { a->json = file; },
         "Write the report as JSON to FILE [standard output].")
      ->option_text("[FILE]")
      ->expected(0, 1)
      ->default_str("-");
  add_text(*app, "--junit", a->junit, "FILE", "Write the report as JUnit XML to FILE.");
  app->add_option("--deadline", a->deadline_s, "Fail a check that takes longer [10].")
      ->option_text("SECONDS");
  app->add_option("--seed", a->seed, "Use this random seed for generated cases [1].")->option_text("N");
  app->add_option(
         "--fuzz", a->fuzz_s,
         "Generate random cases in each check of level 9 for this many seconds; raises --level to 9.")
      ->option_text("SECONDS");
  add_text(*app, "--explain", a->explain, "ID", "Print what a check tests and how to fix a failure.");
  add_text(*app, "--pages", a->pages, "DIR", "Write one page of documentation per check to DIR.");
  add_plugin_path(*app, a->plugin_path);
  app->add_flag("--list", a->list, "List every check.");
  app->add_flag("-q,--quiet", a->quiet, "Print failed checks only.");
  app->add_flag("-v,--verbose", a->verbose, "Print passed and skipped checks too.");
  // Without help and group: the worker is not listed. It must be a command, because its process is started as
  // this program.
  p.add<PluginsCheckWorkerArguments>(plugins, "check-worker", "", "").first->group("");
}

void add_plugins(Parser& p) {
  CLI::App* plugins = p.root.add_subcommand("plugins", "List, inspect, create and check plugins.");
  plugins->require_subcommand(0, 1);
  plugins->allow_extras();
  plugins->footer("Example:\n  trainhost plugins list");
  // `trainhost plugins` alone lists the plugins.
  p.results.emplace_back(plugins, []() -> Arguments { return PluginsListArguments{}; });
  auto [list, l] =
      p.add<PluginsListArguments>(*plugins, "list", "List every plugin file with its status and the reason.",
                                  "Example:\n  trainhost plugins list -v");
  add_common(*list, l->common, kPlugins);
  auto [info, i] = p.add<PluginsInfoArguments>(*plugins, "info",
                                               "Print the manifest of one plugin without running its code.",
                                               "Example:\n  trainhost plugins info cpu");
  add_common(*info, i->common, kPlugins);
  add_text(*info, "NAME", i->plugin, "(required)", "Describe the plugin with this id or in this file.")
      ->required();
  auto [create, n] =
      p.add<PluginsNewArguments>(*plugins, "new", "Create a plugin project: source, build, tests and CI.",
                                 "Example:\n  trainhost plugins new acme-conv --kind=estimator --lang=rust");
  add_text(*create, "NAME", n->name, "(required)", "Give the plugin this id: a-z, 0-9, - and _.")->required();
  // plugin_template validates the values; the error for a missing one lists them.
  add_text(*create, "--kind", n->kind, "estimator|trainer",
           "Create an estimator (predicts the memory of a run) or a trainer (runs it) (required).");
  add_text(*create, "--lang", n->language, "c|c++|rust", "Write the project in this language (required).");
  add_text(*create, "--family", n->family, "FAMILY",
           "Support this model_type of config.json; estimators only [NAME].");
  add_text(*create, "--dir", n->directory, "DIR", "Write to this folder, which is new or empty [NAME].");
  add_plugins_check(p, *plugins);
}

void add_lists(Parser& p) {
  auto [models, m] = p.add<ModelsArguments>(p.root, "models", "List the built-in model presets.",
                                            "Example:\n  trainhost models --json");
  add_common(*models, m->common, 0);
  auto [devices, d] = p.add<DevicesArguments>(
      p.root, "devices", "List the built-in device presets.",
      "Example:\n  trainhost devices\n  trainhost plan --model=llama-3-8b --device=h100-80gb");
  add_common(*devices, d->common, 0);
  auto [doctor, c] = p.add<DoctorArguments>(
      p.root, "doctor", "Check this machine: CPU, memory, disks, libraries, devices, plugins and limits.",
      "Each line is ok, a warning with what to do, or an error. Exit code: 0 no error, 5 an error.\n"
      "Example:\n  trainhost doctor --json");
  add_common(*doctor, c->common, kPlugins);
  auto [check, k] = p.add<CheckArguments>(
      p.root, "check", "Report all errors of a run file, with line, column and the nearest valid key.",
      "Reads the run file and the files that describe its model; does not read data.\n"
      "Exit code: 0 no error, 2 an error.\n"
      "Example:\n  trainhost check run.toml");
  add_text(*check, "RUN.toml", k->common.run_file, "(required)", "Check this run file.")->required();
  add_set(*check, k->common.settings);
  add_common(*check, k->common, kPlugins);
  p.add<SchemaArguments>(p.root, "schema", "Print the JSON Schema of run files, for editors.",
                         "`trainhost init` refers to the installed one.\n"
                         "Example:\n  trainhost schema > run.schema.json");
  auto [init, i] = p.add<InitArguments>(p.root, "init", "Write a commented run file.",
                                        "Examples:\n  trainhost init run.toml\n"
                                        "  trainhost init run.toml --from torchtune.yaml");
  add_text(*init, "FILE", i->file, kNoType, "Write to this file [standard output].");
  add_from(*init, i->common.from,
           "Write what these files of another framework say, and a comment for what cannot be carried over;\n"
           "FILE goes before this option. Files and KIND:FILE: as for plan.");
  add_text(*init, "--model", i->common.model, "PRESET|config.json", "With --from: use this model.");
  add_set(*init, i->common.settings);
  init->add_flag("--force", i->force, "Overwrite FILE.");
}

void add_help(Parser& p) {
  auto [completion, c] = p.add<CompletionArguments>(
      p.root, "completion", "Print the script that completes commands, options and their values in a shell.",
      "Examples:\n  source <(trainhost completion bash)\n"
      "  trainhost completion zsh > ~/.zfunc/_trainhost\n"
      "  trainhost completion fish > ~/.config/fish/completions/trainhost.fish\n"
      "Installed packages contain these scripts.");
  add_text(*completion, "SHELL", c->shell, "bash|zsh|fish", "Print the script of this shell.")->required();
  auto [help, h] = p.add<HelpArguments>(p.root, "help", "Print the help of a command.",
                                        "Example:\n  trainhost help plugins new");
  help->add_option("COMMAND", h->command, "Describe this command [the program].")->option_text("...");
  p.add<VersionArguments>(p.root, "version", "Print the version.", "Example:\n  trainhost version");
}

}  // namespace

void add_commands(Parser& p) {
  add_train(p);
  add_finetune(p);
  add_plan(p);
  add_sweep(p);
  add_search(p);
  add_compare(p);
  add_watch(p);
  add_verify(p);
  add_generate(p);
  add_chat(p);
  add_eval(p);
  add_merge(p);
  add_data(p);
  add_plugins(p);
  add_lists(p);
  add_help(p);
}

}  // namespace trainhost::cli
