// trainhost data stats | show RUN.toml: the training data of a run as training reads it. Records without a
// run: command_data_records.cpp. The work is core/data/training_samples.cpp.
#include "tools/trainhost/command_data_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/base/json_value.hpp"
#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/data/training_samples.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/planning/error_context.hpp"
#include "core/planning/resolve_run.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"
#include "core/training/model_state.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

/// The data of a run, opened as `train` opens it: its trainer decides whether records are packed, and the
/// tokenized data is kept in the cache of the run.
struct RunData {
  runfile::RunConfig config;
  data::Source source;
  std::uint64_t per_step = 0, steps = 0;  // sequences; of the run
};

RunData open_run_data(DataRecordsArguments a) {
  if (!a.files.empty()) a.common.run_file = a.files.front();
  RunData out;
  out.config = load_config(a.common);
  runfile::reject_unsupported(out.config);
  training::require_tokenizer_of_model(out.config);
  const auto registry = make_registry(a.common, &out.config);
  planning::PlanRequest request;
  request.trainer = planning::choose_backend(*registry, out.config.backend, true, out.config.backend_order,
                                             planning::position_of_key(out.config, "train.backend"))
                        .id;
  out.config = planning::resolve_run(out.config, *registry, request).config;
  out.source = data::open_source(planning::open_options(out.config));
  if (!a.common.quiet)
    for (const std::string& note : out.source.notes) report::write_message("note: " + escaped(note, 4096));
  out.per_step = std::uint64_t{out.config.run.accumulate} * out.config.run.micro_batch;
  out.steps = out.config.steps;
  if (out.config.epochs > 0)
    out.steps = static_cast<std::uint64_t>(
        std::max(1.0, std::ceil(out.config.epochs * static_cast<double>(out.source.train_samples->size()) /
                                static_cast<double>(out.per_step))));
  return out;
}

std::string percent(double share) { return fmt::format("{:.3g}%", 100 * share); }

JsonValue share_json(const data::SourceShare& s) {
  return {{"source", s.source.name},
          {"documents", s.source.documents ? JsonValue(s.source.documents) : JsonValue(nullptr)},
          {"tokens", s.source.tokens},
          {"samples", s.samples},
          {"weight", s.weight},
          {"share_of_samples", s.of_samples},
          {"share_of_tokens", s.of_tokens},
          {"epochs", s.epochs}};
}

JsonValue sample_json(const data::ShownSample& s) {
  JsonValue documents = JsonValue::array();
  for (const data::ShownDocument& d : s.documents)
    documents.push_back({{"tokens", d.tokens}, {"counted", d.counted}, {"parts", parts_json(d.parts)}});
  return {{"position", s.position},
          {"source", s.source},
          {"sample", s.sample},
          {"padding", s.padding},
          {"documents", std::move(documents)}};
}

}  // namespace

bool names_run(const DataRecordsArguments& a) {
  const auto is_run_file = [](const std::string& file) { return file.ends_with(".toml"); };
  const bool run = std::any_of(a.files.begin(), a.files.end(), is_run_file);
  if (run && a.files.size() > 1)
    throw usage_error("a run file is given with other files", "the files of a run are data.train");
  if (!run && a.files.empty() && a.common.settings.empty())
    throw usage_error("no file is given", "give a run file (.toml), or files with records");
  if (!run && !a.files.empty()) {
    if (!a.common.settings.empty() || !a.common.backend.empty())
      throw usage_error("--set and --backend are options of a run, but the files have records",
                        "give a run file, or only --set, for example --set data.train=FILE");
    return false;
  }
  const std::pair<bool, const char*> others[] = {
      {!a.tokenizer.empty(), "--tokenizer: use --set data.tokenizer=FILE"},
      {!a.model.empty(), "--model: use --set model.path=DIR"},
      {a.chat_template != "auto", "--chat-template: use --set data.chat_template=NAME"},
      {a.loss_on != "completions", "--loss-on: use --set data.loss_on=all"},
      {!a.keys.empty(), "--key: use --set data.keys.NAME=KEY"}};
  for (const auto& [given, text] : others)
    if (given) {
      const std::string_view all = text;
      throw usage_error(fmt::format("a run cannot be combined with {}", all.substr(0, all.find(':'))),
                        std::string(all.substr(all.find(':') + 2)));
    }
  return true;
}

