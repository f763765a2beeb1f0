// trainhost data info | tokenize: look into texts and token files, turn texts into token files.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "core/data/data_tools.hpp"
#include "core/report/text_table.hpp"
#include "tools/trainhost/options.hpp"

namespace trainhost::cli {
namespace {

using Json = nlohmann::ordered_json;

class Data : public Command {
 public:
  void add(CLI::App& root) override {
    app_ = root.add_subcommand("data", "look into texts and token files, or make token files");
    app_->require_subcommand(0, 1);
    app_->footer("Example:\n  trainhost data info input.txt");
    info_ = app_->add_subcommand("info", "tokens, ids and what a run would make of each file");
    info_->footer("Example:\n  trainhost data info input.txt --tokenizer tokenizer.model");
    info_->add_option("--vocab", vocab_, "ids from here on count as outside; 0: unknown")->option_text("N");
    tokenize_ = app_->add_subcommand("tokenize", "texts to one raw token file");
    tokenize_->footer(
        "Example:\n  trainhost data tokenize part1.txt part2.txt --tokenizer tokenizer.model -o train.bin");
    tokenize_->add_option("-o,--output", output_, "where to; the first text's name with .bin when left out")
        ->option_text("FILE.bin");
    for (CLI::App* a : {info_, tokenize_}) {
      add_options(*a, o_, 0);
      a->add_option("FILE", files_, "texts or token files")->required()->option_text("FILE...");
      a->add_option("--tokenizer", tokenizer_, "bytes, or a SentencePiece .model")
          ->option_text("bytes|FILE.model");
      a->add_option("--dtype", dtype_, "of token files: uint16 or uint32")
          ->check(CLI::IsMember({"uint16", "uint32"}));
      a->allow_extras();
    }
  }
  CLI::App* app() const override { return app_; }
  Exit run() override {
    if (tokenize_->parsed()) return tokenize();
    if (info_->parsed()) return info();
    throw usage_error("trainhost data needs one of: info, tokenize", "trainhost data --help");
  }

 private:
  Exit info() {
    data::InfoOptions options;
    options.files.assign(files_.begin(), files_.end());
    options.tokenizer = tokenizer_;
    options.dtype = dtype_;
    options.vocab = vocab_;
    Json all = Json::array();
    for (const data::FileInfo& f : data::info(options)) {
      if (o_.json) {
        all.push_back({{"file", f.file.string()},
                       {"form", f.form},
                       {"bytes", f.bytes},
                       {"tokens", f.scan.tokens},
                       {"bytes_per_token", f.bytes_per_token},
                       {"distinct", f.scan.distinct},
                       {"min_id", f.scan.min_id},
                       {"max_id", f.scan.max_id},
                       {"entropy_nats", f.scan.entropy_nats},
                       {"outside", f.scan.outside}});
        continue;
      }
      report::Table t("ll");
      t.row({"file", escaped(f.file.string())});
      t.row({"form", f.form});
      t.row({"size", fmt::format("{} ({} bytes)", format_bytes(f.bytes), format_count(f.bytes))});
      t.row({"tokens", fmt::format("{}, {:.2f} bytes each", format_count(f.scan.tokens), f.bytes_per_token)});
      t.row({"ids", fmt::format("{} distinct, {} to {}", format_count(f.scan.distinct), f.scan.min_id,
                                f.scan.max_id)});
      t.row({"entropy",
             fmt::format("{:.4f} nats a token, knowing only how frequent each id is", f.scan.entropy_nats)});
      if (f.scan.outside)
        t.row({"outside",
               fmt::format("{} ids are {} or more{}", format_count(f.scan.outside), vocab_,
                           f.first_outside_byte ? fmt::format(", the first at byte {}", *f.first_outside_byte)
                                                : "")});
      fmt::print("{}\n", t.str());
    }
    if (o_.json) fmt::print("{}\n", Json{{"files", all}}.dump(2, ' ', false, Json::error_handler_t::replace));
    return Exit::kDone;
  }

  Exit tokenize() {
    std::filesystem::path out = output_;
    if (out.empty()) out = std::filesystem::path(files_.front()).replace_extension(".bin");
    data::Tokenized r = data::tokenize_to_bin({files_.begin(), files_.end()}, tokenizer_, out, dtype_);
    if (o_.json)
      fmt::print(
          "{}\n",
          Json{{"file", out.string()}, {"tokens", r.tokens}, {"bytes", r.file_bytes}, {"dtype", r.dtype}}
              .dump());
    else if (!o_.quiet)
      fmt::print(stderr, "wrote {}: {} tokens as {} ({}), {:.2f} bytes of text a token\n",
                 escaped(out.string()), format_count(r.tokens), r.dtype, format_bytes(r.file_bytes),
                 r.tokens ? static_cast<double>(r.text_bytes) / static_cast<double>(r.tokens) : 0.0);
    return Exit::kDone;
  }

  CLI::App *app_ = nullptr, *info_ = nullptr, *tokenize_ = nullptr;
  Options o_;
  std::vector<std::string> files_;
  std::string tokenizer_ = "bytes", dtype_, output_;
  std::uint64_t vocab_ = 0;
};

}  // namespace

std::unique_ptr<Command> data_command() { return std::make_unique<Data>(); }

}  // namespace trainhost::cli
