// Declares the commands that compute with a trained model: generate, chat, eval, merge.
#include <fmt/format.h>

#include "tools/trainhost/shared_options.hpp"

namespace trainhost::cli {
namespace {

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
      ->check(number_from(0, 100));
  add("--top-k", o.top_k, "K", fmt::format("Sample from the K most likely tokens; 0 = all {}.", kFile));
  add("--top-p", o.top_p, "P",
      fmt::format("Sample from the most likely tokens whose probabilities sum to P {}.", kFile))
      ->check(number_from(0, 1));
  add("--repetition-penalty", o.repetition_penalty, "X",
      fmt::format("Make tokens that the text has less likely; 1 = no penalty {}.", kFile))
      ->check(number_from(0.01, 100));
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

}  // namespace

// No run file: the folder of a run has everything that generation needs.
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

}  // namespace trainhost::cli