Exit stats_of_run(const DataStatsArguments& a) {
  if (a.seq_len) throw usage_error("a run cannot be combined with --seq-len", "use --set data.seq_len=N");
  const RunData run = open_run_data(a);
  const std::uint64_t read = run.steps * run.per_step;
  const std::vector<data::SourceShare> shares = data::source_shares(run.source, read);
  if (a.common.json) {
    JsonValue sources = JsonValue::array();
    for (const data::SourceShare& s : shares) sources.push_back(share_json(s));
    fmt::print(result_stream(), "{}\n",
               JsonValue{{"sources", std::move(sources)},
                         {"samples", run.source.train_samples->size()},
                         {"samples_per_step", run.per_step},
                         {"steps", run.steps},
                         {"seq_len", run.config.run.seq_len},
                         {"packing", run.config.run.document_mask}}
                   .dump(2));
    return Exit::kDone;
  }
  report::Table t("lrrrrrrr");
  t.row({"source", "weight", "documents", "tokens", "samples", "of samples", "of tokens", "epochs"});
  for (const data::SourceShare& s : shares)
    t.row({escaped(s.source.name), shares.size() > 1 ? fmt::format("{:g}", s.weight) : "-",
           s.source.documents ? format_count(s.source.documents) : "-", format_count(s.source.tokens),
           format_count(s.samples), percent(s.of_samples), percent(s.of_tokens),
           fmt::format("{:.3g}", s.epochs)});
  fmt::print("{}", t.str({.width = report::output_width(), .drop = {1, 2, 4, 6, 7, 5}}));
  fmt::print("{}\n", report::wrapped(
                         fmt::format("  the run reads {} of {} of {}{}", plural(run.steps, "step"),
                                     plural(run.per_step, "sample"), plural(run.config.run.seq_len, "token"),
                                     run.config.run.document_mask ? ", packed" : ""),
                         report::output_width(), "    "));
  return Exit::kDone;
}

Exit show_of_run(const DataShowArguments& a) {
  const RunData run = open_run_data(a);
  const auto tokenizer = data::make_tokenizer(run.config.data.tokenizer);
  const data::Order order = data::Order::of(
      *run.source.train_samples, run.config.data.order == runfile::Order::kShuffled, run.config.run.seed);
  const std::vector<data::ShownSample> samples =
      data::show_samples(run.source, *tokenizer, order, run.config.run.seq_len, a.first, a.count);
  if (a.common.json) {
    JsonValue all = JsonValue::array();
    for (const data::ShownSample& s : samples) all.push_back(sample_json(s));
    fmt::print(result_stream(), "{}\n", JsonValue{{"samples", std::move(all)}}.dump(2));
    return Exit::kDone;
  }
  const report::Terminal terminal = report::terminal_of(1);
  for (const data::ShownSample& s : samples) {
    const std::string step = fmt::format("step {}, sample {}", (s.position - 1) / run.per_step + 1,
                                         (s.position - 1) % run.per_step + 1);
    fmt::print("{}\n", report::styled(terminal, report::Style::kBold,
                                      fmt::format("{}: sequence {} of {}, {} padding", step,
                                                  format_count(s.sample), escaped(s.source), s.padding)));
    for (const data::ShownDocument& d : s.documents)
      fmt::print(
          "{}\n{}\n",
          report::styled(terminal, report::Style::kDim,
                         fmt::format("document: {} in the loss of {}", d.counted, plural(d.tokens, "token"))),
          marked_text(d.parts, terminal));
    fmt::print("\n");
  }
  return Exit::kDone;
}

}  // namespace trainhost::cli
