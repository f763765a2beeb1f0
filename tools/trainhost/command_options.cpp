// Each add_*() declares one command: its options, their help, and where the values go. Text in brackets is
// the default; "[train.steps of the run file]" names the key that holds without the option. Commands of
// trained models, data and plugins are declared in model_options.cpp, data_options.cpp and
// plugin_options.cpp.
#include "tools/trainhost/command_options.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "tools/trainhost/shared_options.hpp"

namespace trainhost::cli {
namespace {

void add_memory_snapshot(CLI::App* app, std::string& file) {
  add_text(*app, "--memory-snapshot", file, "FILE",
           "Write the planned allocations of a step for PyTorch's memory visualiser\n"
           "(pytorch.org/memory_viz).");
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
  add_memory_snapshot(app, a->memory_snapshot);
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
  app->add_flag("--dora", a->dora,
                "Train such adapters and the magnitude of each row of the adapted matrices (DoRA); with "
                "--qlora on the quantized weights.");
  add_text(*app, "--adapter", a->adapter, "DIR", "Train the adapter in this PEFT folder further.");
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
  add_adapters(*app, a->common);
  app->add_flag("--print-run", a->print_run,
                "Print the run file of what would be planned, and plan nothing.");
  add_text(
      *app, "--rank", a->rank, "R",
      "Plan the memory of rank R, from 0, of a run that trainhost trains in several processes; default: the "
      "rank that needs most.");
  app->add_flag("--explain", a->explain, "Print every entry with its formula and the numbers in it.");
  add_text(*app, "--html", a->html, "FILE", "Write the plan as one HTML file: charts, timeline, derivation.");
  add_picture(*app, a->picture);
  add_text(*app, "--csv", a->csv, "FILE", "Write every entry as one line of CSV.");
  add_memory_snapshot(app, a->memory_snapshot);
  app->add_flag(
      "--web", a->web,
      "Open the planner page with this run in a browser, to change it there; --web=FILE writes the page.");
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
  add_adapters(*app, a->common);
  add_text(*app, "--csv", a->csv, "FILE", "Write the points as CSV.");
  add_text(*app, "--html", a->html, "FILE", "Write the sweep as one HTML file.");
  add_picture(*app, a->picture);
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
  add_framework(*app, a->target.framework);
  add_adapters(*app, a->common);
  app->add_option("--top", a->top, "List the K fastest layouts [10].")
      ->option_text("K")
      ->check(whole_number(1, 10000));
  app->add_option("--threads", a->threads, "Search with N threads; 0 = one per core [0].")
      ->option_text("N")
      ->check(whole_number(0, 1024));
  app->add_flag("--every", a->every, "Evaluate every layout, including those that pruning would skip.");
  add_text(*app, "--csv", a->csv, "FILE", "Write the listed layouts as CSV.");
  add_text(*app, "--html", a->html, "FILE", "Write the result as one HTML file.");
  add_picture(*app, a->picture);
}

void add_compare(Parser& p) {
  auto [app, a] = p.add<CompareArguments>(
      p.root, "compare", "Compare runs: losses, speed, memory and the settings in which they differ.",
      "Example:\n  trainhost compare runs/a runs/b --html compare.html");
  app->add_option("RUN", a->runs, "Compare the runs in these folders.")->required()->option_text("...");
  add_text(*app, "--html", a->html, "FILE", "Write one HTML file with the curves of all runs.");
  add_picture(*app, a->picture);
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
void add_lists(Parser& p) {
  auto [models, m] = p.add<ModelsArguments>(p.root, "models", "List the built-in model presets.",
                                            "Example:\n  trainhost models qwen3");
  add_text(*models, "NAME", m->part, kNoType, "List those with this part in their name or family [all].");
  add_common(*models, m->common, 0);
  auto [devices, d] = p.add<DevicesArguments>(
      p.root, "devices", "List the built-in device presets.",
      "Example:\n  trainhost devices\n  trainhost plan --model=llama-3-8b --device=h100-80gb");
  add_text(*devices, "NAME", d->part, kNoType, "List those with this part in their name [all].");
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
