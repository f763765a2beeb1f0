// See shared_options.hpp.
#include "tools/trainhost/shared_options.hpp"

#include <fmt/format.h>

#include <charconv>

#include "core/base/text.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {

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

void add_common(CLI::App& app, CommonArguments& a, unsigned shared) {
  if (shared & kRunFile) {
    add_text(app, "RUN.toml", a.run_file, kNoType, "Read the run from this file [the built-in run].");
    add_set(app, a.settings);
  }
  if (shared & kModel)
    add_text(app, "--model", a.model, "PRESET|config.json",
             a.plans_only
                 ? "Use a preset, its name on the Hugging Face Hub, or a config.json instead of a run file."
                 : "Use a preset or a Hugging Face config.json instead of a run file.");
  if (shared & kFrom)
    add_from(app, a.from,
             "Plan the job that these files of another framework describe: TrainingArguments,\n"
             "accelerate, DeepSpeed, torchtune, torchtitan, litgpt, axolotl, LLaMA-Factory, ms-swift,\n"
             "Megatron-LM; or the calls of a Python script or notebook (Trainer, TRL, PEFT, Unsloth), which\n"
             "is not executed. KIND:FILE names the framework, e.g. deepspeed:ds.json.");
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

void add_framework(CLI::App& app, std::string& framework) {
  add_text(app, "--for", framework, "NAME",
           "Plan the training step of this framework, e.g. pytorch [plan.framework of the run file].");
}

void add_target(CLI::App& app, TargetArguments& a) {
  add_text(app, "--device", a.device, "NAME",
           "Plan for this device; `trainhost devices` lists them [memory.device of the run file].");
  app.add_option("--devices", a.devices,
                 "Plan for N of them, which tensor, pipeline, context and data ranks share [number of ranks "
                 "in the run file].")
      ->option_text("N")
      ->check(whole_number(1, 1048576));
  add_text(app, "--budget", a.budget, "SIZE",
           "Limit the memory of one device, or of the host for the CPU trainer, e.g. 24GiB [memory.budget of "
           "the run file].");
  add_host_budget(app, a.host_budget);
  add_framework(app, a.framework);
  app.add_flag(
      "--safe", a.safe,
      "Judge by upper bounds: add the margin that the estimator states [plan.safe of the run file].");
}

void add_adapters(CLI::App& app, CommonArguments& a) {
  const auto add = [&](const char* option, bool quantized, const char* help) {
    return app.add_flag_callback(
        option, [&a, option, quantized] { a.implied = adapter_settings(option, quantized); }, help);
  };
  CLI::Option* lora = add("--lora", false,
                          "Plan adapters of rank 16 on every matrix of the layers instead of full training; "
                          "--set lora.rank=8 changes the rank.");
  add("--qlora", true, "The same on weights that are quantized to 4 bits (NF4).")->excludes(lora);
}

void add_picture(CLI::App& app, PictureArguments& a) {
  add_text(app, "--svg", a.svg, "FILE", "Write the charts of --html as one SVG picture.");
  add_text(app, "--png", a.png, "FILE", "Write the charts of --html as one PNG picture, 2016 pixels wide.");
}

void add_estimators(CLI::App& app, std::string& estimators) {
  add_text(app, "--estimator", estimators, "auto|all|NAME,NAME",
           "Use these estimators; the first one decides the exit code [memory.estimator of the run file].");
}

std::function<std::string(const std::string&)> number_from(double least, double most) {
  return [=](const std::string& text) -> std::string {
    double n = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
    // The comparison is false for NaN.
    if (ec == std::errc{} && end == text.data() + text.size() && n >= least && n <= most) return {};
    return fmt::format("'{}' is not a number from {} to {}", escaped(text, 60), least, most);
  };
}

std::function<std::string(const std::string&)> whole_number(std::uint64_t least, std::uint64_t most) {
  // from_chars accepts neither signs, spaces nor fractions.
  return [=](const std::string& text) -> std::string {
    std::uint64_t n = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (ec == std::errc{} && end == text.data() + text.size() && n >= least && n <= most) return {};
    return fmt::format("'{}' is not a whole number from {} to {}", escaped(text, 60), least, most);
  };
}

}  // namespace trainhost::cli
