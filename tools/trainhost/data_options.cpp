// Declares `data` and its commands.
#include "tools/trainhost/shared_options.hpp"

namespace trainhost::cli {
namespace {

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

}  // namespace

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

}  // namespace trainhost::cli
